package main

import "testing"

// TestNarrowProducts: an index that is multiplied in 32 bits is found, however it becomes an
// address, and what is multiplied in 64, or is less than a dimension, is not.
func TestNarrowProducts(t *testing.T) {
	const head = ".visible .entry k(\n"
	for _, bad := range []string{
		"\tmul.lo.s32 \t%r3, %r1, %r2;\n\tmul.wide.s32 \t%rd1, %r3, 4;",
		"\tmad.lo.s32 \t%r4, %r1, %r2, %r3;\n\tcvt.s64.s32 \t%rd1, %r4;",
		"\tmul.lo.s32 %r3, %r1, %r2;\n\tadd.s32 %r4, %r3, %r9;\n\tmul.wide.s32 %rd1, %r4, 4;",
		"\tmul.lo.s32 %r3, %r1, %r2;\n\tshl.b32 %r4, %r3, 2;\n\tcvt.u64.u32 %rd1, %r4;",
		"\tmul.lo.s32 %r3, %r1, %r2;\n\tmov.u32 %r5, %r3;\n\t@%p1 mad.wide.s32 %rd1, %r5, 4, %rd2;",
		"\tmul.lo.s32 %r3, %r1, %r2;\n\tmad.lo.s32 %r5, %r6, 4, %r3;\n\tcvt.s64.s32 %rd1, %r5;",
		"\tmov.u32 %r1, %ctaid.x;\n\tmul.lo.s32 %r3, %r1, %r2;\n\tcvt.s64.s32 %rd1, %r3;",
	} {
		if len(narrowProducts(head+bad+"\n")) != 1 {
			t.Errorf("%q was let through", bad)
		}
	}
	for _, good := range []string{
		"\tmul.lo.s64 \t%rd3, %rd1, %rd2;\n\tshl.b64 \t%rd4, %rd3, 2;",
		"\tmul.wide.s32 \t%rd1, %r1, %r2;",
		"\tmul.lo.s32 %r3, %r1, 128;\n\tmul.wide.s32 %rd1, %r3, 4;",
		"\tmov.u32 %r1, %ctaid.x;\n\tmov.u32 %r2, %ntid.x;\n\tmad.lo.s32 %r4, %r1, %r2, %r3;\n\tmul.wide.s32 %rd1, %r4, 4;",
		"\tmul.lo.s32 %r3, %r1, %r2;\n\tsub.s32 %r4, %r9, %r3;\n\tmul.wide.s32 %rd1, %r4, 4;",
		"\tmul.lo.s32 %r3, %r1, %r2;\n\tmov.u32 %r3, %r9;\n\tcvt.s64.s32 %rd1, %r3;",
		"\tmul.lo.s32 %r3, %r1, %r2;\n" + head + "\tcvt.s64.s32 %rd1, %r3;",
	} {
		if v := narrowProducts(head + good + "\n"); len(v) > 0 {
			t.Errorf("%q: %q", good, v)
		}
	}
}
