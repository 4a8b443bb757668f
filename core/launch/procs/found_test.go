package procs

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// variables are an environment for Find: "RANK=1 WORLD_SIZE=2".
func variables(text string) func(string) (string, bool) {
	all := map[string]string{}
	for _, f := range strings.Fields(text) {
		name, value, _ := strings.Cut(f, "=")
		all[name] = value
	}
	return func(name string) (string, bool) {
		v, ok := all[name]
		return v, ok
	}
}

func TestFind(t *testing.T) {
	const (
		torch = "RANK=1 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 MASTER_ADDR=localhost MASTER_PORT=29500 TORCHELASTIC_RUN_ID=none "
		step  = "SLURM_JOB_ID=77 SLURM_STEP_ID=3 SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NUM_NODES=1 SLURM_NTASKS=4 "
		ompi  = "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=4 PMIX_NAMESPACE=9.1 "
		pmi   = "PMI_RANK=0 PMI_SIZE=4 PMI_JOBID=x "
	)
	found := regexp.MustCompile(`: agent \d+ of \d+$`)
	for _, x := range []struct {
		name, env string
		expect    int
		want      string // what is found, or a part of the error
	}{
		{"torchrun", torch, 4, "torchrun: agent 1 of 4"},
		{"a step", step, 4, "Slurm step: agent 2 of 4"},
		{"mpirun", ompi, 4, "Open MPI: agent 3 of 4"},
		{"mpirun of MPICH", pmi, 4, "PMI: agent 0 of 4"},
		{"a step of 2 tasks in a job of 8", "SLURM_NTASKS=8 SLURM_JOB_ID=1 SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2", 2, "Slurm step: agent 1 of 2"},
		{"torchrun in a step of one task", torch + "SLURM_JOB_ID=1 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1", 4, "torchrun: agent 1 of 4"},
		{"mpirun in a step of one task", "SLURM_JOB_ID=1 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 " + ompi, 4, "Open MPI: agent 3 of 4"},
		{"one process alone", "RANK=0 WORLD_SIZE=1 MASTER_PORT=1", 1, "torchrun: agent 0 of 1"},

		{"an allocation without a step", "SLURM_NTASKS=8 SLURM_JOB_ID=1 SLURM_PROCID=0", 8, "no launcher has started this process"},
		{"nothing", "", 2, "expect-agents=2: no launcher has started this process: looked for torchrun (RANK, WORLD_SIZE)"},
		{"another number", ompi, 2, "expect-agents=2: Open MPI has started 4"},
		{"torchrun against mpirun", torch + ompi, 4, "torchrun: agent 1 of 4, and Open MPI: agent 3 of 4: must be the same"},
		{"a step against mpirun", step + "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 PMIX_NAMESPACE=9.1", 4, "must be the same"},
		{"a rank beyond the world", "RANK=4 WORLD_SIZE=4 LOCAL_RANK=0 MASTER_PORT=1", 4, "RANK=4, WORLD_SIZE=4: must lie below it"},
		{"a rank that is no number", strings.Replace(torch, "RANK=1", "RANK=one", 1), 4, `RANK="one": must be a number from 0`},
		{"a negative size", "PMI_RANK=0 PMI_SIZE=-4 PMI_JOBID=x", 4, `PMI_SIZE="-4": must be a number`},
		{"a rank without a world", "RANK=1", 4, "one of RANK and WORLD_SIZE is set: must be both"},
		{"no local rank", "RANK=1 WORLD_SIZE=2 MASTER_PORT=1", 2, "WORLD_SIZE=2, and LOCAL_RANK is not set"},
		{"a task less than each node has", step + "SLURM_NTASKS=1 SLURM_NTASKS_PER_NODE=2", 4, "SLURM_NTASKS=1 and SLURM_NTASKS_PER_NODE=2: cannot both be"},
		{"mpirun without a job", "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2", 2, "none of PMIX_NAMESPACE, OMPI_MCA_ess_base_jobid is set"},
		{"a local rank beyond the host", strings.Replace(ompi, "LOCAL_SIZE=4", "LOCAL_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=4", 1), 4, "OMPI_COMM_WORLD_LOCAL_RANK=4, OMPI_COMM_WORLD_LOCAL_SIZE=4: must lie below it"},
		{"a host with more than all", strings.Replace(torch, "LOCAL_WORLD_SIZE=4", "LOCAL_WORLD_SIZE=5", 1), 4, "LOCAL_WORLD_SIZE=5, WORLD_SIZE=4: cannot be more"},
		{"nodes with more tasks than there are", step + "SLURM_STEP_TASKS_PER_NODE=2(x3)", 4, `SLURM_STEP_TASKS_PER_NODE="2(x3)", SLURM_STEP_NUM_TASKS=4: cannot both be`},
		{"a torchrun on each host, of mpirun", strings.Replace(torch, "LOCAL_WORLD_SIZE=4", "LOCAL_WORLD_SIZE=2 GROUP_WORLD_SIZE=2", 1) + "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 PMIX_RANK=0 PMIX_NAMESPACE=1.1", 4, "torchrun: agent 1 of 4"},
		{"a pod with torchrun in it", torch + "JOB_COMPLETION_INDEX=0", 4, "torchrun: agent 1 of 4"},
		{"Open MPI, which is a PMIx", "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1 PMIX_RANK=0 PMIX_NAMESPACE=q", 2,
			"Open MPI: agent 0 of 2, on several hosts: nothing says where agent 0 listens"},
		{"PMIx", "PMIX_RANK=2 PMIX_NAMESPACE=9.1", 4, "PMIx: agent 2 of 4"},
		{"an indexed Job", "JOB_COMPLETION_INDEX=1", 2, "indexed Job: agent 1 of 2, on several hosts: nothing says where agent 0 listens; give --rendezvous"},
		{"an index beyond the Job", "JOB_COMPLETION_INDEX=2", 2, "JOB_COMPLETION_INDEX=2, expect-agents=2: must lie below it"},
	} {
		f, err := Find(Query{Expected: x.expect, Agent: -1, Env: variables(x.env), Network: Network{Token: []byte("sixteen bytes or more")}})
		got := fmt.Sprint(err)
		if err == nil {
			got = f.String()
		}
		if exact := err == nil || found.MatchString(x.want); exact && got != x.want || !strings.Contains(got, x.want) {
			t.Errorf("%s: %s, want %s", x.name, got, x.want)
		}
	}
}

