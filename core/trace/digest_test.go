package trace

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"os"
	"strconv"
	"testing"

	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// vectors is testdata/digest-vectors.json. 64-bit numbers are hexadecimal
// strings, as many languages read JSON numbers as float64.
type vectors struct {
	Says     string        `json:"says"`
	IDs      []idVector    `json:"ids"`
	Mixes    []mixVector   `json:"mixes"`
	Digests  []setVector   `json:"digests"`
	Together []unionVector `json:"unions"`
}

// idVector is the id of a tensor.
type idVector struct {
	Tensor string `json:"tensor"`
	ID     string `json:"id"`
}

// mixVector is what one element adds to a digest.
type mixVector struct {
	ID    string `json:"id"`
	Index uint64 `json:"index"`
	Bits  string `json:"bits"`
	A     string `json:"a"`
	B     string `json:"b"`
}

// setVector is the digest of a slice of Rows x Cols elements of a tensor: element
// (r, c) of the slice has the index First + r*RowStride + c.
type setVector struct {
	Name      string   `json:"name"`
	Tensor    string   `json:"tensor"`
	First     uint64   `json:"first"`
	RowStride uint64   `json:"row_stride"`
	Rows      int      `json:"rows"`
	Cols      int      `json:"cols"`
	Bits      []string `json:"bits"` // of the float32 elements, row by row
	Digest    string   `json:"digest"`
}

// unionVector says that the digests of some sets add up to that of another.
type unionVector struct {
	Parts []string `json:"parts"`
	Whole string   `json:"whole"`
}

func hex64(x uint64) string { return fmt.Sprintf("%016x", x) }

// makeVectors computes the vectors with package kernels and its reference backend.
func makeVectors(t *testing.T) vectors {
	t.Helper()
	v := vectors{Says: "examples of the digests that histories contain; the documentation of package core/trace defines them"}
	for _, name := range []string{"", "a", "model.embed_tokens.weight", "model.layers.17.mlp.down_proj.weight", "poids é 重み"} {
		v.IDs = append(v.IDs, idVector{name, hex64(kernels.TensorID(name))})
	}
	for _, m := range [][3]uint64{{0, 0, 0}, {0, 0, 1 << 31}, {1, 0, 0}, {0, 1, 0}, {kernels.TensorID("a"), 7, 0x3f800000},
		{math.MaxUint64, math.MaxUint64, math.MaxUint32}, {kernels.TensorID("a"), 1 << 40, kernels.CanonicalNaN}} {
		a, b := kernels.Mix(m[0], m[1], m[2])
		v.Mixes = append(v.Mixes, mixVector{hex64(m[0]), m[1], fmt.Sprintf("%08x", m[2]), hex64(a), hex64(b)})
	}
	be := ref.New[float32]()
	add := func(name string, first, stride uint64, rows int, bits ...uint32) {
		x := make([]float32, len(bits))
		set := setVector{Name: name, Tensor: "w", First: first, RowStride: stride, Rows: rows, Cols: len(bits) / rows}
		for i, b := range bits {
			x[i] = math.Float32frombits(b)
			set.Bits = append(set.Bits, fmt.Sprintf("%08x", b))
		}
		buf, err := be.Alloc(len(x))
		if err != nil {
			t.Fatal(err)
		}
		flat := kernels.Flat(buf)
		be.Write(flat, x)
		var d kernels.Digest
		be.Hash(&d, flat.As(rows, set.Cols), kernels.Place{ID: kernels.TensorID("w"), First: first, RowStride: stride})
		text, _ := d.MarshalText() // never fails
		set.Digest = string(text)
		v.Digests = append(v.Digests, set)
	}
	// A matrix of 3 x 4, whole, as columns, as rows, and cut across rows.
	m := []uint32{0, 1 << 31, 0x3f800000, 0xbf800000, 1, 0x80000001, 0x7f7fffff, 0x00800000, 0x40490fdb, 0xc0000000, 0x33d6bf95, 0x7f800000}
	add("whole", 0, 4, 3, m...)
	add("columns 0 to 2", 0, 4, 3, m[0], m[1], m[2], m[4], m[5], m[6], m[8], m[9], m[10])
	add("column 3", 3, 4, 3, m[3], m[7], m[11])
	add("row 0", 0, 4, 1, m[:4]...)
	add("rows 1 and 2", 4, 4, 2, m[4:]...)
	add("elements 0 to 4, flat", 0, 5, 1, m[:5]...)
	add("elements 5 to 11, flat", 5, 7, 1, m[5:]...)
	add("none", 9, 0, 1)
	add("+0", 6, 1, 1, 0)
	add("-0", 6, 1, 1, 1<<31)
	add("NaN", 6, 1, 1, kernels.CanonicalNaN)
	add("NaNs of other bits", 6, 1, 1, 0xffc12345)
	add("signalling NaN", 6, 1, 1, 0x7f800001)
	add("infinities", 6, 2, 1, 0x7f800000, 0xff800000)
	add("far away", 1<<40, 1<<33, 2, 0x3f800000, 0x3f800000)
	v.Together = []unionVector{
		{[]string{"columns 0 to 2", "column 3"}, "whole"}, {[]string{"rows 1 and 2", "row 0"}, "whole"},
		{[]string{"elements 0 to 4, flat", "elements 5 to 11, flat", "none"}, "whole"},
	}
	return v
}

