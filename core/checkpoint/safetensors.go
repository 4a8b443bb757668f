// Package checkpoint stores weights, moments and the position of a run so that
// it can go on under any other plan: safetensors files, one per rank that owns
// something, and a manifest that names each with its hash. A checkpoint is
// complete or not there.
//
// A rank stores rectangles of logical tensors: the entry
// "weight/model.norm.weight[0:1,0:32]" holds rows 0 to 1 and columns 0 to 32.
// Readers put together what their own plan needs.
package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"

	"github.com/lockstep-ml/lockstep/core/shard"
)

// Rect is rows R and columns C of a logical tensor of one kind ("weight", "m",
// "v", "momentum").
type Rect struct {
	What, Tensor string
	R, C         shard.Range
}

// Len is the number of elements.
func (r Rect) Len() int { return r.R.Len() * r.C.Len() }

// String is the entry's name.
func (r Rect) String() string {
	return fmt.Sprintf("%s/%s[%d:%d,%d:%d]", r.What, r.Tensor, r.R.Lo, r.R.Hi, r.C.Lo, r.C.Hi)
}

// maxSide bounds rows and columns, so that sizes in bytes do not overflow.
const maxSide = 1 << 30

var rectName = regexp.MustCompile(`^([a-z.]+)/([^\[\]]+)\[(\d+):(\d+),(\d+):(\d+)\]$`)

// parseRect reads what String wrote.
func parseRect(s string) (Rect, error) {
	m := rectName.FindStringSubmatch(s)
	if m == nil {
		return Rect{}, fmt.Errorf("entry %q: want kind/tensor[r0:r1,c0:c1]", s)
	}
	var n [4]int
	for i := range n {
		v, err := strconv.Atoi(m[3+i])
		if err != nil {
			return Rect{}, fmt.Errorf("entry %q: %w", s, err)
		}
		if v > maxSide {
			return Rect{}, fmt.Errorf("entry %q: %d: must be at most %d", s, v, maxSide)
		}
		n[i] = v
	}
	r := Rect{What: m[1], Tensor: m[2], R: shard.Range{Lo: n[0], Hi: n[1]}, C: shard.Range{Lo: n[2], Hi: n[3]}}
	if r.R.Empty() || r.C.Empty() {
		return Rect{}, fmt.Errorf("entry %q: is empty", s)
	}
	return r, nil
}