// The processes of one launch are told one job, those of another one another.
func TestJobsDiffer(t *testing.T) {
	job := func(env string) string {
		f, err := Find(Query{Expected: 2, Agent: -1, Env: variables(env)})
		if err != nil {
			t.Fatal(err)
		}
		return f.Job
	}
	a := job("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 PMIX_NAMESPACE=1.1")
	b := job("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 PMIX_NAMESPACE=1.1")
	c := job("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 PMIX_NAMESPACE=1.2")
	if a != b || b == c {
		t.Errorf("jobs %q, %q, %q", a, b, c)
	}
}

// Where agent 0 of several hosts listens is what the user says, or else the launcher;
// all processes are told the same.
func TestFindPlaces(t *testing.T) {
	const (
		torch = "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 MASTER_ADDR=node1 MASTER_PORT=29500 TORCHELASTIC_RUN_ID=none "
		step  = "SLURM_JOB_ID=77 SLURM_STEP_ID=3 SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=8 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST=n[07-08] SLURM_LOCALID=1 SLURM_STEP_TASKS_PER_NODE=4(x2) "
		ompi  = "OMPI_COMM_WORLD_RANK=5 OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_LOCAL_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 PMIX_NAMESPACE=9.1 "
	)
	for _, x := range []struct {
		name, env string
		agent     int
		net       Network
		want      string // places, or a part of the error
	}{
		{"torchrun", torch, -1, Network{}, "node1:29500"},
		{"torchrun that listens there", torch + "TORCHELASTIC_USE_AGENT_STORE=True", -1, Network{},
			"node1:29501 node1:29502 node1:29503 node1:29504 node1:29505 node1:29506 node1:29507 node1:29508"},
		{"torchrun at the last port", strings.Replace(torch, "29500", "65534", 1) + "TORCHELASTIC_USE_AGENT_STORE=True", -1, Network{}, "node1:65535"},
		{"torchrun beyond the last port", strings.Replace(torch, "29500", "65535", 1) + "TORCHELASTIC_USE_AGENT_STORE=True", -1, Network{}, "MASTER_PORT=65535: is torchrun's own"},
		{"torchrun at no port", strings.Replace(torch, "29500", "65536", 1) + "TORCHELASTIC_USE_AGENT_STORE=True", -1, Network{}, "MASTER_PORT=65536: must lie within 1-65535"},
		{"torchrun at no port, its own", strings.Replace(torch, "29500", "0", 1), -1, Network{}, "MASTER_PORT=0: must lie within 1-65535"},
		{"torchrun over IPv6", strings.Replace(torch, "node1", "fd00::1", 1), -1, Network{}, "[fd00::1]:29500"},
		{"torchrun without an address", strings.Replace(torch, "MASTER_ADDR=node1", "", 1), -1, Network{}, "MASTER_ADDR and MASTER_PORT must be set"},
		{"a step", step, -1, Network{Ports: Ports{40000, 40001}}, "n07:40000 n07:40001"},
		{"a step without nodes", strings.Replace(step, "SLURM_STEP_NODELIST=n[07-08]", "", 1), -1, Network{}, "names no node"},
		{"mpirun", ompi, -1, Network{}, "Open MPI: agent 5 of 8, on several hosts: nothing says where"},
		{"mpirun, and the user", ompi, -1, Network{Rendezvous: "10.0.0.1:29500"}, "10.0.0.1:29500"},
		{"the user before torchrun", torch, -1, Network{Rendezvous: "10.0.0.1:29500"}, "10.0.0.1:29500"},
		{"a Job", "JOB_COMPLETION_INDEX=5", -1, Network{Rendezvous: "job-0.service:29500"}, "job-0.service:29500"},
		{"nobody but the user", "", 5, Network{Rendezvous: "[fe80::1%eth0]:29500"}, "[fe80::1%eth0]:29500"},
		{"an agent that is none", "", 8, Network{Rendezvous: "10.0.0.1:29500"}, "agent=8: must lie below expect-agents=8"},
		{"any port", "", 5, Network{Rendezvous: "10.0.0.1:0"}, "the others could not know which port agent 0 gets for 0"},
		{"no port", "", 5, Network{Rendezvous: "10.0.0.1"}, `rendezvous "10.0.0.1": must be HOST:PORT`},
		{"no host", "", 5, Network{Rendezvous: ":29500"}, "names no host"},
		{"any host", "", 5, Network{Rendezvous: "0.0.0.0:29500"}, "is no address to which the others could go"},
		{"a port by name", "", 5, Network{Rendezvous: "node1:http"}, "port must lie within 1-65535"},
		{"a port too high", "", 5, Network{Rendezvous: "node1:65536"}, "port must lie within 1-65535"},
	} {
		x.net.Token = []byte("sixteen bytes or more")
		f, err := Find(Query{Expected: 8, Agent: x.agent, Env: variables(x.env), Network: x.net})
		got := fmt.Sprint(err)
		if err == nil {
			got = strings.Join(f.Places, " ")
			if f.Agent != 5 || x.agent < 0 && f.Local != 1 && !strings.HasPrefix(f.Source, "indexed") {
				t.Errorf("%s: agent %d, %d of its host", x.name, f.Agent, f.Local)
			}
		}
		if err == nil && got != x.want || !strings.Contains(got, x.want) {
			t.Errorf("%s: %s, want %s", x.name, got, x.want)
		}
	}
}

