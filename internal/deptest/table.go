package deptest

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/internal/source"
)

// Row says what the packages of some trees may import of this module, in code
// that is not tests.
type Row struct {
	// Trees are patterns of source.In, in which {a,b} stands for a and for b. A
	// package is governed by the first row that has it.
	Trees []string
	// May are patterns too; ".." is the directory above the importing one.
	May []string
}

// Table is the whole of the module: a package that no row governs is an error.
// ARCHITECTURE.md quotes it.
func Table() []Row {
	const clauses = "contracts/{ckpt,ddp,det,norm,order,pipe,tp,zero}"
	return []Row{
		{[]string{"kernels", "core/{files,names,num,schedule,shard}", "contracts/independent"}, nil},
		{[]string{"kernels/cpu/internal/..."}, []string{"kernels/cpu/internal/gen/emit"}},
		{[]string{"kernels/kerneltest"}, []string{"kernels", "kernels/{drill,null,ref}"}},
		{[]string{"kernels/cuda"}, []string{"gpu", "kernels", "kernels/ref"}},
		{[]string{"kernels/..."}, []string{"kernels", "kernels/ref", "internal/guard"}},

		{[]string{"gpu/internal/..."}, nil},
		{[]string{"gpu"}, []string{"gpu/internal/drv"}},
		{[]string{"gpu/sim/..."}, nil},
		{[]string{"gpu/mon"}, []string{"gpu"}},
		{[]string{"gpu/mon/montest"}, []string{"gpu", "gpu/mon"}},

		{[]string{"core/data"}, []string{"core/{files,shard}"}},
		{[]string{"core/trace"}, []string{"kernels", "core/{files,names}"}},
		{[]string{"core/trace/tracetest"}, []string{"core/trace"}},
		{[]string{"core/model"}, []string{"kernels", "core/{num,shard}"}},
		{[]string{"core/optim"}, []string{"kernels", "core/{num,trace}"}},
		{[]string{"core/plan"}, []string{"core/{model,names,shard}"}},
		{[]string{"core/spec"}, []string{"kernels", "core/{data,model,optim,plan,trace}"}},
		{[]string{"core/drill"}, []string{"kernels", "core/{names,shard}"}},
		{[]string{"core/comm/internal/protocol"}, []string{"kernels", "core/{names,shard}"}},
		{[]string{"core/waits"}, []string{"core/names"}},
		{[]string{"core/comm/mpi"}, []string{"kernels", "core/comm/engine"}},
		{[]string{"core/comm/..."}, []string{"kernels", "core/{comm,comm/engine,comm/internal/protocol,comm/wire,drill,names,shard,waits}", "internal/guard"}},
		{[]string{"core/mesh"}, []string{"core/{comm,names}"}},
		{[]string{"core/parallel"}, []string{"kernels", "core/{comm,data,model,names,plan,shard,trace}"}},
		{[]string{"core/checkpoint"}, []string{"kernels", "core/{files,shard,trace}"}},
		{[]string{"core/schedule/simulator"}, []string{"core/schedule"}},
		{[]string{"core/dryrun"}, []string{"core/{comm,model,names,optim,parallel,plan,schedule,schedule/simulator,shard,spec}"}},
		{[]string{"core/train"}, []string{"kernels", "core/{checkpoint,comm,data,mesh,model,names,optim,parallel,schedule,shard,spec,trace}", "internal/guard"}},
		{[]string{"core/launch/procs"}, []string{"kernels", "core/{comm,comm/engine,comm/shm,comm/tcp,comm/wire,launch,trace,train}", "internal/guard"}},
		{[]string{"core/launch"}, []string{"kernels", "core/{comm,data,names,spec,trace,train}", "internal/guard"}},

		{[]string{"contracts/contract"}, []string{"core/{plan,spec,trace}", "internal/guard"}},
		{[]string{"contracts/sharding"}, []string{"core/{model,names,plan,shard}"}},
		{[]string{"contracts/evidence"}, []string{"kernels", "core/{model,names,shard,spec,trace}", "contracts/contract"}},
		{[]string{"contracts/{bounded,compare}"}, []string{"core/{model,plan,spec,trace}", "contracts/{bounded,contract,evidence}"}},
		{[]string{"contracts/collective"}, []string{"kernels", "core/{drill,names,trace}", "contracts/contract"}},
		{[]string{"contracts/kern"}, []string{"kernels", "kernels/drill", "core/trace", "contracts/contract", "golden"}},
		{[]string{clauses}, []string{"kernels", "core/{checkpoint,model,names,plan,schedule,schedule/simulator,shard,spec,trace}",
			"contracts/{bounded,compare,contract,evidence,independent,sharding}", "golden"}},
		{[]string{"contracts/data"}, []string{"core/trace", "contracts/{contract,evidence,independent}"}},
		{[]string{"contracts/formulas"}, []string{"core/{plan,spec,trace}", "contracts/{contract,evidence,independent}"}},
		{[]string{"contracts/oracle"}, []string{"kernels", "kernels/{bound,ref}", "core/{data,model,optim,shard,spec,trace}", "contracts/contract"}},
		{[]string{"contracts/fault"}, []string{"kernels", "core/...", "contracts/{contract,suite}"}},
		{[]string{"contracts/interleave"}, []string{"kernels", "core/{comm,launch,names,trace,waits}", "internal/guard"}},
		{[]string{"contracts/suite"}, []string{"kernels", "core/{checkpoint,data,dryrun,launch,plan,spec,trace,train}", "contracts/{compare,contract}", "internal/guard"}},
		{[]string{"contracts/ckpt/suite"}, []string{"..", "kernels", "core/...", "contracts/{compare,contract,fault,independent,suite}", "golden"}},
		{[]string{"contracts/kern/suite"}, []string{"..", "kernels", "kernels/{drill,ref}", "core/{comm,names,trace}", "contracts/{contract,fault,suite}", "golden", "internal/guard"}},
		{[]string{"contracts/ddp/suite"}, []string{"..", "kernels", "core/...", "contracts/{compare,contract,fault,interleave,suite}"}},
		{[]string{"contracts/{collective,data,det,formulas,norm,pipe,tp,zero}/suite"}, []string{"..", "kernels", "core/...", "contracts/{compare,contract,fault,suite}", "golden"}},
		{[]string{"contracts/order/suite"}, []string{"..", "kernels", "core/...", "contracts/{contract,fault,interleave,suite}"}},
		{[]string{"contracts/report"}, []string{"kernels", "core/{names,trace}", "contracts/contract"}},
		{[]string{"contracts/contracttest"}, []string{"kernels", "kernels/cpu", "core/{data,launch,spec,trace,trace/tracetest}", "contracts/{contract,oracle,suite}", "internal/race"}},
		{[]string{"contracts/contracttest/transcript"}, []string{"kernels", "core/{drill,names,plan,spec,trace}", "contracts/contract"}},
		{[]string{"contracts"}, []string{"internal/guard", "core/{data,files,launch,names,plan,spec,trace}", "golden", "contracts/{compare,contract,fault,independent,report,suite}",
			"contracts/{ckpt,collective,data,ddp,det,formulas,kern,norm,order,pipe,tp,zero}/suite"}},

		{[]string{"golden"}, []string{"kernels", "core/{model,optim,plan,spec}"}},
		{[]string{"benchmarks/..."}, []string{"kernels", "kernels/cpu", "core/...", "benchmarks/{step,turns}"}},
		{[]string{"property/..."}, []string{"kernels", "kernels/ref", "core/..."}},
		{[]string{"cmd/internal/..."}, []string{"gpu", "gpu/mon", "kernels", "kernels/{cpu,cuda,ref}", "core/{comm,comm/engine,comm/mpi,comm/shm,comm/tcp,data,files,launch/procs,model,names,optim,plan,spec,trace}", "internal/guard"}},
		{[]string{"cmd/..."}, []string{"core/...", "contracts", "contracts/{contract,oracle,report,suite}", "cmd/internal/cli"}},
		{[]string{"examples/..."}, nil},
		{[]string{"internal/portable"}, []string{"kernels", "kernels/cpu", "core/{data,spec}", "golden", "internal/source"}},
		{[]string{"internal/..."}, []string{"internal/source"}},
	}
}

