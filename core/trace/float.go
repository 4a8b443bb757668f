package trace

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// Float is a float64 that JSON carries exactly, NaN and infinities included
// (as the strings "NaN", "+Inf", "-Inf").
type Float float64

// MarshalJSON writes the shortest decimal that reads back to the same bits.
func (f Float) MarshalJSON() ([]byte, error) {
	x := float64(f)
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return json.Marshal(strconv.FormatFloat(x, 'g', -1, 64))
	}
	return strconv.AppendFloat(nil, x, 'g', -1, 64), nil
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (f *Float) UnmarshalJSON(b []byte) error {
	s := string(b)
	if len(b) > 0 && b[0] == '"' {
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
	}
	x, err := strconv.ParseFloat(s, 64)
	*f = Float(x)
	return err
}

// Floats is a slice of float32 that JSON carries as base64 of little-endian bits.
type Floats []float32

// MarshalText encodes the bits.
func (f Floats) MarshalText() ([]byte, error) {
	raw := make([]byte, 0, 4*len(f))
	for _, x := range f {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
	}
	return base64.StdEncoding.AppendEncode(nil, raw), nil
}

// UnmarshalText decodes what MarshalText wrote.
func (f *Floats) UnmarshalText(b []byte) error {
	raw, err := base64.StdEncoding.DecodeString(string(b))
	if err != nil {
		return err
	}
	if len(raw)%4 != 0 {
		return fmt.Errorf("data of %d bytes: not a multiple of 4", len(raw))
	}
	out := make(Floats, len(raw)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	*f = out
	return nil
}
