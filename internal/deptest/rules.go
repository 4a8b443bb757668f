package deptest

// Rules are the laws of this module.
func Rules() []Rule {
	return append(importRules(), syntaxRules()...)
}

func importRules() []Rule {
	return []Rule{
		tableRule(Table()),
		closure{From: judges(), Never: []string{"core/{train,launch,comm/...}", "kernels/..."}, But: []string{"kernels", "kernels/drill"}}.rule(
			"judging-links-no-training", "whoever judges histories of any trainer needs neither this one nor a communicator nor a backend"),
		listed(judges(), judgesListed, "a package of clauses that the rule above does not know of may link anything"),
		imports{From: []string{"core/..."}, Only: tests,
			To: []string{"./contracts/...", "./cmd/...", "./golden/...", "./gpu/...", "./benchmarks/..."}}.rule(
			"core-is-tested-alone", "the training core is a library that knows neither its judges nor its hardware"),
		imports{From: []string{"core/..."}, Only: tests,
			To: []string{"./kernels/..."}, Allow: []string{"./kernels", "./kernels/ref", "./kernels/null", "./kernels/cpu"}}.rule(
			"core-is-tested-on-few-backends", "core computes through the Backend interface; which backend is the caller's choice"),
		imports{From: []string{"kernels/..."}, Only: tests,
			To: []string{"./core/comm/...", "./core/model/..."}}.rule(
			"kernels-are-tested-alone", "a kernel sees tensors, never ranks or layers"),
		imports{From: []string{"contracts/..."}, Only: tests,
			To: []string{"./cmd/..."}}.rule(
			"contracts-are-tested-without-commands", "commands drive contracts; a framework's author drives them without"),
		imports{From: []string{"..."}, Except: []string{"property/..."}, Only: tests,
			To: []string{"./property/..."}}.rule(
			"property-is-a-sink", "property holds suites; what others need of it belongs elsewhere"),
		imports{From: []string{"..."}, Except: []string{"property/..."},
			To: []string{"github.com/onsi/ginkgo/...", "github.com/onsi/gomega/...", "pgregory.net/rapid/..."}}.rule(
			"one-test-style", "plain tests everywhere but in the property suites"),
		imports{From: []string{"..."}, Except: []string{"gpu/..."},
			To: []string{"gorgonia.org/cu/...", "github.com/NVIDIA/go-nvml/..."}}.rule(
			"drivers-stay-in-gpu", "gorgonia.org/cu ends the process on import where there is no driver"),
		imports{From: []string{"..."}, Except: []string{"gpu/internal/drv", "gpu/sim/internal/harness", "core/comm/mpi"},
			To: []string{"C"}}.rule(
			"cgo-has-its-places", "cgo needs a C compiler and the headers of what it calls: one package for each of these"),
	}
}

// judgesListed is the name of the rule that no package is missing in judges.
const judgesListed = "judges-are-listed"

// judges are the packages that know histories only.
func judges() []string {
	return []string{"contracts/{contract,evidence,formulas,independent,sharding,bounded,compare,ckpt,collective,data,ddp,det,kern,norm,order,pipe,tp,zero}"}
}

func syntaxRules() []Rule {
	return []Rule{
		packageDocs("package-docs", "each package says what it is for"),
		each("cgo-is-tagged", "a plain build needs Go and nothing else, wherever there is a C compiler", cgoIsTagged("mpi", "cuda", "sim")),
		each("no-init", "nothing registers itself or runs on import", noInit),
		each("no-exit", "only package main ends the process", noExit),
		each("portable-math", "package math differs between architectures and GOAMD64 levels but for exact functions", portableMath(map[string]string{
			"kernels/ref.exp":       "the float64 instance is an oracle, not part of the canonical arithmetic",
			"kernels/ref.log":       "the float64 instance is an oracle, not part of the canonical arithmetic",
			"contracts/independent": "values have bounds with a margin for the error of package math",
			"kernels/bound":         "bounds are float64 values with a margin for the error of package math",
		})),
	}
}
