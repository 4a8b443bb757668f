//go:build cuda

package gpu

import (
	"slices"
	"strings"
	"testing"
)

// TestEntries: the sizes of parameters, as compilers declare them.
func TestEntries(t *testing.T) {
	got, err := entriesOf(`
.version 8.0
.target sm_80
.address_size 64
	// .visible .entry not_this(.param .u32 a)
/* .entry nor_this(
	.param .u64 a) */
.visible .entry one(
	.param .u64 one_param_0,
	.param .u32 one_param_1, // a comment, with a comma
	.param .u64 one_param_2
)
.maxntid 256, 1, 1
{
	mov.u32 %r1, %tid.x; // a / b
	ret;
}
.entry none()
{ ret; }
.entry bare
{ ret; }
.visible .entry bytes(.param .u8 a, .param .align 4 .b8 b[24], .param .f32 c, .param .align 64 .b8 d[128])
{ ret; }
.visible .entry pointers(.param .u64 .ptr .global .align 1 a, .param .u64 .ptr .align 16 b, .param .f64 c, .param .b16 d)
{ ret; }
.entry wide() .minnctapersm 2 .maxntid 8,16, 4 /* of threads */ .maxnreg 64 { .maxntid 7; ret; }
.visible .func (.param .b32 r) helper(.param .b64 x) { ret; }
`)
	want := []entry{{"one", 24, 256}, {"none", 0, 0}, {"bare", 0, 0}, {"bytes", 192, 0}, {"pointers", 26, 0}, {"wide", 0, 512}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v\nwant %v", got, err, want)
	}
	for _, bad := range []string{".entry f(.param .u64)", ".entry f(.reg .u64 a)", ".entry f(.param .align 0 .b8 a[4])", ".entry f(.param .b8 a[0])", ".entry f(.param .u64 a .u64 b)",
		".entry f(.param .b8 a[32765])", ".entry f(.param .align 99999999999999999999 .b8 a[9])", ".entry f(.param .b64 a[4611686018427387904])"} {
		if got, err := entriesOf(bad); err == nil || !strings.Contains(err.Error(), "kernel f: parameter") {
			t.Errorf("%s: %v, %v", bad, got, err)
		}
	}
}

// TestNoEntries: texts whose kernels are not all known for what they are.
func TestNoEntries(t *testing.T) {
	for text, want := range map[string]string{
		".entry":                                       "1 of 1 kernels are not understood",
		".entry f() {} .entry (.param .u64 a) {":       "1 of 2 kernels are not understood",
		".entry f() {} .entry f() {}":                  "kernel f: is there twice",
		".entry f(.param .b8 a[32760], .param .u64 b)": "kernel f: more than 32764 bytes of parameters",
		".entry f() .maxntid 0 {":                      "kernel f: .maxntid 0: no block has so many threads",
		".entry f() .maxntid 1025, 1 {":                "kernel f: .maxntid 1025, 1: no block has so many threads",
		".entry f() .maxntid 32, 33, 1 {":              "kernel f: .maxntid 32, 33, 1: no block has so many threads",
		".entry f() .maxntid 99999999999999999999 {":   "kernel f: .maxntid 99999999999999999999: no block has so many threads",
	} {
		if got, err := entriesOf(text); err == nil || err.Error() != want {
			t.Errorf("%s: %v, %v; want %s", text, got, err, want)
		}
	}
}

// TestParams: each parameter is aligned to its size.
func TestParams(t *testing.T) {
	var p Params
	b := &Buffer{addr: 0x1122334455667788}
	p.U32(1).U64(2).F32(1).Pointer(b, 0x10).I32(-1).F64(1).Pointer(nil, 5).Struct(1, []byte{9}).Struct(4, []byte{7, 8}).U32(3)
	want := "\x01\x00\x00\x00\x00\x00\x00\x00" + "\x02\x00\x00\x00\x00\x00\x00\x00" + "\x00\x00\x80\x3f\x00\x00\x00\x00" + "\x98\x77\x66\x55\x44\x33\x22\x11" +
		"\xff\xff\xff\xff\x00\x00\x00\x00" + "\x00\x00\x00\x00\x00\x00\xf0\x3f" + "\x00\x00\x00\x00\x00\x00\x00\x00" + "\x09\x00\x00\x00\x07\x08\x00\x00" + "\x03\x00\x00\x00"
	if got := string(p.bytes); got != want {
		t.Errorf("got  % x\nwant % x", got, want)
	}
	if len(p.Reset().bytes) != 0 {
		t.Error("Reset left something")
	}
}

// FuzzEntries: whatever the text, there is an answer.
func FuzzEntries(f *testing.F) {
	f.Add(store)
	f.Add(".entry f(.param .align 99999999999999999999 .b8 a[99999999999999999999])/*")
	f.Add("/")
	f.Fuzz(func(t *testing.T, s string) {
		got, err := entriesOf(s)
		for _, e := range got {
			if e.params < 0 || e.params > mostParameters || e.threads < 0 || e.threads > mostThreads || e.name == "" || err != nil {
				t.Errorf("%q: %v, %v", s, got, err)
			}
		}
	})
}
