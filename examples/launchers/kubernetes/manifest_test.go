package kubernetes

import (
	"os"
	"strings"
	"testing"
)

func manifest(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("verify.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestManifest(t *testing.T) {
	m, err := Read([]byte(manifest(t)))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range m.Check() {
		t.Error(w)
	}
}

// TestMistakes: each edit of the manifest is refused, with its reason.
func TestMistakes(t *testing.T) {
	for _, x := range []struct{ old, new, why string }{
		// What the types do not have.
		{"  clusterIP: None", "  clusterIp: None", `unknown field "spec.clusterIp"`},
		{"  completions: 4", "  completions: 4\n  completion: 4", `unknown field "spec.completion"`},
		{"  completions: 4", "  completions: 4\n  completions: 4", "completions"}, // twice
		{"  completions: 4", "  completions: four", "cannot unmarshal string"},
		{"        image: lockstep:latest", "        image: [lockstep]", "cannot unmarshal array"},
		{"            memory: 4Gi\n          limits", "            memory: 4 GiB\n          limits", "quantities must match"},
		{"apiVersion: batch/v1", "apiVersion: batch/v2", "no kind"},
		{"kind: Job", "kind: CronJob", `unknown field "spec.backoffLimit"`},
		{"apiVersion: batch/v1\nkind: Job", "apiVersion: v1\nkind: Secret", "unknown field"},
		{"---\n", "---\napiVersion: v1\nkind: Service\nmetadata:\n  name: other\n---\n", "a second service"},
		{"---\n", "---\napiVersion: v1\nkind: Secret\nmetadata:\n  name: other\n---\n", "a Secret"},
		// What fits the types, and no agent finds the others by.
		{"completionMode: Indexed", "completionMode: NonIndexed", "pods have no numbers"},
		{"  completions: 4", "  completions: 5", "--expect-agents=4, and completions 5"},
		{"  parallelism: 4", "  parallelism: 2", "each pod waits for all"},
		{"--expect-agents=4", "--expect-agents=8", "--expect-agents=8, and completions 4"},
		{"backoffLimit: 0", "backoffLimit: 6", "a new pod finds no run"},
		{"restartPolicy: Never", "restartPolicy: OnFailure", "a new process finds no run"},
		{"clusterIP: None", "clusterIP: \"\"", "pods have no names"},
		{"publishNotReadyAddresses: true", "publishNotReadyAddresses: false", "before it is ready"},
		{"  selector:\n    batch.kubernetes.io/job-name: lockstep-verify", "  selector:\n    batch.kubernetes.io/job-name: lockstep", "the service selects"},
		{"          matchLabels:\n            batch.kubernetes.io/job-name: lockstep-verify", "          matchLabels:\n            app: lockstep", "labels that they do not have"},
		{"subdomain: lockstep-verify", "subdomain: lockstep", `subdomain "lockstep" is not`},
		{"kind: Job\nmetadata:\n  name: lockstep-verify", "kind: Job\nmetadata:\n  name: " + strings.Repeat("long-", 12) + "xy", "is no host name"},
		{"rendezvous=lockstep-verify-0.", "rendezvous=lockstep-verify.", "the first pod is"},
		{"lockstep-verify-0.lockstep-verify:29500", "lockstep-verify-0.lockstep-verify:29400", `no port "29400"`},
		{"--ports=29501-29600", "--ports=29500-29600", "and the rendezvous at 29500"},
		{"          valueFrom:\n            secretKeyRef:\n              name: lockstep-token\n              key: token", "          value: in-the-clear", "not that of a secret"},
		{"mountPath: /tmp", "mountPath: /temp", "nothing can be written at /tmp"},
		{"      - name: tmp\n        emptyDir", "      - name: temp\n        emptyDir", `no volume "tmp"`},
		{"            memory: 4Gi\n        securityContext", "            cpu: 4\n        securityContext", "no limit of memory"},
	} {
		text := manifest(t)
		if strings.Count(text, x.old) != 1 {
			t.Errorf("%q: %d times in the manifest", x.old, strings.Count(text, x.old))
			continue
		}
		m, err := Read([]byte(strings.Replace(text, x.old, x.new, 1)))
		var said string
		if err != nil {
			said = err.Error()
		} else {
			said = strings.Join(m.Check(), "; ")
		}
		if !strings.Contains(said, x.why) {
			t.Errorf("%q for %q: %q, want %q", x.new, x.old, said, x.why)
		}
	}
}
