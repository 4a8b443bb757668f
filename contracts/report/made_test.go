package report

import (
	"bytes"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/core/trace/tracetest"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// made is a report that says when, where and how it was made.
func made() *Report {
	r := sample()
	r.Seconds, r.Contracts[0].Seconds, r.Contracts[1].Seconds = 133.5, 0.004, 12.34
	e := &r.Environment
	e.Date, e.Host, e.Command, e.Commit, e.Depth, e.Seed = "2026-11-28T13:40:11Z", "node7", "verify --level 2", "0123456789abcdef+", 2, 7
	return r
}

func TestReportsSayHowTheyWereMade(t *testing.T) {
	for format, want := range map[string][]string{
		"text": {"  made       2026-11-28T13:40:11Z on node7 in 2m13s at level 2 from seed 7\n", "  command    verify --level 2\n",
			"C-ABC-001  replicas stay equal  (0.00 s)\n", "C-DEF-002  runs repeat  (12.3 s)\n", "C-GHI-003  all is well\n"},
		"json": {`"date": "2026-11-28T13:40:11Z"`, `"host": "node7"`, `"command": "verify --level 2"`, `"commit": "0123456789abcdef+"`, `"level": 2`, `"seed": 7`,
			`"seconds": 133.5`, `"seconds": 12.34`},
		"junit": {`<testsuites name="lockstep" tests="6" failures="1" errors="3" time="133.500">`,
			`time="12.340" timestamp="2026-11-28T13:40:11Z" hostname="node7"`, `name="command" value="verify --level 2"`, `name="commit" value="0123456789abcdef+"`,
			`name="level" value="2"`, `name="seed" value="7"`, `name="host" value="node7"`, `name="date" value="2026-11-28T13:40:11Z"`},
	} {
		var b bytes.Buffer
		write := map[string]func() error{"text": func() error { return Text(&b, made(), TextOptions{}) }, "json": func() error { return JSON(&b, made()) },
			"junit": func() error { return JUnit(&b, made()) }}[format]
		if err := write(); err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !strings.Contains(b.String(), w) {
				t.Errorf("%s lacks %q:\n%s", format, w, b.String())
			}
		}
		if format == "json" {
			doc, err := jsonschema.UnmarshalJSON(&b)
			if err != nil {
				t.Fatal(err)
			}
			if err := tracetest.Compile(t, JSONSchema()).Validate(doc); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestRepetitionsAddUpTheirTime(t *testing.T) {
	r := made()
	r.Add(made())
	if got := r.Contracts[1].Seconds; got != 24.68 {
		t.Errorf("%v s", got)
	}
}

func TestCommitIsThatOfTheBuild(t *testing.T) {
	for modified, want := range map[string]string{"false": "0123456789abcdef", "true": "0123456789abcdef+"} {
		var info debug.BuildInfo
		info.Main.Version = "v1.2.3"
		info.Settings = []debug.BuildSetting{{Key: "GOAMD64", Value: "v3"}, {Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: modified}}
		var e Environment
		e.stamp(&info)
		if e.Commit != want || e.Version != "v1.2.3 0123456789ab" || e.Level != "v3" {
			t.Errorf("%+v", e)
		}
	}
	if e := Here(); e.Version == "" || e.Date == "" || e.Cores < 1 {
		t.Errorf("%+v", e)
	}
}
