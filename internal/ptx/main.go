// Command ptx makes the PTX of kernels/cuda from its sources by clang-19, which is what
// ships, and proves by NVIDIA's tools, which never do, that their assemblers take it.
//
//	go run ./internal/ptx -write            make the PTX anew
//	go run ./internal/ptx -check            the PTX is what clang makes
//	go run ./internal/ptx -assemble DIR,..  ptxas takes all of it, and what kernels need is what was reviewed
//	go run ./internal/ptx -nvcc DIR OUT     nvcc compiles the sources, to PTX in OUT
//	go run ./internal/ptx -header DIR       the constants and types of our cuda.h are NVIDIA's
//
// A DIR is a virtual environment of Python that has NVIDIA's packages: make test-ptx makes
// them. What the PTX must hold without any tool is in the tests of this package.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/lockstep-ml/lockstep/internal/source"
)

// kernelDir is where the sources of kernels lie; their PTX is below.
const kernelDir = "kernels/cuda"

func main() {
	write := flag.Bool("write", false, "make the PTX anew")
	check := flag.Bool("check", false, "compare the PTX with what clang makes")
	assemble := flag.String("assemble", "", "directories of toolkits, with commas: assemble all PTX by each ptxas")
	update := flag.Bool("update", false, "with -assemble: record what kernels need, to be reviewed")
	nvcc := flag.String("nvcc", "", "directory of a toolkit: compile the sources into the directory that is the argument")
	header := flag.String("header", "", "directory of a toolkit: compare its cuda.h with ours")
	flag.Parse()
	root, err := source.Root()
	if err == nil {
		err = os.Chdir(root)
	}
	switch {
	case err != nil:
	case *write:
		err = writeAll()
	case *check:
		err = checkAll()
	case *assemble != "":
		err = resources(strings.Split(*assemble, ","), *update)
	case *nvcc != "" && flag.NArg() == 1:
		err = compileByNVCC(*nvcc, flag.Arg(0))
	case *header != "":
		err = compareHeaders(*header)
	default:
		flag.Usage()
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "ptx:", err)
		os.Exit(1)
	}
}

// sources are the files that become PTX.
func sources() ([]string, error) {
	files, err := filepath.Glob(filepath.Join(kernelDir, "*.cu"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("no .cu file in %s", kernelDir)
	}
	return files, err
}

// ptxOf is the file of the PTX of a source.
func ptxOf(cu string) string {
	return filepath.Join(kernelDir, "ptx", strings.TrimSuffix(filepath.Base(cu), ".cu")+".ptx")
}

// generated gives the PTX of every source, and the manifest, by name of their files.
func generated() (map[string][]byte, error) {
	files, err := sources()
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for _, cu := range files {
		text, err := byClang(cu)
		if err != nil {
			return nil, err
		}
		out[ptxOf(cu)] = text
	}
	out[manifestFile()], err = manifest()
	return out, err
}

func writeAll() error {
	made, err := generated()
	if err != nil {
		return err
	}
	stale, err := extra(made)
	if err != nil {
		return err
	}
	for _, name := range stale {
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	for name, text := range made {
		if err := os.WriteFile(name, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func checkAll() error {
	made, err := generated()
	if err != nil {
		return err
	}
	stale, err := extra(made)
	errs := []error{err}
	for _, name := range stale {
		errs = append(errs, fmt.Errorf("%s: there is no source of it", name))
	}
	for name, text := range made {
		if is, err := os.ReadFile(name); err != nil || !bytes.Equal(is, text) {
			errs = append(errs, fmt.Errorf("%s: is not what clang makes of the source: run make ptx (%w)", name, errors.Join(err, errDiffers)))
		}
	}
	return errors.Join(errs...)
}

var errDiffers = errors.New("the texts differ")

// extra lists PTX that was not made.
func extra(made map[string][]byte) (names []string, err error) {
	files, err := filepath.Glob(filepath.Join(kernelDir, "ptx", "*.ptx"))
	for _, name := range files {
		if made[name] == nil {
			names = append(names, name)
		}
	}
	return names, err
}
