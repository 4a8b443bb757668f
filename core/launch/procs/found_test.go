package procs

import (
	"fmt"
	"strings"
	"testing"
)

// environment is one for Find: "RANK=1 WORLD_SIZE=2".
func environment(text string) func(string) (string, bool) {
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
		{"torchrun on two hosts", strings.Replace(torch, "LOCAL_WORLD_SIZE=4", "LOCAL_WORLD_SIZE=2", 1), 4, "LOCAL_WORLD_SIZE=2, WORLD_SIZE=4: the agents of a run must be on one host"},
		{"mpirun on two hosts", strings.Replace(ompi, "LOCAL_SIZE=4", "LOCAL_SIZE=2", 1), 4, "must be on one host"},
		{"a step on two nodes", strings.Replace(step, "NODES=1", "NODES=2", 1), 4, "SLURM_STEP_NUM_NODES=2: the agents of a run must be on one host"},
		{"a task less than each node has", step + "SLURM_NTASKS=1 SLURM_NTASKS_PER_NODE=2", 4, "SLURM_NTASKS=1 and SLURM_NTASKS_PER_NODE=2: cannot both be"},
		{"mpirun without a job", "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2", 2, "none of PMIX_NAMESPACE, OMPI_MCA_ess_base_jobid is set"},
		{"an indexed Job", "JOB_COMPLETION_INDEX=1", 2, "its pods are hosts"},
	} {
		f, err := Find(x.expect, environment(x.env))
		got := fmt.Sprint(err)
		if err == nil {
			got = f.String()
		}
		if err == nil && got != x.want || !strings.Contains(got, x.want) {
			t.Errorf("%s: %s, want %s", x.name, got, x.want)
		}
	}
}

// The processes of one launch are told one job, those of another one another.
func TestJobsDiffer(t *testing.T) {
	job := func(env string) string {
		f, err := Find(2, environment(env))
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