// unsettled are packages that the table may name although the module does not
// have them, or no longer: those that are being moved.
func unsettled() []string { return nil }

// tableRule makes a Rule of the table.
func tableRule(table []Row) Rule {
	return Rule{"import-table", "packages depend downwards only, so that each can be read, and replaced, with what stands below it", func(r *Rule, files []*source.File) (out []Violation) {
		for _, f := range files {
			row := rowOf(table, f.Dir)
			if row < 0 {
				out = append(out, r.at(f.Name, "belongs to no row of the import table"))
				continue
			}
			if f.Test() {
				continue
			}
			for p, spec := range f.Imports() {
				if dir, own := ofModule(p); own && !table[row].allows(f.Dir, dir) {
					out = append(out, r.at(f.At(spec), "imports "+dir))
				}
			}
		}
		return out
	}}
}

// rowOf is the row that governs a directory, -1 where none does.
func rowOf(table []Row, dir string) int {
	return slices.IndexFunc(table, func(r Row) bool { return matches(dir, expand(r.Trees)) })
}

// allows reports whether a package that the row governs may import another.
func (r Row) allows(from, to string) bool {
	return matches(to, expand(r.May)) || slices.Contains(r.May, "..") && to == path.Dir(from)
}

// ofModule is the directory of an import path of this module.
func ofModule(p string) (dir string, ok bool) {
	return strings.CutPrefix(local(p), "./")
}

