package independent

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Piece is a rectangle of a tensor as one file holds it: rows [R0, R1) and columns
// [C0, C1), row-major.
type Piece struct {
	Kind, Tensor   string // "weight", "m", ...; the parameter's name
	R0, R1, C0, C1 int
	Data           []float32
}

// Limits of what is read, so that no header makes the reader allocate more than
// the file has.
const (
	headerLimit = 64 << 20 // bytes of a header
	sideLimit   = 1 << 30  // rows and columns
)

// ReadSafetensors reads a file of the given size: a length of 8 bytes, a JSON
// object of entries, then their elements without gaps. Entries are named
// kind/tensor[r0:r1,c0:c1] and are F32. Anything else is refused by name: a
// header beyond the file, an unknown field or a name given twice, offsets that
// overlap, leave gaps or lie outside. White space between the tokens of the header
// and behind it says nothing.
func ReadSafetensors(r io.ReaderAt, size int64) (pieces []Piece, metadata map[string]string, err error) {
	var length [8]byte
	if size < 8 {
		return nil, nil, fmt.Errorf("a file of %d bytes: no header length", size)
	}
	if _, err := r.ReadAt(length[:], 0); err != nil {
		return nil, nil, fmt.Errorf("header length: %w", err)
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > headerLimit || n > uint64(size-8) {
		return nil, nil, fmt.Errorf("a header of %d bytes in a file of %d", n, size)
	}
	head := make([]byte, n)
	if _, err := r.ReadAt(head, 8); err != nil {
		return nil, nil, fmt.Errorf("header: %w", err)
	}
	spans, metadata, err := readEntries(head)
	if err != nil {
		return nil, nil, err
	}
	slices.SortFunc(spans, func(a, b span) int { return int(min(max(a.from-b.from, -1), 1)) })
	at := int64(0)
	for i := range spans {
		s := &spans[i]
		if s.from != at || s.to < s.from || s.to > size-8-int64(n) {
			return nil, nil, fmt.Errorf("entry %q: data at [%d,%d): must follow the %d bytes before it within the %d of the file", s.name, s.from, s.to, at, size-8-int64(n))
		}
		at = s.to
	}
	if at != size-8-int64(n) {
		return nil, nil, fmt.Errorf("%d bytes of data in a file that has %d", at, size-8-int64(n))
	}
	for _, s := range spans { // sizes are within the file now
		raw := make([]byte, s.to-s.from)
		if _, err := r.ReadAt(raw, 8+int64(n)+s.from); err != nil {
			return nil, nil, fmt.Errorf("entry %q: %w", s.name, err)
		}
		s.Data = make([]float32, len(raw)/4)
		for i := range s.Data {
			s.Data[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		}
		pieces = append(pieces, s.Piece)
	}
	return pieces, metadata, nil
}

// span is a piece with the place of its bytes after the header.
type span struct {
	Piece
	name     string
	from, to int64
}

// readEntries reads the header, entry by entry.
func readEntries(head []byte) (out []span, metadata map[string]string, err error) {
	if len(head) == 0 || head[0] != '{' {
		return nil, nil, fmt.Errorf("header: must begin with {")
	}
	list, err := members(head)
	if err != nil {
		return nil, nil, fmt.Errorf("header: %w", err)
	}
	for _, m := range list {
		if m.name == "__metadata__" {
			if err := single(m.value, 0); err != nil {
				return nil, nil, fmt.Errorf("metadata: %w", err)
			}
			if err := json.Unmarshal(m.value, &metadata); err != nil {
				return nil, nil, fmt.Errorf("metadata: %w", err)
			}
			continue
		}
		s, err := readEntry(m.name, m.value)
		if err != nil {
			return nil, nil, fmt.Errorf("entry %q: %w", m.name, err)
		}
		out = append(out, s)
	}
	return out, metadata, nil
}

func readEntry(name string, raw json.RawMessage) (span, error) {
	var e struct {
		DType   string  `json:"dtype"`
		Shape   []int64 `json:"shape"`
		Offsets []int64 `json:"data_offsets"`
	}
	if err := fields(raw, &e, "dtype", "shape", "data_offsets"); err != nil {
		return span{}, err
	}
	p, err := parsePiece(name)
	if err != nil {
		return span{}, err
	}
	rows, cols := int64(p.R1-p.R0), int64(p.C1-p.C0)
	if e.DType != "F32" || !slices.Equal(e.Shape, []int64{rows, cols}) {
		return span{}, fmt.Errorf("%s of shape %v: must be F32 of %d x %d", e.DType, e.Shape, rows, cols)
	}
	// rows and cols are at most 2^30, so their product has no overflow.
	if len(e.Offsets) != 2 || e.Offsets[0] < 0 || e.Offsets[1] < e.Offsets[0] || e.Offsets[1]-e.Offsets[0] != 4*rows*cols {
		return span{}, fmt.Errorf("data at %v: must be %d bytes", e.Offsets, 4*rows*cols)
	}
	return span{Piece: p, name: name, from: e.Offsets[0], to: e.Offsets[1]}, nil
}

// parsePiece reads kind/tensor[r0:r1,c0:c1].
func parsePiece(name string) (p Piece, err error) {
	kind, rest, ok := strings.Cut(name, "/")
	tensor, place, ok2 := strings.Cut(rest, "[")
	place, closed := strings.CutSuffix(place, "]")
	rows, cols, ok3 := strings.Cut(place, ",")
	if !ok || !ok2 || !ok3 || !closed || kind == "" || tensor == "" || strings.ContainsAny(tensor, "]") {
		return p, fmt.Errorf("must be named kind/tensor[r0:r1,c0:c1]")
	}
	p.Kind, p.Tensor = kind, tensor
	if p.R0, p.R1, err = parseRange(rows); err == nil {
		p.C0, p.C1, err = parseRange(cols)
	}
	return p, err
}

func parseRange(s string) (lo, hi int, err error) {
	a, b, ok := strings.Cut(s, ":")
	x, err1 := strconv.ParseUint(a, 10, 31)
	y, err2 := strconv.ParseUint(b, 10, 31)
	if !ok || err1 != nil || err2 != nil || x >= y || y > sideLimit {
		return 0, 0, fmt.Errorf("range %q: must be two numbers, ascending, at most %d", s, sideLimit)
	}
	return int(x), int(y), nil
}
