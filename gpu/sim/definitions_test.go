//go:build sim

package sim_test

import (
	"fmt"
	"math"
	"math/bits"
)

// instruction is one that is held against its definition in Go, on bits.
type instruction struct {
	op    string // add.s32
	types string // of the result and the operands: u32 u32 u32; p is a predicate
	f     func(x []uint64) uint64
	tail  string // further operands
}

// edges are bits that break things, as integers and as floats of either size.
func edges(width int) []uint64 {
	v := []uint64{0, 1, 2, 3, 5, 7, 15, 16, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256, 0x7f80, 0x7fff, 0x8000, 0xffff, 0x5410, 0xba98, 0x00010000, 0x00ff00ff,
		0x7fffffff, 0x80000000, 0x80000001, 0xffffffff, 0xfffffffe, 0x007fffff, 0x00800000, 0x00800001, 0x7f7fffff, 0x7f800000, 0xff800000, 0x7f800001, 0x7fc00000, 0xffc12345,
		0x3f800000, 0xbf800000, 0x3effffff, 0x3f000000, 0xbf000000, 0x3f000001, 0x3fc00000, 0x40200000, 0xc0200000, 0x4effffff, 0x4f000000, 0xcf000000, 0xcf000001, 0x4f7fffff,
		0x4f800000, 0x5effffff, 0x5f000000, 0xdf000000, 0x5f7fffff, 0x5f800000, 0x4b000001, 0x34000000, 0x33800000, 0x00000010, 0x8000000f}
	if width == 64 {
		for _, x := range v[:len(v):len(v)] {
			v = append(v, x<<32, x<<32|x, math.Float64bits(float64(math.Float32frombits(uint32(x)))))
		}
		v = append(v, math.MaxInt64, math.MaxUint64, 1<<63)
	}
	return v
}

func f32(x uint64) float32 { return math.Float32frombits(uint32(x)) }
func f64(x uint64) float64 { return math.Float64frombits(x) }

// canonical gives the bits of a float, of a NaN the device's.
func canonical(f float32) uint64 {
	if f != f {
		return 0x7fffffff
	}
	return uint64(math.Float32bits(f))
}

