package readme

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/lockstep-ml/lockstep/contracts"
	"github.com/lockstep-ml/lockstep/core/data"
)

// trial says how a command of the README is tried: with a cut where it would take
// minutes or hours, and what its output must hold.
type trial struct {
	cut     string // flags put behind it
	says    string
	instead string // line that is run in its place, where flags only add to it
}

// trials are those of all commands, in the README's words.
func trials() map[string]trial {
	return map[string]trial{
		"bin/verify --contract C-DDP-001":                                                           {"", "8 clauses: 8 held", ""},
		"bin/verify --contract C-DDP-001.2":                                                         {"", "1 clause: 1 held", ""},
		"bin/verify --explain C-DDP-001":                                                            {"", "See it fail", ""},
		"bin/verify --list":                                                                         {"", "C-ORDER-001.2", ""},
		"bin/verify --plan dp=4 --data FILE --config odd":                                           {"--contract C-DDP-001,C-NORM-001,C-DATA-001", "3 contracts", ""},
		"bin/verify --config FILE.json":                                                             {"--contract C-DDP-001,C-TP-001", "2 contracts", ""},
		"bin/verify --level 2 --format text,json,junit --out out/":                                  {"--contract C-NORM-001.1", "held: reports in out/", ""},
		"bin/verify --level 3 --duration 8h":                                                        {`--case "nano dp=2" --contract C-DDP-001 --duration 1s`, "held: 1 contract", ""},
		"bin/verify --self-test":                                                                    {"--contract C-DDP-001.2", "Every check has been seen to fail", ""},
		"bin/verify --self-test --faults all":                                                       {"", "Every check has been seen to fail", "bin/verify --self-test --contract C-DDP-001.3 --faults reduction-skipped"},
		"bin/verify --explain reduction-skipped":                                                    {"", "must be named", ""},
		"bin/train --plan dp=4 --history DIR":                                                       {"", "step 20/20", ""},
		"bin/verify --history DIR":                                                                  {"", "nano:dp=4", ""},
		"bin/train --config nano --plan dp=4,microbatches=2 --fingerprint":                          {"", "fingerprint weights=", ""},
		"bin/train --config tiny --warmup 5 --horizon 40 --steps 40 --format json --log FILE":       {"", `{"event":"end"}`, ""},
		"bin/train --plan dp=4,zero=3 --steps 10 --save DIR":                                        {"", "step 10/10", ""},
		"bin/train --plan tp=2,pp=2 --resume DIR":                                                   {"", "step 20/20", ""},
		"bin/train --dry-run --config llama3-8b --sequences 64 --plan dp=8,tp=8,pp=8,zero=3":        {"", "8030261248 parameters", ""},
		"bin/verify --transport tcp":                                                                {"--contract C-TP-001 --deadline 60s", "transport  tcp, ranks of one process", ""},
		"bin/train --plan dp=2,tp=2,pp=2,zero=1 --launch procs --agents 3 --steps 10 --fingerprint": {"--quiet", goldenLine, ""},
		"bin/verify --launch procs --agents 3":                                                      {"--contract C-TP-001 --deadline 60s", "transport  shared memory, processes, 3 agents: rank r is in agent r mod 3", ""},
		"mpirun -n 4 bin/verify --expect-agents 4":                                                  {"", "transport  shared memory, processes, 4 agents of ", launched},
		"bin/verify --expect-agents 2 --agent 0 --rendezvous 10.0.0.1:29500 --token-file token":     {"", "transport  shared memory, processes, 2 agents of the command line: rank r is in agent r mod 2; ", apart},
		"bin/verify --expect-agents 2 --agent 1 --rendezvous 10.0.0.1:29500 --token-file token":     {"", "at 127.0.0.1 (interface lo): agents 0, 1", apart},
		"mpirun -n 4 bin/mpi/verify --expect-agents 4 --transport mpi":                              {"", "", byMPI},
		"bin/verify --backend cuda --require-device cuda":                                           {"", "", byGPU},
		"LOCKSTEP_CUDA=sim bin/verify --backend cuda --contract C-DDP-001":                          {"", "", byGPU},
		"bin/train --backend cuda --devices sim:2 --launch procs --plan dp=2,tp=2 --fingerprint":    {"", "", byGPU},
		"source <(bin/verify --completion bash)":                                                    {"", "", ""},
	}
}

// goldenLine is that of nano after ten steps, on every plan.
const goldenLine = "fingerprint weights=8c91b23c0a7817be9b61e746c590334e moments=ac06d82af6d4e3979ae183d46a058bc8 loss=409b5a3c"

// launched starts four agents by mpirun, or, where there is none, as torchrun does.
const launched = `args="bin/verify --expect-agents 4 --contract C-TP-001 --deadline 60s"
if command -v mpirun > /dev/null; then exec mpirun --allow-run-as-root --oversubscribe -n 4 $args; fi
export WORLD_SIZE=4 MASTER_ADDR=localhost MASTER_PORT=$$
for i in 1 2 3; do RANK=$i LOCAL_RANK=$i $args & done
RANK=0 LOCAL_RANK=0 $args && wait`