// TestDigestVectors: the file is what package kernels computes.
func TestDigestVectors(t *testing.T) {
	b, err := json.MarshalIndent(makeVectors(t), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/digest-vectors.json", append(b, '\n'))
}

// TestDigestVectorsFromTheDocument computes the file's digests from the package
// comment alone, in integers of any size, with nothing of package kernels.
func TestDigestVectorsFromTheDocument(t *testing.T) {
	text, err := os.ReadFile("testdata/digest-vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.IDs) < 5 || len(v.Mixes) < 7 || len(v.Digests) < 15 || len(v.Together) < 3 {
		t.Fatalf("%d ids, %d mixes, %d digests, %d unions: too few", len(v.IDs), len(v.Mixes), len(v.Digests), len(v.Together))
	}
	for _, x := range v.IDs {
		if got := fmt.Sprintf("%016x", documentID(x.Tensor)); got != x.ID {
			t.Errorf("id of %q: %s, the file has %s", x.Tensor, got, x.ID)
		}
	}
	for _, x := range v.Mixes {
		a, b := documentMix(number(t, x.ID), new(big.Int).SetUint64(x.Index), number(t, x.Bits))
		if got := fmt.Sprintf("%016x %016x", a, b); got != x.A+" "+x.B {
			t.Errorf("mix of %+v: %s", x, got)
		}
	}
	sums := map[string][3]*big.Int{}
	for _, x := range v.Digests {
		sums[x.Name] = documentDigest(t, x)
		if got := documentText(sums[x.Name]); got != x.Digest {
			t.Errorf("digest of %s: %s, the file has %s", x.Name, got, x.Digest)
		}
	}
	for _, x := range v.Together {
		sum := [3]*big.Int{new(big.Int), new(big.Int), new(big.Int)}
		for _, p := range x.Parts {
			for i := range sum {
				sum[i] = wrap(new(big.Int).Add(sum[i], sums[p][i]))
			}
		}
		if got, want := documentText(sum), documentText(sums[x.Whole]); got != want {
			t.Errorf("%v add up to %s, %s has %s", x.Parts, got, x.Whole, want)
		}
	}
}

// TestDigestOfIntegers: what the package comment says of the digest of a data
// event, in integers of any size, against the multiplications of package kernels.
func TestDigestOfIntegers(t *testing.T) {
	var got kernels.Digest
	want := [3]*big.Int{new(big.Int), new(big.Int), new(big.Int)}
	for _, x := range []struct {
		tensor string
		values []int32
	}{{Tokens, []int32{0, 255, 65536}}, {Targets, []int32{255, -1, 0x7fc00001}}} {
		for i, v := range x.values {
			a, b := kernels.Mix(kernels.TensorID(x.tensor), uint64(i), uint64(uint32(v)))
			got.Add(kernels.Digest{A: a, B: b})
			bits := new(big.Int).And(big.NewInt(int64(v)), big.NewInt(0xffffffff)) // two's complement
			c, d := documentMix(documentID(x.tensor), big.NewInt(int64(i)), bits)
			want[0], want[1] = wrap(want[0].Add(want[0], c)), wrap(want[1].Add(want[1], d))
		}
	}
	if text, _ := got.MarshalText(); string(text) != documentText(want) {
		t.Errorf("%s, want %s", text, documentText(want))
	}
}

func number(t *testing.T, hex string) *big.Int {
	t.Helper()
	x, ok := new(big.Int).SetString(hex, 16)
	if !ok {
		t.Fatalf("%q is no hexadecimal number", hex)
	}
	return x
}

// wrap is x modulo 2^64.
func wrap(x *big.Int) *big.Int {
	return x.Mod(x, new(big.Int).Lsh(big.NewInt(1), 64))
}

func times(x *big.Int, factor string) *big.Int {
	f, _ := new(big.Int).SetString(factor, 0)
	return wrap(new(big.Int).Mul(x, f))
}

func documentID(name string) *big.Int {
	h, _ := new(big.Int).SetString("14695981039346656037", 10)
	for _, b := range []byte(name) {
		h = times(h.Xor(h, big.NewInt(int64(b))), "1099511628211")
	}
	return h
}

func documentMix(id, index, bits *big.Int) (a, b *big.Int) {
	plus, _ := new(big.Int).SetString("0xbf58476d1ce4e5b9", 0)
	left := wrap(new(big.Int).Add(id, times(wrap(new(big.Int).Add(index, big.NewInt(1))), "0x9e3779b97f4a7c15")))
	x := new(big.Int).Xor(left, wrap(new(big.Int).Add(times(bits, "0xbf58476d1ce4e5b9"), plus)))
	folded := func(x *big.Int, by uint) *big.Int { return new(big.Int).Xor(x, new(big.Int).Rsh(x, by)) }
	a = folded(times(folded(x, 32), "0x94d049bb133111eb"), 29)
	return a, folded(times(folded(a, 32), "0xff51afd7ed558ccd"), 32)
}

func documentDigest(t *testing.T, x setVector) [3]*big.Int {
	t.Helper()
	sum := [3]*big.Int{new(big.Int), new(big.Int), new(big.Int)}
	if len(x.Bits) != x.Rows*x.Cols {
		t.Fatalf("%s: %d elements of %d x %d", x.Name, len(x.Bits), x.Rows, x.Cols)
	}
	for i, hex := range x.Bits {
		bits, err := strconv.ParseUint(hex, 16, 32)
		if err != nil {
			t.Fatal(err)
		}
		exponent, fraction := bits>>23&255, bits&(1<<23-1)
		if exponent == 255 {
			sum[2].Add(sum[2], big.NewInt(1))
			if fraction != 0 {
				bits = 0x7fc00000
			}
		}
		index := x.First + uint64(i/x.Cols)*x.RowStride + uint64(i%x.Cols)
		a, b := documentMix(documentID(x.Tensor), new(big.Int).SetUint64(index), new(big.Int).SetUint64(bits))
		sum[0], sum[1] = wrap(sum[0].Add(sum[0], a)), wrap(sum[1].Add(sum[1], b))
	}
	return sum
}

func documentText(d [3]*big.Int) string {
	s := fmt.Sprintf("%016x%016x", d[0], d[1])
	if d[2].Sign() > 0 {
		s += "!" + d[2].String()
	}
	return s
}