// Off loopback there must be a secret, which is no short one.
func TestFindWantsAToken(t *testing.T) {
	for at, wants := range map[string]bool{"127.0.0.1:1": false, "[::1]:1": false, "localhost:1": false, "[::ffff:127.0.0.1]:1": false,
		"10.0.0.1:1": true, "node1:1": true, "[fd00::1]:1": true} {
		for _, token := range []string{"", "short", "sixteen bytes or more"} {
			_, err := Find(Query{Expected: 2, Agent: 1, Network: Network{Rendezvous: at, Token: []byte(token)}})
			if (err == nil) != (token == "" && !wants || len(token) >= MinToken) {
				t.Errorf("%s with token %q: %v", at, token, err)
			}
			if err != nil && (!strings.Contains(err.Error(), NewToken) || token == "short" && strings.Contains(err.Error(), token)) {
				t.Errorf("%s: %v", at, err)
			}
		}
	}
	if _, err := Find(Query{Expected: 2, Agent: 1, Network: Network{Rendezvous: "127.0.0.1:1", Interface: "eth0"}}); err == nil {
		t.Error("no token, and an interface that others reach")
	}
}

func TestFirstHost(t *testing.T) {
	for list, want := range map[string]string{"n1": "n1", "n[07-09,12],x": "n07", "n[3]": "n3", "a,b": "a", "r[0-1]n[2,4]": "r0n2", "n[2-4].x.org,y": "n2.x.org", "": "", "n[1": ""} {
		if got := firstHost(list); got != want {
			t.Errorf("%q: %q, want %q", list, got, want)
		}
	}
	for text, want := range map[string]int{"2": 2, "2(x3),1": 7, "1,1,1": 3, "x": -1, "2(x": -1, "-1": -1, "2(x-3)": -1} {
		got, err := perNode(text)
		if err != nil {
			got = -1
		}
		if got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func TestParsePorts(t *testing.T) {
	for text, want := range map[string]Ports{"1-2": {1, 2}, "29500": {29500, 29500}, "1-65535": {1, 65535}, "0-4": {}, "5-4": {}, "1-65536": {}, "": {}, "a-b": {}, "-1-5": {}} {
		got, err := ParsePorts(text)
		if got != want || (err == nil) != (want != Ports{}) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}
