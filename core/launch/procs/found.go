package procs

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Found is what a launcher says of this process among those that it has started.
type Found struct {
	// Source is who says so: "Open MPI".
	Source string
	// Agent is this process's number, from 0, and Agents how many there are.
	Agent, Agents int
	// Job is what all of them are told, and no others.
	Job string
	// Deadline is that of Options.
	Deadline time.Duration
}

// String is what is found, in words.
func (f *Found) String() string {
	return fmt.Sprintf("%s: agent %d of %d", f.Source, f.Agent, f.Agents)
}

// launcher is how one says what Found holds, by variables of the environment.
type launcher struct {
	name        string
	rank, size  string
	local       string   // how many of them are on this host; must be all
	job         []string // that name the job, those that are set
	marks       string   // without which it has started nothing
	needs       string   // that must be set too where there are several
	contradicts func(get func(string) (int, bool, error)) error
}

// launchers are those that are known, the innermost first: torchrun is run by the
// others, and a Slurm step may start what speaks PMI.
func launchers() []launcher {
	return []launcher{
		{name: "torchrun", rank: "RANK", size: "WORLD_SIZE", local: "LOCAL_WORLD_SIZE", needs: "LOCAL_RANK", job: []string{"TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"}},
		{name: "Slurm step", rank: "SLURM_PROCID", size: "SLURM_STEP_NUM_TASKS", job: []string{"SLURM_JOB_ID", "SLURM_STEP_ID"}, marks: "SLURM_STEP_ID", contradicts: slurm},
		{name: "Open MPI", rank: "OMPI_COMM_WORLD_RANK", size: "OMPI_COMM_WORLD_SIZE", local: "OMPI_COMM_WORLD_LOCAL_SIZE", job: []string{"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}},
		{name: "PMI", rank: "PMI_RANK", size: "PMI_SIZE", local: "MPI_LOCALNRANKS", job: []string{"PMI_JOBID"}},
	}
}

// slurm refuses tasks on several nodes, and numbers of tasks of which one cannot be.
func slurm(get func(string) (int, bool, error)) error {
	nodes, ok, err := get("SLURM_STEP_NUM_NODES")
	if err == nil && ok && nodes != 1 {
		err = fmt.Errorf("SLURM_STEP_NUM_NODES=%d: the agents of a run must be on one host", nodes)
	}
	if err != nil {
		return err
	}
	tasks, has, err := get("SLURM_NTASKS")
	if err != nil || !has {
		return err
	}
	each, has, err := get("SLURM_NTASKS_PER_NODE")
	if err == nil && has && tasks < each {
		err = fmt.Errorf("SLURM_NTASKS=%d and SLURM_NTASKS_PER_NODE=%d: cannot both be", tasks, each)
	}
	return err
}

// Find is what the environment says of the launcher that started this process, one of
// expected. Several that say so must agree, but that one which started a single process
// may have another inside.
func Find(expected int, env func(string) (string, bool)) (*Found, error) {
	var all []*Found
	var known []string
	for _, l := range launchers() {
		known = append(known, fmt.Sprintf("%s (%s, %s)", l.name, l.rank, l.size))
		f, err := l.find(env)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.name, err)
		}
		if f != nil {
			all = append(all, f)
		}
	}
	if _, ok := env("JOB_COMPLETION_INDEX"); ok && len(all) == 0 {
		return nil, fmt.Errorf("indexed Job (JOB_COMPLETION_INDEX): its pods are hosts, and the agents of a run must be on one")
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("expect-agents=%d: no launcher has started this process: looked for %s", expected, strings.Join(known, ", "))
	}
	for _, f := range all[1:] {
		if first := all[0]; f.Agents > 1 && (f.Agent != first.Agent || f.Agents != first.Agents) {
			return nil, fmt.Errorf("%v, and %v: must be the same", first, f)
		}
	}
	if f := all[0]; f.Agents != expected {
		return nil, fmt.Errorf("expect-agents=%d: %s has started %d", expected, f.Source, f.Agents)
	}
	return all[0], nil
}

// find is what one launcher says; nil where it is not there.
func (l *launcher) find(env func(string) (string, bool)) (*Found, error) {
	get := func(name string) (int, bool, error) {
		text, ok := env(name)
		if !ok || text == "" {
			return 0, false, nil
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return 0, false, fmt.Errorf("%s=%q: must be a number from 0", name, text)
		}
		return n, true, nil
	}
	if _, ok := env(l.marks); !ok && l.marks != "" {
		return nil, nil // an allocation, say, in which nothing was started
	}
	rank, hasRank, err := get(l.rank)
	if err != nil {
		return nil, err
	}
	size, hasSize, err := get(l.size)
	switch {
	case err != nil:
		return nil, err
	case !hasRank && !hasSize:
		return nil, nil
	case !hasRank || !hasSize:
		return nil, fmt.Errorf("one of %s and %s is set: must be both", l.rank, l.size)
	case rank >= size:
		return nil, fmt.Errorf("%s=%d, %s=%d: must lie below it", l.rank, rank, l.size, size)
	}
	if _, ok := env(l.needs); !ok && l.needs != "" && size > 1 {
		return nil, fmt.Errorf("%s=%d, and %s is not set", l.size, size, l.needs)
	}
	if local, has, err := get(l.local); err != nil || has && local != size {
		if err == nil {
			err = fmt.Errorf("%s=%d, %s=%d: the agents of a run must be on one host", l.local, local, l.size, size)
		}
		return nil, err
	}
	if l.contradicts != nil {
		if err := l.contradicts(get); err != nil {
			return nil, err
		}
	}
	var job []string
	for _, name := range l.job {
		if text, ok := env(name); ok && text != "" {
			job = append(job, name+"="+text)
		}
	}
	if len(job) == 0 {
		return nil, fmt.Errorf("none of %s is set, by which its processes would find each other", strings.Join(l.job, ", "))
	}
	return &Found{Source: l.name, Agent: rank, Agents: size, Job: strings.Join(job, " ")}, nil
}
