// Command fused lists the fused multiply-add instructions that the Go compiler
// puts into this module's packages, by the function whose source they come
// from (also where that is inlined into another), and fails where a function
// has one that is not on the list below. Written products round once before
// they are added; the compiler may fuse x*y + z into one rounding, and does so
// on arm64 and on amd64 from GOAMD64=v3 on, unless the product is converted:
// float32(x*y) + z.
//
// Assembly is not listed: conformance tests compare it with the definition.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-ml/lockstep/internal/source"
)

// allowed names the functions that may have fused instructions, and why.
func allowed() map[string]string {
	return map[string]string{
		"kernels/ref.fma":       "the fma helper itself: math.FMA in the float64 oracle",
		"kernels/ref.dot64":     "chain of the float64 oracle, written with math.FMA",
		"kernels/ref.axpy64":    "chain of the float64 oracle, written with math.FMA",
		"contracts/independent": "every function: only its bounds are compared, which have room for a rounding less",
	}
}

func main() {
	arch := flag.String("arch", "amd64", "architecture to compile for: amd64 (at GOAMD64=v3) or arm64")
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	ok, err := check(*arch)
	if err != nil {
		fmt.Fprintln(os.Stderr, "fused:", err)
		os.Exit(4)
	}
	if !ok {
		os.Exit(1)
	}
}

// check compiles the module and judges the listing.
func check(arch string) (bool, error) {
	root, err := source.Root()
	if err != nil {
		return false, err
	}
	files, err := source.Load(root)
	if err != nil {
		return false, err
	}
	// The go command replays a cached listing, so this is cheap when nothing
	// has changed.
	cmd := exec.Command("go", "build", "-gcflags="+source.Module+"/...=-S", "./...")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOARCH="+arch, "GOAMD64=v3", "CGO_ENABLED=0")
	listing, err := cmd.StderrPipe()
	if err != nil {
		return false, err
	}
	if err := cmd.Start(); err != nil {
		return false, err
	}
	found, functions, messages, err := read(listing)
	if err := errors.Join(err, cmd.Wait()); err != nil {
		return false, fmt.Errorf("go build: %w\n%s", err, strings.Join(messages, "\n"))
	}
	if functions == 0 {
		return false, fmt.Errorf("the compiler listed no function")
	}
	fmt.Printf("%s: %d functions compiled\n", arch, functions)
	return judge(os.Stdout, byFunction(root, files, found), allowed()), nil
}

// place is a line of source that got a fused instruction.
type place struct {
	file string
	line int
}

// fusedLine matches an instruction of the compiler's listing: position of the
// innermost inlined call, then a fused mnemonic of amd64 or arm64.
func fusedLine() *regexp.Regexp {
	return regexp.MustCompile(`\(([^()]+):(\d+)\)\t(VFN?M(?:ADD|SUB)\w*|FN?M(?:ADD|SUB)[SD])\t`)
}

// read collects fused instructions per place and counts listed functions; lines
// that are no listing are messages of the go command.
func read(r io.Reader) (found map[place]int, functions int, messages []string, err error) {
	found = map[place]int{}
	pattern := fusedLine()
	in := bufio.NewScanner(r)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		line := in.Text()
		switch {
		case strings.Contains(line, " STEXT "):
			functions++
		case line != "" && line[0] != '\t' && line[0] != '#' && !strings.Contains(line, " S") && len(messages) < 50:
			messages = append(messages, line)
		}
		if m := pattern.FindStringSubmatch(line); m != nil {
			n, _ := strconv.Atoi(m[2])
			found[place{m[1], n}]++
		}
	}
	return found, functions, messages, in.Err()
}

// use is one function with fused instructions.
type use struct {
	function string // "dir.Func"
	places   []string
	count    int
}

// byFunction finds the source functions of the places. Places outside the
// module keep their file name: an inlined function of the standard library.
func byFunction(root string, files []*source.File, found map[place]int) map[string]*use {
	out := map[string]*use{}
	for p, n := range found {
		name, at := p.file, fmt.Sprintf("%s:%d", p.file, p.line)
		if rel, err := filepath.Rel(root, p.file); err == nil && filepath.IsLocal(rel) {
			rel = filepath.ToSlash(rel)
			at = fmt.Sprintf("%s:%d", rel, p.line)
			if i := slices.IndexFunc(files, func(f *source.File) bool { return f.Name == rel }); i >= 0 {
				name = files[i].Dir + "." + files[i].FuncAt(p.line)
			}
		}
		u := out[name]
		if u == nil {
			u = &use{function: name}
			out[name] = u
		}
		u.count += n
		u.places = append(u.places, at)
	}
	return out
}

// directory is that of "dir/pkg.Type.Func".
func directory(function string) string {
	pkg, _, _ := strings.Cut(path.Base(function), ".")
	return path.Join(path.Dir(function), pkg)
}

// judge prints every function with fused instructions and reports whether all
// are allowed.
func judge(w io.Writer, uses map[string]*use, allowed map[string]string) (ok bool) {
	ok = true
	names := make([]string, 0, len(uses))
	for n := range uses {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		u := uses[n]
		slices.Sort(u.places)
		reason, good := allowed[n]
		if !good {
			reason, good = allowed[directory(n)]
		}
		if !good {
			ok, reason = false, "NOT ALLOWED: write float32(x*y) + z or float64(x*y) + z"
		}
		fmt.Fprintf(w, "%s: %d fused at %s: %s\n", n, u.count, strings.Join(u.places, ", "), reason)
	}
	return ok
}
