package deptest

// Rules are the laws of this module.
func Rules() []Rule {
	return append(importRules(), syntaxRules()...)
}

func importRules() []Rule {
	return []Rule{
		imports{From: []string{"core/..."}, Tests: true,
			To: []string{"./contracts/...", "./cmd/...", "./golden/...", "./gpu/...", "./benchmarks/..."}}.rule(
			"core-imports-nothing-above", "the training core is a library that knows neither its judges nor its hardware"),
		imports{From: []string{"core/..."}, Tests: true,
			To: []string{"./kernels/..."}, Allow: []string{"./kernels"}, AllowTests: []string{"./kernels/ref", "./kernels/null", "./kernels/cpu"}}.rule(
			"core-knows-no-backend", "core computes through the Backend interface; which backend is the caller's choice"),
		imports{From: []string{"core/shard", "core/num"},
			To: []string{"./..."}}.rule(
			"leaves", "the pure arithmetic at the bottom can be read and tested alone"),
		imports{From: []string{"kernels/..."}, Tests: true,
			To: []string{"./core/comm/...", "./core/model/..."}}.rule(
			"kernels-know-no-world", "a kernel sees tensors, never ranks or layers"),
		imports{From: []string{"contracts/..."}, Tests: true,
			To: []string{"./cmd/..."}}.rule(
			"contracts-know-no-command", "commands drive contracts; a framework's author drives them without"),
		imports{From: []string{"..."}, Except: []string{"property/..."}, Tests: true,
			To: []string{"./property/..."}}.rule(
			"property-is-a-sink", "property holds suites; what others need of it belongs elsewhere"),
		imports{From: []string{"..."}, Except: []string{"property/..."}, Tests: true,
			To: []string{"github.com/onsi/ginkgo/...", "github.com/onsi/gomega/...", "pgregory.net/rapid/..."}}.rule(
			"one-test-style", "plain tests everywhere but in the property suites"),
		imports{From: []string{"..."}, Except: []string{"gpu/..."}, Tests: true,
			To: []string{"gorgonia.org/cu/...", "github.com/NVIDIA/go-nvml/...", "C"}}.rule(
			"drivers-stay-in-gpu", "gorgonia.org/cu ends the process on import where there is no driver, and cgo needs a compiler"),
	}
}

func syntaxRules() []Rule {
	clauses := []string{"contracts/..."}
	// What is below contracts but no clause: the driver, the makers of faults, and
	// the drills, which run communicators.
	support := []string{"contracts", "contracts/fault/...", "contracts/contracttest/...", "contracts/collective/suite/..."}
	return []Rule{
		each("clauses-judge-histories", "a clause is a pure function over histories: of package comm it may name operations, algorithms and errors, nothing more",
			onlyNames(clauses, support)),
		packageDocs("package-docs", "each package says what it is for"),
		each("no-init", "nothing registers itself or runs on import", noInit),
		each("no-exit", "only package main ends the process", noExit),
		each("portable-math", "package math differs between architectures and GOAMD64 levels but for exact functions", portableMath(map[string]string{
			"kernels/ref.exp": "the float64 instance is an oracle, not part of the canonical arithmetic",
			"kernels/ref.log": "the float64 instance is an oracle, not part of the canonical arithmetic",
			"kernels/bound":   "bounds are float64 values with a margin for the error of package math",
		})),
	}
}
