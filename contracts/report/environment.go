package report

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Environment says where and on what a report was made. Empty fields are
// unknown or do not apply.
type Environment struct {
	Version string `json:"version"` // of the module
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
	Level   string `json:"goamd64,omitempty"` // instruction set level compiled for
	CPU     string `json:"cpu,omitempty"`     // model name
	Cores   int    `json:"cores"`             // logical, usable by this process

	Commit  string `json:"commit,omitempty"`  // that the program was built from; with "+" where files had changed
	Host    string `json:"host,omitempty"`    // name of the machine
	Date    string `json:"date,omitempty"`    // of the begin, as in RFC 3339
	Command string `json:"command,omitempty"` // line that made the report
	Depth   int    `json:"level,omitempty"`   // how much was run: 1 to 3
	Seed    uint64 `json:"seed,omitempty"`    // of the first case's initial weights

	Backend    string   `json:"backend,omitempty"`
	Transport  string   `json:"transport,omitempty"` // between ranks; empty is the memory of this process
	Arithmetic int      `json:"arithmetic"`
	Text       string   `json:"text,omitempty"`
	TextHash   string   `json:"text_hash,omitempty"` // SHA-256
	LastStep   string   `json:"last_step,omitempty"` // what happens to the sequences left over at an epoch's end
	Plans      []string `json:"plans,omitempty"`
	// Histories is the directory that was judged; empty where runs were made.
	Histories   string `json:"histories,omitempty"`
	Repetitions int    `json:"repetitions,omitempty"` // of a soak; 0 is one
}

// Simulated reports whether any of the runs was on simulated devices.
func (e *Environment) Simulated() bool { return kernels.Simulated(e.Backend) }

func (e *Environment) mark() string { return kernels.EndMark(e.Simulated()) }

// Word is a verdict as the report writes it, in whatever form: of a simulated device none
// stands without saying that it is one.
func (r *Report) Word(v contract.Verdict) string { return v.String() + r.Environment.mark() }

// Here describes this process and machine.
func Here() Environment {
	e := Environment{
		Version: "devel", Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH,
		Cores: runtime.GOMAXPROCS(0), CPU: cpuModel(), Arithmetic: kernels.Arithmetic, Date: time.Now().UTC().Format(time.RFC3339),
	}
	e.Host, _ = os.Hostname() // unknown is empty
	if info, ok := debug.ReadBuildInfo(); ok {
		e.stamp(info)
	}
	return e
}

// stamp takes over what the linker knows.
func (e *Environment) stamp(info *debug.BuildInfo) {
	if v := info.Main.Version; v != "" && v != "(devel)" {
		e.Version = v
	}
	changed := false
	for _, s := range info.Settings {
		switch s.Key {
		case "GOAMD64", "GOARM64":
			e.Level = s.Value
		case "vcs.revision":
			e.Version += " " + s.Value[:min(12, len(s.Value))]
			e.Commit = s.Value
		case "vcs.modified":
			changed = s.Value == "true"
		}
	}
	if changed && e.Commit != "" {
		e.Commit += "+"
	}
}

// Build says in a line what was built, and for what.
func (e *Environment) Build() string {
	s := fmt.Sprintf("%s, %s, %s/%s", e.Version, e.Go, e.OS, e.Arch)
	if e.Level != "" {
		s += " " + e.Level
	}
	return s
}

// cpuModel is the processor's name where the system tells it in a file.
func cpuModel() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	return modelName(string(b))
}

// modelName finds the name in the text of /proc/cpuinfo; its label differs
// between architectures.
func modelName(info string) string {
	for line := range strings.Lines(info) {
		key, val, ok := strings.Cut(line, ":")
		switch strings.TrimSpace(key) {
		case "model name", "Model", "cpu model":
			if ok {
				return strings.TrimSpace(val)
			}
		}
	}
	return ""
}
