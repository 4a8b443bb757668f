package cli

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"

	"github.com/lockstep-ml/lockstep/core/launch/procs"
)

// The variables that stand for flags which are the same for all runs of a user.
const (
	tokenVariable      = "LOCKSTEP_TOKEN"
	rendezvousVariable = "LOCKSTEP_RENDEZVOUS"
)

// network is what flags say of agents on several hosts.
type network struct {
	agent                        int
	rendezvous, token, on, ports string
	cert, key, authority         string
	localRank                    int // as launchers of old pass it
}

// NetworkFlags are those that belong to --expect-agents.
func NetworkFlags() []string {
	return []string{"agent", "rendezvous", "token-file", "interface", "ports", "tls-cert", "tls-key", "tls-ca", "local-rank", "local_rank"}
}

func (n *network) flags(f *pflag.FlagSet) {
	f.IntVar(&n.agent, "agent", -1, "with --expect-agents: which of them this process is, from 0, where no launcher says it")
	f.StringVar(&n.rendezvous, "rendezvous", "", "where agent 0 listens and the others go, `HOST:PORT` (default: "+rendezvousVariable+", or what the launcher says)")
	f.StringVar(&n.token, "token-file", "", "`FILE` with a secret that all agents know, for its user's eyes alone (default: "+tokenVariable+" holds it); off loopback there must be one")
	f.StringVar(&n.on, "interface", "", "where agents of this host listen: a `NAME`, address or CIDR (default: the address from which the route to agent 0 goes)")
	f.StringVar(&n.ports, "ports", "", "`RANGE` of ports at which ranks listen, such as 29501-29600 (default: any)")
	f.StringVar(&n.cert, "tls-cert", "", "`FILE` with the certificate of this agent: connections of agents that meet at a rendezvous are then TLS 1.3, and both sides show theirs")
	f.StringVar(&n.key, "tls-key", "", "`FILE` with the certificate's key, for its user's eyes alone")
	f.StringVar(&n.authority, "tls-ca", "", "`FILE` with the certificate of the authority that has issued those of all agents")
	for _, name := range []string{"local-rank", "local_rank"} { // scripts of old launchers pass the one or the other
		f.IntVar(&n.localRank, name, -1, "what LOCAL_RANK says")
		must(f.MarkHidden(name))
	}
}

// network is what the flags, or the variables in their place, say.
func (n *network) network(flags *pflag.FlagSet) (w procs.Network, err error) {
	for _, name := range NetworkFlags() { // a variable of a script that is not set
		if f := flags.Lookup(name); f.Changed && f.Value.String() == "" {
			return w, fmt.Errorf("%s: is given, and empty", name)
		}
	}
	w = procs.Network{Rendezvous: n.rendezvous, Interface: n.on}
	if !flags.Changed("rendezvous") {
		w.Rendezvous = os.Getenv(rendezvousVariable)
	}
	if n.ports != "" {
		if w.Ports, err = procs.ParsePorts(n.ports); err != nil {
			return w, err
		}
	}
	if w.Token, err = secret(n.token); err == nil {
		w.TLS, err = n.secure()
	}
	return w, err
}

// secure is the TLS that the flags ask for; nil where they ask for none.
func (n *network) secure() (*tls.Config, error) {
	switch {
	case n.cert == "" && n.key == "" && n.authority == "":
		return nil, nil
	case n.cert == "" || n.key == "" || n.authority == "":
		return nil, errors.New("tls-cert, tls-key, tls-ca: must be given together, or none of them")
	}
	for _, f := range [][2]string{{"tls-key", n.key}, {"tls-cert", n.cert}, {"tls-ca", n.authority}} {
		if err := regular(f[1]); err != nil {
			return nil, fmt.Errorf("%s %s: %w", f[0], f[1], err)
		}
	}
	info, err := os.Stat(n.key)
	if err == nil {
		err = private(info)
	}
	if err != nil {
		return nil, fmt.Errorf("tls-key %s: %w", n.key, err)
	}
	c, err := procs.TLS(n.cert, n.key, n.authority)
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	return c, nil
}

// regular refuses what is no file before it is opened: a pipe that nobody writes into
// would keep this process for ever.
func regular(file string) error {
	info, err := os.Stat(file)
	if err == nil && !info.Mode().IsRegular() {
		return errors.New("is no file, and must be one")
	}
	return err
}

// maxToken bounds a token.
const maxToken = 4 << 10

// secret is the token of a file, or else of the environment.
func secret(file string) ([]byte, error) {
	held, ok := os.LookupEnv(tokenVariable)
	switch {
	case file == "":
		return bytes.TrimSpace([]byte(held)), nil
	case ok:
		return nil, fmt.Errorf("token-file %s: %s is set too; one of them must go", file, tokenVariable)
	}
	if err := regular(file); err != nil {
		return nil, fmt.Errorf("token-file %s: %w", file, err)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("token-file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil {
		err = private(info)
	}
	if err != nil {
		return nil, fmt.Errorf("token-file %s: %w", file, err)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	if err != nil {
		return nil, fmt.Errorf("token-file: %w", err)
	}
	b = bytes.TrimSpace(b)
	if len(b) < procs.MinToken || len(b) > maxToken {
		return nil, fmt.Errorf("token-file %s: holds %d bytes, must hold %d to %d; make one by %s", file, len(b), procs.MinToken, maxToken, procs.NewToken)
	}
	return b, nil
}

// checkLocalRank holds what a launcher of old passes as a flag against the variable,
// which counts.
func (n *network) checkLocalRank() error {
	if says, ok := os.LookupEnv("LOCAL_RANK"); n.localRank >= 0 && ok && says != fmt.Sprint(n.localRank) {
		return fmt.Errorf("local-rank=%d: LOCAL_RANK=%s says otherwise", n.localRank, says)
	}
	return nil
}