// expand writes patterns with braces out.
func expand(patterns []string) []string {
	var out []string
	for _, p := range patterns {
		before, rest, ok := strings.Cut(p, "{")
		if !ok {
			out = append(out, p)
			continue
		}
		list, after, _ := strings.Cut(rest, "}")
		for word := range strings.SplitSeq(list, ",") {
			out = append(out, before+word+after)
		}
	}
	return out
}

// Idle lists what the table has and the files do not: trees without a package,
// and permissions that no package of their row uses.
func Idle(table []Row, files []*source.File) []string {
	used := map[string]bool{}
	for _, f := range files {
		i := rowOf(table, f.Dir)
		if i < 0 {
			continue
		}
		note := func(patterns []string, dir string) {
			for _, p := range expand(patterns) {
				if source.In(dir, p) {
					used[fmt.Sprint(i, p)] = true
				}
			}
		}
		note(table[i].Trees, f.Dir)
		for p := range f.Imports() {
			if dir, own := ofModule(p); own && !f.Test() {
				note(table[i].May, dir)
				if dir == path.Dir(f.Dir) {
					note([]string{".."}, "..")
				}
			}
		}
	}
	var out []string
	for i, r := range table {
		if len(r.Trees) == 1 && slices.Contains(unsettled(), r.Trees[0]) {
			continue
		}
		for _, p := range expand(slices.Concat(r.Trees, r.May)) {
			if !used[fmt.Sprint(i, p)] && !slices.Contains(unsettled(), p) {
				out = append(out, fmt.Sprintf("%s in the row of %s", p, strings.Join(r.Trees, ", ")))
			}
		}
	}
	return out
}

// Render writes the table as a block of Markdown.
func Render(table []Row) string {
	var b strings.Builder
	for _, r := range table {
		may := strings.Join(r.May, ", ")
		if len(r.May) == 0 {
			may = "nothing"
		}
		line := "    " + strings.Join(r.Trees, ", ") + " ->"
		for word := range strings.FieldsSeq(may) {
			if len(line)+1+len(word) > 118 {
				b.WriteString(line + "\n")
				line = "       "
			}
			line += " " + word
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}
