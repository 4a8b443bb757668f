package kubernetes

import (
	"fmt"
	"strconv"
	"strings"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Check lists what keeps the agents of a manifest from finding each other, or from
// ending together. What a field may hold by itself the cluster's own validation says.
func (m *Manifest) Check() (wrong []string) {
	c := checker{m: m, pod: &m.Job.Spec.Template.Spec}
	c.counts()
	c.names()
	c.container()
	return c.wrong
}

type checker struct {
	m     *Manifest
	pod   *core.PodSpec
	wrong []string
}

// must adds what is wrong unless it is not.
func (c *checker) must(ok bool, format string, args ...any) {
	if !ok {
		c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
	}
}

// counts: there are as many pods at once as agents that each waits for, and none
// comes again.
func (c *checker) counts() {
	job := &c.m.Job.Spec
	c.must(job.CompletionMode != nil && *job.CompletionMode == batch.IndexedCompletion, "completionMode is not Indexed: pods have no numbers")
	completions, parallelism := value(job.Completions), value(job.Parallelism)
	c.must(completions > 0 && completions == parallelism, "completions %d, parallelism %d: each pod waits for all", completions, parallelism)
	agents := c.flag("expect-agents")
	c.must(agents == strconv.Itoa(completions), "--expect-agents=%s, and completions %d", agents, completions)
	c.must(job.BackoffLimit != nil && *job.BackoffLimit == 0, "backoffLimit is not 0: a new pod finds no run")
	c.must(c.pod.RestartPolicy == core.RestartPolicyNever, "restartPolicy %s: a new process finds no run", c.pod.RestartPolicy)
}

// names: the service names the job's pods, and the rendezvous is the first of them.
func (c *checker) names() {
	service, job := c.m.Service, c.m.Job
	c.must(service.Spec.ClusterIP == core.ClusterIPNone, "clusterIP is not None: pods have no names")
	c.must(service.Spec.PublishNotReadyAddresses, "publishNotReadyAddresses: the first pod has no name before it is ready")
	set := labels.Set{batch.JobNameLabel: job.Name} // as the cluster labels them
	for k, v := range job.Spec.Template.Labels {
		set[k] = v
	}
	of := service.Spec.Selector
	c.must(len(of) > 0 && labels.SelectorFromSet(of).Matches(set), "the service selects %v, and pods have %v", of, set)
	c.must(c.pod.Subdomain == service.Name, "subdomain %q is not the service %q", c.pod.Subdomain, service.Name)
	last := fmt.Sprintf("%s-%d", job.Name, value(job.Spec.Completions)-1)
	c.must(len(validation.IsDNS1123Label(last)) == 0, "%q is no host name", last)
	for _, s := range c.pod.TopologySpreadConstraints {
		c.must(s.LabelSelector != nil && labels.SelectorFromSet(s.LabelSelector.MatchLabels).Matches(set), "pods are spread by labels that they do not have")
	}

	host, port, _ := strings.Cut(c.flag("rendezvous"), ":")
	want := fmt.Sprintf("%s-0.%s", job.Name, service.Name)
	c.must(host == want, "--rendezvous is at %q: the first pod is %q", host, want)
	open := false
	for _, p := range service.Spec.Ports {
		open = open || strconv.Itoa(int(p.Port)) == port
	}
	c.must(open, "the service has no port %q", port)
	lo, hi, _ := strings.Cut(c.flag("ports"), "-")
	from, err1 := strconv.Atoi(lo)
	to, err2 := strconv.Atoi(hi)
	at, err3 := strconv.Atoi(port)
	c.must(err1 == nil && err2 == nil && err3 == nil && from <= to && (at < from || to < at), "--ports=%s-%s, and the rendezvous at %s", lo, hi, port)
}

// container: the secret comes from where secrets are, and what is written has a place.
func (c *checker) container() {
	if len(c.pod.Containers) != 1 {
		c.must(false, "%d containers", len(c.pod.Containers))
		return
	}
	only := &c.pod.Containers[0]
	secret := false
	for _, e := range only.Env {
		if e.Name == "LOCKSTEP_TOKEN" {
			secret = e.Value == "" && e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil
		}
	}
	c.must(secret, "LOCKSTEP_TOKEN is not that of a secret")
	volumes := map[string]bool{}
	for _, v := range c.pod.Volumes {
		volumes[v.Name] = true
	}
	written := only.SecurityContext == nil || only.SecurityContext.ReadOnlyRootFilesystem == nil || !*only.SecurityContext.ReadOnlyRootFilesystem
	for _, v := range only.VolumeMounts {
		c.must(volumes[v.Name], "no volume %q", v.Name)
		written = written || v.MountPath == "/tmp" && !v.ReadOnly
	}
	c.must(written, "nothing can be written at /tmp")
	_, limited := only.Resources.Limits[core.ResourceMemory]
	c.must(limited, "no limit of memory: agents on one node take that of each other")
}

// flag is the value of a flag of the first container, given as --name=value.
func (c *checker) flag(name string) string {
	for _, container := range c.pod.Containers {
		for _, arg := range container.Args {
			if v, ok := strings.CutPrefix(arg, "--"+name+"="); ok {
				return v
			}
		}
	}
	return ""
}

func value(n *int32) int {
	if n == nil {
		return 0
	}
	return int(*n)
}