func flag(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// flush is .ftz.
func flush(f float32) float32 {
	if f != 0 && math.Abs(float64(f)) < 0x1p-126 {
		return float32(math.Copysign(0, float64(f)))
	}
	return f
}

func pick(a, b float32, max bool) float32 {
	switch {
	case a != a:
		return b
	case b != b:
		return a
	case a == 0 && b == 0:
		if math.Signbit(float64(a)) != max {
			return a
		}
		return b
	case (a > b) == max:
		return a
	}
	return b
}

// toInteger is cvt of a float to an integer of so many bits.
func toInteger(f float64, round func(float64) float64, width int, signed bool) uint64 {
	f = round(f)
	mask := uint64(1)<<(width-1)<<1 - 1
	least, most := 0.0, math.Ldexp(1, width)
	top := mask
	if signed {
		least, most = -math.Ldexp(1, width-1), math.Ldexp(1, width-1)
		top = mask >> 1
	}
	switch {
	case f != f:
		return 0
	case f >= most:
		return top
	case f < least:
		return (top + 1) & mask // the least of signed ones; 0
	case f >= 1<<63:
		return uint64(f)
	}
	return uint64(int64(f)) & mask
}

func sext(x uint64, width int) int64 { return int64(x<<(64-width)) >> (64 - width) }

// integers are the instructions of integers, for one width.
func integers(w int) []instruction {
	mask := uint64(1)<<(w-1)<<1 - 1
	u, s, b := fmt.Sprintf("u%d", w), fmt.Sprintf("s%d", w), fmt.Sprintf("b%d", w)
	uuu, sss, bbb := u+" "+u+" "+u, s+" "+s+" "+s, b+" "+b+" "+b
	m := func(f func(x []uint64) uint64) func([]uint64) uint64 {
		return func(x []uint64) uint64 { return f(x) & mask }
	}
	signed := func(f func(a, b int64) uint64) func([]uint64) uint64 {
		return func(x []uint64) uint64 { return f(sext(x[0], w), sext(x[1], w)) & mask }
	}
	out := []instruction{
		{"add." + u, uuu, m(func(x []uint64) uint64 { return x[0] + x[1] }), ""},
		{"sub." + s, sss, m(func(x []uint64) uint64 { return x[0] - x[1] }), ""},
		{"mul.lo." + s, sss, m(func(x []uint64) uint64 { return x[0] * x[1] }), ""},
		{"mad.lo." + u, uuu + " " + u, m(func(x []uint64) uint64 { return x[0]*x[1] + x[2] }), ""},
		{"mul.hi." + u, uuu, m(func(x []uint64) uint64 {
			hi, lo := bits.Mul64(x[0], x[1])
			if w == 64 {
				return hi
			}
			return lo >> w
		}), ""},
		{"mul.hi." + s, sss, signed(func(a, b int64) uint64 {
			hi, lo := bits.Mul64(uint64(a), uint64(b))
			hi -= uint64(a>>63)&uint64(b) + uint64(b>>63)&uint64(a)
			if w == 64 {
				return hi
			}
			return lo>>w | hi<<(64-w)
		}), ""},
		{"min." + u, uuu, func(x []uint64) uint64 { return min(x[0], x[1]) }, ""},
		{"max." + u, uuu, func(x []uint64) uint64 { return max(x[0], x[1]) }, ""},
		{"min." + s, sss, signed(func(a, b int64) uint64 { return uint64(min(a, b)) }), ""},
		{"max." + s, sss, signed(func(a, b int64) uint64 { return uint64(max(a, b)) }), ""},
		{"neg." + s, s + " " + s, m(func(x []uint64) uint64 { return -x[0] }), ""},
		{"abs." + s, s + " " + s, m(func(x []uint64) uint64 { return uint64(max(sext(x[0], w), -sext(x[0], w))) }), ""},
		{"and." + b, bbb, func(x []uint64) uint64 { return x[0] & x[1] }, ""},
		{"or." + b, bbb, func(x []uint64) uint64 { return x[0] | x[1] }, ""},
		{"xor." + b, bbb, func(x []uint64) uint64 { return x[0] ^ x[1] }, ""},
		{"not." + b, b + " " + b, m(func(x []uint64) uint64 { return ^x[0] }), ""},
		{"cnot." + b, b + " " + b, func(x []uint64) uint64 { return flag(x[0] == 0) }, ""},
		{"shl." + b, b + " " + b + " u32", m(func(x []uint64) uint64 { return x[0] << x[1] }), ""},
		{"shr." + u, u + " " + u + " u32", func(x []uint64) uint64 { return x[0] >> x[1] }, ""},
		{"shr." + s, s + " " + s + " u32", m(func(x []uint64) uint64 { return uint64(sext(x[0], w) >> x[1]) }), ""},
		{"selp." + b, bbb + " p", func(x []uint64) uint64 { return x[1-x[2]&1] }, ""},
		{"div." + u, uuu, m(func(x []uint64) uint64 {
			if x[1] == 0 {
				return mask
			}
			return x[0] / x[1]
		}), ""},
		{"rem." + s, sss, signed(func(a, b int64) uint64 {
			if b == 0 {
				return uint64(a)
			}
			return uint64(a % b)
		}), ""},
		{"div." + s, sss, signed(func(a, b int64) uint64 {
			if b == 0 {
				return mask
			}
			return uint64(a / b)
		}), ""},
	}
	for name, f := range map[string]func(a, b int64, ua, ub uint64) bool{
		"lt": func(a, b int64, _, _ uint64) bool { return a < b }, "le": func(a, b int64, _, _ uint64) bool { return a <= b },
		"ge": func(a, b int64, _, _ uint64) bool { return a >= b }, "eq": func(a, b int64, _, _ uint64) bool { return a == b }, "ne": func(a, b int64, _, _ uint64) bool { return a != b },
	} {
		out = append(out, instruction{"setp." + name + "." + s, "p " + s + " " + s, func(x []uint64) uint64 { return flag(f(sext(x[0], w), sext(x[1], w), 0, 0)) }, ""})
	}
	out = append(out, instruction{"setp.hi." + u, "p " + u + " " + u, func(x []uint64) uint64 { return flag(x[0] > x[1]) }, ""})
	if w == 16 {
		return out
	}
	count := func(f func(x uint64) int) func([]uint64) uint64 {
		return func(x []uint64) uint64 { return uint64(uint32(f(x[0]))) }
	}
	field := func(sign bool) func(x []uint64) uint64 {
		return func(x []uint64) (r uint64) {
			at, n := x[1]&255, x[2]&255
			fill := uint64(0)
			if sign && n > 0 {
				fill = x[0] >> min(at+n-1, uint64(w-1)) & 1
			}
			for i := range uint64(w) {
				bit := fill
				if i < n && at+i < uint64(w) {
					bit = x[0] >> (at + i) & 1
				}
				r |= bit << i
			}
			return r
		}
	}
	return append(out, []instruction{
		{"clz." + b, "u32 " + b, count(func(x uint64) int { return bits.LeadingZeros64(x) - (64 - w) }), ""},
		{"popc." + b, "u32 " + b, count(bits.OnesCount64), ""},
		{"brev." + b, b + " " + b, func(x []uint64) uint64 { return bits.Reverse64(x[0]) >> (64 - w) }, ""},
		{"bfind." + u, "u32 " + u, count(func(x uint64) int { return bits.Len64(x) - 1 }), ""},
		{"bfind." + s, "u32 " + s, count(func(x uint64) int { v := sext(x, w); return bits.Len64(uint64(v^v>>63)) - 1 }), ""},
		{"bfind.shiftamt." + u, "u32 " + u, count(func(x uint64) int {
			if x == 0 {
				return -1
			}
			return w - bits.Len64(x)
		}), ""},
		{"bfe." + u, u + " " + u + " u32 u32", field(false), ""},
		{"bfe." + s, s + " " + s + " u32 u32", field(true), ""},
		{"bfi." + b, bbb + " u32 u32", func(x []uint64) uint64 {
			r, at, n := x[1], x[2]&255, x[3]&255
			for i := uint64(0); i < n && at+i < uint64(w); i++ {
				r = r&^(1<<(at+i)) | (x[0]>>i&1)<<(at+i)
			}
			return r
		}, ""},
	}...)
}

// permuted is prmt with the bytes that it takes.
func permuted(mode string, x []uint64) (r uint64) {
	v, c := x[1]<<32|x[0], x[2]
	s := int(c & 3)
	for k := range 4 {
		sel := map[string]int{"": int(c >> (4 * k) & 15), ".f4e": s + k, ".b4e": (s - k) & 7, ".rc8": s, ".ecl": max(s, k), ".ecr": min(s, k), ".rc16": s&1*2 + k&1}[mode]
		b := v >> (8 * (sel & 7)) & 255
		if sel&8 != 0 {
			b = -(b >> 7) & 255
		}
		r |= b << (8 * k)
	}
	return r
}

func others() []instruction {
	out := []instruction{
		{"mul.wide.u16", "u32 u16 u16", func(x []uint64) uint64 { return x[0] * x[1] }, ""},
		{"mul.wide.s16", "s32 s16 s16", func(x []uint64) uint64 { return uint64(uint32(sext(x[0], 16) * sext(x[1], 16))) }, ""},
		{"mul.wide.u32", "u64 u32 u32", func(x []uint64) uint64 { return x[0] * x[1] }, ""},
		{"mul.wide.s32", "s64 s32 s32", func(x []uint64) uint64 { return uint64(sext(x[0], 32) * sext(x[1], 32)) }, ""},
		{"mad.wide.u32", "u64 u32 u32 u64", func(x []uint64) uint64 { return x[0]*x[1] + x[2] }, ""},
		{"mad.wide.s32", "s64 s32 s32 s64", func(x []uint64) uint64 { return uint64(sext(x[0], 32)*sext(x[1], 32)) + x[2] }, ""},
		{"mad.hi.s32", "s32 s32 s32 s32", func(x []uint64) uint64 { return uint64(uint32(sext(x[0], 32)*sext(x[1], 32)>>32) + uint32(x[2])) }, ""},
		{"shf.l.wrap.b32", "b32 b32 b32 u32", func(x []uint64) uint64 { return (x[1]<<32 | x[0]) << (x[2] & 31) >> 32 }, ""},
		{"shf.r.wrap.b32", "b32 b32 b32 u32", func(x []uint64) uint64 { return (x[1]<<32 | x[0]) >> (x[2] & 31) & 0xffffffff }, ""},
		{"shf.l.clamp.b32", "b32 b32 b32 u32", func(x []uint64) uint64 { return (x[1]<<32 | x[0]) << min(x[2], 32) >> 32 }, ""},
		{"shf.r.clamp.b32", "b32 b32 b32 u32", func(x []uint64) uint64 { return (x[1]<<32 | x[0]) >> min(x[2], 32) & 0xffffffff }, ""},
		{"and.pred", "p p p", func(x []uint64) uint64 { return x[0] & x[1] & 1 }, ""},
		{"xor.pred", "p p p", func(x []uint64) uint64 { return (x[0] ^ x[1]) & 1 }, ""},
		{"not.pred", "p p", func(x []uint64) uint64 { return ^x[0] & 1 }, ""},
		{"setp.lt.and.s32", "p s32 s32 p", func(x []uint64) uint64 { return flag(int32(x[0]) < int32(x[1])) & x[2] & 1 }, ""},
		{"setp.gtu.or.f32", "p f32 f32 p", func(x []uint64) uint64 { return flag(!(f32(x[0]) <= f32(x[1]))) | x[2]&1 }, ""},
		{"mov.b64", "b64 b64", func(x []uint64) uint64 { return x[0] }, ""},
	}
	for _, lut := range []uint64{0x00, 0x96, 0xca, 0xe8, 0xfe, 0x1b} {
		out = append(out, instruction{"lop3.b32", "b32 b32 b32 b32", func(x []uint64) (r uint64) {
			for i := range 32 {
				r |= lut >> (x[0]>>i&1<<2 | x[1]>>i&1<<1 | x[2]>>i&1) & 1 << i
			}
			return r
		}, fmt.Sprintf(", %d", lut)})
	}
	for _, mode := range []string{"", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"} {
		out = append(out, instruction{"prmt.b32" + mode, "b32 b32 b32 b32", func(x []uint64) uint64 { return permuted(mode, x) }, ""})
	}
	return out
}

func reals() []instruction {
	two := func(f func(a, b float32) float32) func([]uint64) uint64 {
		return func(x []uint64) uint64 { return canonical(f(f32(x[0]), f32(x[1]))) }
	}
	one := func(f func(a float32) float32) func([]uint64) uint64 {
		return func(x []uint64) uint64 { return canonical(f(f32(x[0]))) }
	}
	fff, ff := "f32 f32 f32", "f32 f32"
	wide := func(f float64) uint64 {
		if f != f {
			return 0x7ff8000000000000
		}
		return math.Float64bits(f)
	}
	root := func(a float32) float32 { return float32(math.Sqrt(float64(a))) }
	return []instruction{
		{"add.f32", fff, two(func(a, b float32) float32 { return a + b }), ""},
		{"add.rn.f32", fff, two(func(a, b float32) float32 { return a + b }), ""},
		{"sub.rn.f32", fff, two(func(a, b float32) float32 { return a - b }), ""},
		{"mul.rn.f32", fff, two(func(a, b float32) float32 { return a * b }), ""},
		{"div.rn.f32", fff, two(func(a, b float32) float32 { return a / b }), ""},
		{"add.rn.ftz.f32", fff, two(func(a, b float32) float32 { return flush(flush(a) + flush(b)) }), ""},
		{"mul.rn.ftz.f32", fff, two(func(a, b float32) float32 { return flush(flush(a) * flush(b)) }), ""},
		{"fma.rn.f32", "f32 f32 f32 f32", func(x []uint64) uint64 { return canonical(fma32(f32(x[0]), f32(x[1]), f32(x[2]))) }, ""},
		{"sqrt.rn.f32", ff, one(root), ""},
		{"rcp.rn.f32", ff, one(func(a float32) float32 { return 1 / a }), ""},
		{"min.f32", fff, two(func(a, b float32) float32 { return pick(a, b, false) }), ""},
		{"max.f32", fff, two(func(a, b float32) float32 { return pick(a, b, true) }), ""},
		{"neg.f32", ff, func(x []uint64) uint64 { return x[0] ^ 1<<31 }, ""},
		{"abs.f32", ff, func(x []uint64) uint64 { return x[0] &^ (1 << 31) }, ""},
		{"copysign.f32", fff, func(x []uint64) uint64 { return x[0]&(1<<31) | x[1]&^(1<<31) }, ""},
		{"add.rn.f64", "f64 f64 f64", func(x []uint64) uint64 { return wide(f64(x[0]) + f64(x[1])) }, ""},
		{"mul.rn.f64", "f64 f64 f64", func(x []uint64) uint64 { return wide(f64(x[0]) * f64(x[1])) }, ""},
		{"fma.rn.f64", "f64 f64 f64 f64", func(x []uint64) uint64 { return wide(math.FMA(f64(x[0]), f64(x[1]), f64(x[2]))) }, ""},
	}
}

func comparisons() (out []instruction) {
	un := func(a, b float32) bool { return a != a || b != b }
	for name, f := range map[string]func(a, b float32) bool{
		"eq": func(a, b float32) bool { return a == b }, "ne": func(a, b float32) bool { return a != b && !un(a, b) }, "lt": func(a, b float32) bool { return a < b },
		"le": func(a, b float32) bool { return a <= b }, "gt": func(a, b float32) bool { return a > b }, "ge": func(a, b float32) bool { return a >= b },
		"equ": func(a, b float32) bool { return a == b || un(a, b) }, "neu": func(a, b float32) bool { return a != b }, "ltu": func(a, b float32) bool { return a < b || un(a, b) },
		"leu": func(a, b float32) bool { return a <= b || un(a, b) }, "gtu": func(a, b float32) bool { return a > b || un(a, b) }, "geu": func(a, b float32) bool { return a >= b || un(a, b) },
		"num": func(a, b float32) bool { return !un(a, b) }, "nan": un,
	} {
		out = append(out, instruction{"setp." + name + ".f32", "p f32 f32", func(x []uint64) uint64 { return flag(f(f32(x[0]), f32(x[1]))) }, ""})
	}
	return out
}

func conversions() (out []instruction) {
	rounds := map[string]func(float64) float64{"rni": math.RoundToEven, "rzi": math.Trunc, "rmi": math.Floor, "rpi": math.Ceil}
	for name, f := range rounds {
		for _, w := range []int{16, 32, 64} {
			out = append(out,
				instruction{fmt.Sprintf("cvt.%s.s%d.f32", name, w), fmt.Sprintf("s%d f32", w), func(x []uint64) uint64 { return toInteger(float64(f32(x[0])), f, w, true) }, ""},
				instruction{fmt.Sprintf("cvt.%s.u%d.f32", name, w), fmt.Sprintf("u%d f32", w), func(x []uint64) uint64 { return toInteger(float64(f32(x[0])), f, w, false) }, ""})
		}
		out = append(out, instruction{"cvt." + name + ".f32.f32", "f32 f32", func(x []uint64) uint64 { return canonical(float32(f(float64(f32(x[0]))))) }, ""})
	}
	for _, from := range []int{16, 32, 64} {
		out = append(out,
			instruction{fmt.Sprintf("cvt.rn.f32.s%d", from), fmt.Sprintf("f32 s%d", from), func(x []uint64) uint64 { return canonical(float32(sext(x[0], from))) }, ""},
			instruction{fmt.Sprintf("cvt.rn.f32.u%d", from), fmt.Sprintf("f32 u%d", from), func(x []uint64) uint64 { return canonical(float32(x[0])) }, ""})
		for _, to := range []int{16, 32, 64} {
			mask := uint64(1)<<(to-1)<<1 - 1
			out = append(out,
				instruction{fmt.Sprintf("cvt.u%d.u%d", to, from), fmt.Sprintf("u%d u%d", to, from), func(x []uint64) uint64 { return x[0] & mask }, ""},
				instruction{fmt.Sprintf("cvt.s%d.s%d", to, from), fmt.Sprintf("s%d s%d", to, from), func(x []uint64) uint64 { return uint64(sext(x[0], from)) & mask }, ""},
				instruction{fmt.Sprintf("cvt.sat.s%d.s%d", to, from), fmt.Sprintf("s%d s%d", to, from), func(x []uint64) uint64 {
					return uint64(max(min(sext(x[0], from), int64(mask>>1)), -int64(mask>>1)-1)) & mask
				}, ""},
				instruction{fmt.Sprintf("cvt.sat.u%d.s%d", to, from), fmt.Sprintf("u%d s%d", to, from), func(x []uint64) uint64 {
					return min(uint64(max(sext(x[0], from), 0)), mask)
				}, ""})
		}
	}
	return append(out,
		instruction{"cvt.u32.u8", "u32 u32", func(x []uint64) uint64 { return x[0] & 255 }, ""},
		instruction{"cvt.s32.s8", "s32 s32", func(x []uint64) uint64 { return uint64(uint32(sext(x[0], 8))) }, ""},
		instruction{"cvt.u16.s8", "u32 u32", func(x []uint64) uint64 { return uint64(uint16(sext(x[0], 8))) }, ""},
		instruction{"cvt.s8.s32", "s32 s32", func(x []uint64) uint64 { return uint64(uint32(sext(x[0], 8))) }, ""},
		instruction{"cvt.sat.f32.f32", "f32 f32", func(x []uint64) uint64 {
			f := f32(x[0])
			if !(f > 0) {
				return 0
			}
			return canonical(min(f, 1))
		}, ""},
		instruction{"cvt.f64.f32", "f64 f32", func(x []uint64) uint64 {
			f := float64(f32(x[0]))
			if f != f {
				return 0x7ff8000000000000
			}
			return math.Float64bits(f)
		}, ""},
		instruction{"cvt.rn.f32.f64", "f32 f64", func(x []uint64) uint64 { return canonical(float32(f64(x[0]))) }, ""})
}
