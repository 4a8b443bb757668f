package procs

import (
	"fmt"
	"hash/fnv"
	"net"
	"strconv"
	"strings"
)

// launcher is how one says what Found holds, by variables of the environment.
type launcher struct {
	name        string
	rank, size  string   // without a size its variables say the rank alone
	local, here string   // number among those on this host, and how many these are
	needs       bool     // local, where there are several
	job         []string // that name the job, those that are set
	marks       string   // without which it has started nothing
	apart       bool     // its processes are on several hosts always
	more        func(environment, *said) error
	// meet says where agent 0 may listen where there are several hosts; nil where the
	// variables do not say it.
	meet func(environment, *Network) ([]string, error)
}

// String names it with its variables.
func (l *launcher) String() string {
	if l.size == "" {
		return fmt.Sprintf("%s (%s)", l.name, l.rank)
	}
	return fmt.Sprintf("%s (%s, %s)", l.name, l.rank, l.size)
}

// launchers are those that are known, the innermost first: torchrun is run by the
// others, and a Slurm step may start what speaks PMI.
func launchers() []launcher {
	return []launcher{
		{name: "torchrun", rank: "RANK", size: "WORLD_SIZE", local: "LOCAL_RANK", here: "LOCAL_WORLD_SIZE", needs: true,
			job: []string{"TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"}, more: groups, meet: master},
		{name: "Slurm step", rank: "SLURM_PROCID", size: "SLURM_STEP_NUM_TASKS", local: "SLURM_LOCALID",
			job: []string{"SLURM_JOB_ID", "SLURM_STEP_ID"}, marks: "SLURM_STEP_ID", more: slurm, meet: firstNode},
		{name: "Open MPI", rank: "OMPI_COMM_WORLD_RANK", size: "OMPI_COMM_WORLD_SIZE", local: "OMPI_COMM_WORLD_LOCAL_RANK", here: "OMPI_COMM_WORLD_LOCAL_SIZE",
			job: []string{"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}},
		{name: "PMI", rank: "PMI_RANK", size: "PMI_SIZE", local: "MPI_LOCALRANKID", here: "MPI_LOCALNRANKS", job: []string{"PMI_JOBID"}},
		{name: "PMIx", rank: "PMIX_RANK", job: []string{"PMIX_NAMESPACE"}},
		{name: "indexed Job", rank: "JOB_COMPLETION_INDEX", apart: true},
	}
}

// tries is how many ports agent 0 tries, one after the other, where nobody names one.
const tries = 8

// groups notes how many processes of torchrun there are, which something else may have
// started, one on each host.
func groups(env environment, s *said) error {
	n, ok, err := env.number("GROUP_WORLD_SIZE")
	if ok {
		s.groups = n
	}
	return err
}

// master is where torchrun says that rank 0 is. Where torchrun listens there itself, the
// ports behind that are tried.
func master(env environment, _ *Network) ([]string, error) {
	host := env.text("MASTER_ADDR")
	port, ok, err := env.number("MASTER_PORT")
	switch {
	case err != nil:
		return nil, err
	case host == "" || !ok:
		return nil, fmt.Errorf("torchrun, on several hosts: MASTER_ADDR and MASTER_PORT must be set, or --rendezvous")
	case port < 1 || port > maxPort:
		return nil, fmt.Errorf("torchrun: MASTER_PORT=%d: must lie within 1-%d", port, maxPort)
	}
	if env.text("TORCHELASTIC_USE_AGENT_STORE") != "True" {
		return places(host, Ports{port, port}, 0), nil
	}
	if port == maxPort {
		return nil, fmt.Errorf("torchrun: MASTER_PORT=%d: is torchrun's own, and agent 0 listens at one of those behind it, of which there is none; give --rendezvous HOST:PORT", port)
	}
	return places(host, Ports{port + 1, min(port+tries, maxPort)}, 0), nil
}

// places are an address with some ports of a range, from one on.
func places(host string, in Ports, from int) (out []string) {
	n := in.High - in.Low + 1
	for i := range min(n, tries) {
		out = append(out, net.JoinHostPort(host, strconv.Itoa(in.Low+(from+i)%n)))
	}
	return out
}

// slurm refuses numbers of tasks of which one cannot be, and notes several nodes.
func slurm(env environment, s *said) error {
	nodes, _, err := env.number("SLURM_STEP_NUM_NODES")
	if err != nil {
		return err
	}
	s.apart = nodes > 1
	if each := env.text("SLURM_STEP_TASKS_PER_NODE"); each != "" {
		if sum, err := perNode(each); err != nil || sum != s.found.Agents {
			return fmt.Errorf("SLURM_STEP_TASKS_PER_NODE=%q, SLURM_STEP_NUM_TASKS=%d: cannot both be", each, s.found.Agents)
		}
	}
	tasks, has, err := env.number("SLURM_NTASKS")
	if err != nil || !has {
		return err
	}
	each, has, err := env.number("SLURM_NTASKS_PER_NODE")
	if err == nil && has && tasks < each {
		err = fmt.Errorf("SLURM_NTASKS=%d and SLURM_NTASKS_PER_NODE=%d: cannot both be", tasks, each)
	}
	return err
}

// perNode is the sum of tasks per node as Slurm writes them: "2(x3),1" is 7.
func perNode(text string) (sum int, err error) {
	for part := range strings.SplitSeq(text, ",") {
		each, times, several := strings.Cut(strings.TrimSuffix(part, ")"), "(x")
		n, err := strconv.Atoi(each)
		k := 1
		if err == nil && several {
			k, err = strconv.Atoi(times)
		}
		if err != nil || n < 0 || k < 0 || n > 1<<20 || k > 1<<20 {
			return 0, fmt.Errorf("%q: no numbers of tasks", text)
		}
		sum += n * k
	}
	return sum, nil
}

// slurmPorts are those from which a step's rendezvous is taken where nobody says which.
var slurmPorts = Ports{29500, 29999}

// firstNode is where task 0 of a Slurm step is, with ports that depend on the step, so
// that several steps on a node seldom try the same.
func firstNode(env environment, n *Network) ([]string, error) {
	host := firstHost(env.text("SLURM_STEP_NODELIST"))
	if host == "" {
		return nil, fmt.Errorf("SLURM_STEP_NODELIST=%q: names no node of a step on several; give --rendezvous HOST:PORT", env.text("SLURM_STEP_NODELIST"))
	}
	in := slurmPorts
	if n.Ports != (Ports{}) {
		in = n.Ports
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(env.text("SLURM_JOB_ID") + "." + env.text("SLURM_STEP_ID"))) // a hash takes all
	return places(host, in, int(h.Sum32()%uint32(in.High-in.Low+1))), nil
}

// firstHost is the first name of a list as Slurm writes them: of "n[07-09,12],x" n07.
func firstHost(list string) string {
	var out strings.Builder
	for list != "" {
		i := strings.IndexAny(list, "[,")
		if i < 0 {
			out.WriteString(list)
			break
		}
		out.WriteString(list[:i])
		if list[i] == ',' {
			break
		}
		inside, behind, closed := strings.Cut(list[i+1:], "]")
		if !closed {
			return ""
		}
		if j := strings.IndexAny(inside, "-,"); j >= 0 {
			inside = inside[:j]
		}
		out.WriteString(inside)
		list = behind
	}
	return out.String()
}