// entry is a tensor in the header of a safetensors file.
type entry struct {
	DType   string   `json:"dtype"`
	Shape   [2]int   `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

// maxHeader bounds the header that is read: 100 MB, as the format's own library
// does.
const maxHeader = 100_000_000

// Write writes the rectangles in the safetensors format: 8 bytes of header
// length, a JSON header, then the data; element reads the i-th rectangle.
func Write(w io.Writer, rects []Rect, metadata map[string]string, element func(i int) ([]float32, error)) error {
	head := map[string]any{"__metadata__": metadata}
	var off int64
	for _, r := range rects {
		n := 4 * int64(r.Len())
		head[r.String()] = entry{"F32", [2]int{r.R.Len(), r.C.Len()}, [2]int64{off, off + n}}
		off += n
	}
	h, err := json.Marshal(head)
	if err != nil {
		return err
	}
	for len(h)%8 != 0 { // the format aligns the data
		h = append(h, ' ')
	}
	if _, err := w.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(h))), h...)); err != nil {
		return err
	}
	var raw []byte
	for i, r := range rects {
		x, err := element(i)
		if err != nil {
			return err
		}
		if len(x) != r.Len() {
			return fmt.Errorf("%v: %d elements given", r, len(x))
		}
		raw = raw[:0]
		for _, v := range x {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
		}
		if _, err := w.Write(raw); err != nil {
			return err
		}
	}
	return nil
}

// file is an open safetensors file.
type file struct {
	f        *os.File
	rects    []stored
	metadata map[string]string
}

// stored is a rectangle with its place in the file.
type stored struct {
	Rect
	off int64
}

// readHeader reads and checks the header of size bytes of safetensors: offsets
// lie within the data, follow each other and fit the shapes.
func readHeader(r io.ReaderAt, size int64) (*file, error) {
	in := io.NewSectionReader(r, 0, size)
	var n [8]byte
	if _, err := io.ReadFull(in, n[:]); err != nil {
		return nil, fmt.Errorf("header length: %w", err)
	}
	length := binary.LittleEndian.Uint64(n[:])
	if length > maxHeader || int64(length) > size-8 {
		return nil, fmt.Errorf("header of %d bytes in a file of %d", length, size)
	}
	h := make([]byte, length)
	if _, err := io.ReadFull(in, h); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	return parse(h, 8+int64(length), size)
}

func parse(h []byte, base, size int64) (*file, error) {
	var rects []stored
	out := &file{}
	var head map[string]json.RawMessage
	if len(h) == 0 || h[0] != '{' { // the format allows white space behind, not before
		return nil, errors.New("header: must begin with {")
	}
	if err := read(h, &head); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	for name, raw := range head {
		if name == "__metadata__" {
			if err := json.Unmarshal(raw, &out.metadata); err != nil {
				return nil, fmt.Errorf("metadata: %w", err)
			}
			continue
		}
		var e entry
		if err := json.Unmarshal(raw, &e); err != nil {
			return nil, fmt.Errorf("entry %q: %w", name, err)
		}
		r, err := parseRect(name)
		if err != nil {
			return nil, err
		}
		if e.DType != "F32" || e.Shape != [2]int{r.R.Len(), r.C.Len()} {
			return nil, fmt.Errorf("entry %q: dtype %s, shape %v: want F32 of the size in its name", name, e.DType, e.Shape)
		}
		if e.Offsets[0] < 0 || e.Offsets[1]-e.Offsets[0] != 4*int64(r.Len()) || base+e.Offsets[1] > size {
			return nil, fmt.Errorf("entry %q: data at %v: the file has %d bytes", name, e.Offsets, size)
		}
		rects = append(rects, stored{r, base + e.Offsets[0]})
	}
	slices.SortFunc(rects, func(a, b stored) int { return int(a.off - b.off) })
	end := base
	for _, r := range rects {
		if r.off != end {
			return nil, fmt.Errorf("entry %v: data starts at %d, want %d", r.Rect, r.off, end)
		}
		end += 4 * int64(r.Len())
	}
	if end != size {
		return nil, fmt.Errorf("data ends at %d, the file at %d", end, size)
	}
	out.rects = rects
	return out, nil
}

// copyOverlap copies what r shares with the wanted rectangle into dst, which
// holds the wanted rectangle row by row, and returns the number of elements.
func copyOverlap(f io.ReaderAt, r stored, want Rect, dst []float32) (int, error) {
	rows, cols := r.R.Intersect(want.R), r.C.Intersect(want.C)
	if rows.Empty() || cols.Empty() {
		return 0, nil
	}
	// Columns cols of the common rows, in the stored and in the wanted rectangle.
	from := shard.MatrixShard{Rows: rows.Len(), Cols: r.C.Len(), Axis: shard.Columns, Range: cols.Shift(-r.C.Lo)}
	to := shard.MatrixShard{Rows: rows.Len(), Cols: want.C.Len(), Axis: shard.Columns, Range: cols.Shift(-want.C.Lo)}
	raw := make([]byte, 4*from.Rows*from.Cols)
	if _, err := f.ReadAt(raw, r.off+4*int64((rows.Lo-r.R.Lo)*from.Cols)); err != nil {
		return 0, fmt.Errorf("%v: %w", r.Rect, err)
	}
	whole := make([]float32, from.Rows*from.Cols)
	for i := range whole {
		whole[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	common, err := shard.ExtractShard(from, whole)
	if err != nil {
		return 0, fmt.Errorf("%v: %w", r.Rect, err)
	}
	at := (rows.Lo - want.R.Lo) * to.Cols
	return len(common), shard.InsertShard(to, dst[at:at+to.Rows*to.Cols], common)
}
