package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/lockstep-ml/lockstep/internal/source"
)

// atRoot lets a test run where the command does.
func atRoot(t *testing.T) {
	root, err := source.Root()
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(root)
}

// TestShipped: all PTX that ships keeps the rules, and none of it is older than its
// sources: both without the compiler that made it.
func TestShipped(t *testing.T) {
	atRoot(t)
	files, err := sources()
	if err != nil {
		t.Fatal(err)
	}
	for _, cu := range files {
		text, err := os.ReadFile(ptxOf(cu))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, v := range append(violations(string(text)), narrowProducts(string(text))...) {
			t.Errorf("%s: %s", ptxOf(cu), v)
		}
	}
	want, err := manifest()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(manifestFile()); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not of these sources: run make ptx (%v)", manifestFile(), err)
	}
	ptx, err := filepath.Glob(filepath.Join(kernelDir, "ptx", "*.ptx"))
	if err != nil || len(ptx) != len(files) {
		t.Errorf("%d files of PTX of %d sources (%v)", len(ptx), len(files), err)
	}
}

// TestRules: each rule catches what it is for, and lets through what kernels are made of.
func TestRules(t *testing.T) {
	const head = "//\n.version 8.0\n.target sm_80\n"
	for _, bad := range []string{
		"\tadd.f32 \t%f3, %f1, %f2;", "\t@%p1 mul.f32 %f1, %f2, %f3;", "\tadd.ftz.f32 %f1, %f2, %f3;", "\tsub.f32 %f1, %f2, %f3;",
		"\tfma.rn.ftz.f32 %f1, %f2, %f3, %f4;", "\tdiv.full.f32 %f1, %f2, %f3;", "\tsqrt.approx.f32 %f1, %f2;", "\tadd.rz.f32 %f1, %f2, %f3;",
		".extern .func (.param .b32 r) expf", "\tcall.uni (r), expf, (p);", "\tfma.rn.f64 %fd1, %fd2, %fd3, %fd4;",
		"\tmad.f32 %f1, %f2, %f3, %f4;", "\tadd.sat.f32 %f1, %f2, %f3;", "\tmul.f64 %fd1, %fd2, %fd3;", "\tsqrt.rn.f64 %fd1, %fd2;", "\tdiv.rn.f64 %fd1, %fd2, %fd3;", "\tadd.f64 %fd1, %fd2, %fd3;", "\tsub.rn.f64 %fd1, %fd2, %fd3;", "\tadd.rm.f32 %f1, %f2, %f3;", "\tadd.rp.f32 %f1, %f2, %f3;",
	} {
		if len(violations(head+bad)) == 0 {
			t.Errorf("%q was let through", bad)
		}
	}
	for _, good := range []string{
		"\tadd.rn.f32 \t%f3, %f1, %f2;", "\tfma.rn.f32 %f1, %f2, %f3, %f4;", "\tdiv.rn.f32 %f1, %f2, %f3;", "\tadd.s32 %r1, %r2, %r3;",
		"\tcvt.rzi.s32.f32 %r1, %f1;", "// add.f32", "\tst.global.f32 [%rd1], %f1;",
	} {
		if v := violations(head + good); len(v) > 0 {
			t.Errorf("%q: %q", good, v)
		}
	}
	if v := violations("\n.version 7.0\n.target sm_90a\n"); len(v) != 2 {
		t.Errorf("another version and target: %q", v)
	}
}