// apart starts two agents as on two hosts, which meet at a port that nobody has.
const apart = `head -c 32 /dev/urandom | base64 > token && chmod 600 token
args="bin/verify --expect-agents 2 --rendezvous 127.0.0.1:$((20000 + $$ % 10000)) --token-file token --contract C-TP-001 --deadline 60s"
$args --agent 1 & $args --agent 0 && wait $!`

// byMPI tries what there is without an MPI: a program that was built without it says how
// to build one. make test-mpi-transport tries the other.
const byMPI = `said=$(bin/verify --expect-agents 4 --transport mpi 2>&1)
test $? = 2 && grep -q "make build-mpi" <<< "$said"`

// byGPU tries what there is without the build for GPUs, real and simulated: 4, and how to
// build it. make test-cuda tries the others.
const byGPU = `for args in "verify --require-device cuda" "verify --devices sim:2" "train --require-device cuda" "train --devices sim:2 --launch procs --plan dp=2,tp=2"; do
said=$(bin/$args --backend cuda 2>&1)
test $? = 4 && grep -q "make build-cuda" <<< "$said" || { echo "$said"; exit 1; }
done`

func read(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Every command that the README tells people to type does what the row says.
func TestEveryCommandRuns(t *testing.T) {
	commands, known := Commands(read(t)), trials()
	if len(commands) < 15 {
		t.Fatalf("the README has %d commands: is its table another now?", len(commands))
	}
	root := built(t)
	inputs(t, root)
	for c := range known {
		if !slices.Contains(commands, c) {
			t.Errorf("%s: tried, and not in the README", c)
		}
	}
	dirs := 0
	for _, c := range commands {
		x, ok := known[c]
		if !ok {
			t.Errorf("%s: nothing says how to try it", c)
			continue
		}
		if strings.Contains(c, "--history DIR") && strings.Contains(c, "train") || strings.Contains(c, "--save DIR") {
			dirs++ // the next commands are about the same one
		}
		line := strings.NewReplacer("FILE.json", "mine.json", "--log FILE", "--log log.ndjson", "FILE", "book.txt", "DIR", "dir"+string(rune('0'+dirs))).Replace(cmp.Or(x.instead, c)) + " " + x.cut
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
		cmd := exec.CommandContext(ctx, "bash", "-c", line)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		stop()
		if err != nil || !strings.Contains(string(out), x.says) {
			t.Errorf("%s: %v; want %q in\n%s", line, err, x.says, out)
		}
	}
}

// built is a directory with the commands in its bin.
func built(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(root, "bin")+"/", "../../cmd/verify", "../../cmd/train")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return root
}

// inputs makes the files that commands are given.
func inputs(t *testing.T, root string) {
	t.Helper()
	_, config, ok := strings.Cut(read(t), "`FILE.json`, for both commands: `")
	config, _, _ = strings.Cut(config, "`")
	if !ok {
		t.Fatal("the README has no configuration")
	}
	for name, text := range map[string]string{"mine.json": config, "book.txt": string(data.Default().Bytes)} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// What the README shows that make verify sees is what it sees.
func TestShownEvidenceIsWhatVerifySees(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), filepath.Join(built(t), "bin", "verify")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	counts := regexp.MustCompile(`(?m)^  held +C-[A-Z]+-001\.\d+  saw \d+/\d+|^  plans +\d+ of [a-z, ]+|^held: \d+ contracts.*$`)
	seen := counts.FindAllString(string(out), -1)
	shown := counts.FindAllString(read(t), -1)
	if len(shown) < 2*len(contracts.All()) {
		t.Errorf("%d lines with numbers are shown", len(shown))
	}
	for _, line := range shown {
		if !slices.Contains(seen, line) {
			t.Errorf("the README shows %q, which verify does not print", line)
		}
	}
}

// What the README shows of a report are the contracts and clauses that there are.
func TestShownClausesAreTheContracts(t *testing.T) {
	text := read(t)
	clause := regexp.MustCompile(`(?m)^held +(C-[A-Z]+-001)  ([^(\n]+?)(?:  \([0-9.]+ s\))?$|^  held +(C-[A-Z]+-001\.\d+)  saw \d+/\d+ +(.*?)(?: \.\.\.)?$`)
	titles, says := map[string]string{}, map[string]string{}
	for _, c := range contracts.All() {
		titles[c.ID] = c.Title
		for _, cl := range c.Clauses {
			says[cl.ID] = cl.Says
		}
	}
	shown := 0
	for _, m := range clause.FindAllStringSubmatch(text, -1) {
		shown++
		if m[1] != "" && titles[m[1]] != m[2] {
			t.Errorf("%s: %q, its title is %q", m[1], m[2], titles[m[1]])
		}
		if m[3] != "" && (m[4] == "" || !strings.HasPrefix(says[m[3]], m[4])) {
			t.Errorf("%s: %q, it says %q", m[3], m[4], says[m[3]])
		}
	}
	if shown < 3*len(titles) {
		t.Errorf("%d lines of %d contracts are shown", shown, len(titles))
	}
	table := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| (C-[A-Z]+-001) \| (.*) \|$`).FindAllStringSubmatch(text, -1) {
		table[m[1]] = m[2]
	}
	if d := gocmp.Diff(titles, table); d != "" {
		t.Errorf("the table of contracts (-is +README):\n%s", d)
	}
}
