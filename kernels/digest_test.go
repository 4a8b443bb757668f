package kernels

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"
)

func TestDigestText(t *testing.T) {
	for _, d := range []Digest{{}, {A: 1}, {B: math.MaxUint64}, {A: 0xfedcba9876543210, B: 7, NonFinite: 12}} {
		text, err := d.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		back := Digest{1, 2, 3} // all of it must be overwritten
		if err := back.UnmarshalText(text); err != nil || back != d {
			t.Errorf("%q reads back as %+v, %v; want %+v", text, back, err, d)
		}
	}
	if got := (Digest{A: 0x12, B: 0xab}).String(); got != "000000000000001200000000000000ab" {
		t.Errorf("String = %q", got)
	}
}

func TestDigestTextRefuses(t *testing.T) {
	const good = "000000000000001200000000000000ab"
	for _, s := range []string{"", good[:31], "g" + good[1:], good + "x", good + "!", good + "!x", good + "!-1", good + "!3 more", good + "0"} {
		var d Digest
		if err := d.UnmarshalText([]byte(s)); err == nil {
			t.Errorf("%q is read as %+v, want an error", s, d)
		}
	}
}

// TestDigestAdditive: parts add up to the whole in any order.
func TestDigestAdditive(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	elements := make([]Digest, 101)
	var whole Digest
	for i := range elements {
		a, b := Mix(9, uint64(i), r.Uint64())
		elements[i] = Digest{a, b, uint64(i % 2)}
		whole.Add(elements[i])
	}
	for range 20 {
		r.Shuffle(len(elements), func(i, j int) { elements[i], elements[j] = elements[j], elements[i] })
		cut := r.IntN(len(elements) + 1)
		var left, right Digest
		for _, e := range elements[:cut] {
			left.Add(e)
		}
		for _, e := range elements[cut:] {
			right.Add(e)
		}
		right.Add(left)
		if right != whole {
			t.Fatalf("cut at %d: %+v, want %+v", cut, right, whole)
		}
	}
}

// TestMix: the definition on fixed values, and no contribution that repeats
// where id, index or one bit differs.
func TestMix(t *testing.T) {
	seen := map[[2]uint64]bool{}
	flips := 0
	for id := range uint64(4) {
		for index := range uint64(50) {
			a0, b0 := Mix(id, index, 0)
			for bit := range 32 {
				a, b := Mix(id, index, 1<<bit)
				if seen[[2]uint64{a, b}] {
					t.Fatalf("id %d index %d bit %d repeats an earlier contribution", id, index, bit)
				}
				seen[[2]uint64{a, b}] = true
				flips += bits.OnesCount64(a^a0) + bits.OnesCount64(b^b0)
			}
		}
	}
	if mean := float64(flips) / float64(len(seen)); mean < 60 || mean > 68 {
		t.Errorf("one bit of input flips %.1f of 128 bits, want about 64", mean)
	}
	id, next, value := uint64(7), uint64(6), uint64(42) // products of constants would overflow
	x := (id + next*hashIndex) ^ (value*hashBits + hashBits)
	x = (x ^ x>>32) * hashMixA
	wantA := x ^ x>>29
	y := (wantA ^ wantA>>32) * hashMixB
	if a, b := Mix(7, 5, 42); a != wantA || b != y^y>>32 {
		t.Errorf("Mix(7, 5, 42) = %x, %x; want %x, %x", a, b, wantA, y^y>>32)
	}
}

func TestBits(t *testing.T) {
	for bits, want := range map[uint32]uint32{
		0: 0, 1 << 31: 1 << 31, 0x7f800000: 0x7f800000, 0x7f800001: CanonicalNaN,
		0xffc00000: CanonicalNaN, 0x7fffffff: CanonicalNaN, 0x3f800000: 0x3f800000,
	} {
		if got := Bits(math.Float32frombits(bits)); got != want {
			t.Errorf("Bits of %#x = %#x, want %#x", bits, got, want)
		}
	}
}

// TestTensorID against published values of FNV-1a.
func TestTensorID(t *testing.T) {
	for name, want := range map[string]uint64{"": 0xcbf29ce484222325, "a": 0xaf63dc4c8601ec8c, "foobar": 0x85944171f73967e8} {
		if got := TensorID(name); got != want {
			t.Errorf("TensorID(%q) = %#x, want %#x", name, got, want)
		}
	}
}
