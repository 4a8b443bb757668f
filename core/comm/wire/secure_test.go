package wire_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm/wire"
	"github.com/lockstep-ml/lockstep/internal/authority"
)

func config(t *testing.T, of, trusts *authority.Authority) *tls.Config {
	t.Helper()
	cert, key := of.Issue(time.Now().Add(time.Hour))
	c, err := wire.TLS(cert, key, of.File)
	if err != nil {
		t.Fatal(err)
	}
	if of != trusts {
		cert, key := trusts.Issue(time.Now().Add(time.Hour))
		other, err := wire.TLS(cert, key, trusts.File)
		if err != nil {
			t.Fatal(err)
		}
		c.VerifyConnection = other.VerifyConnection
	}
	return c
}

// Whoever has a certificate of the authority is let in. All others are refused, and
// both sides hear why; a token that fits does not help them.
func TestCertificates(t *testing.T) {
	one, two := authority.New(t), authority.New(t)
	short := time.Now().Add(1100 * time.Millisecond)
	cert, key := one.Issue(short)
	expires, err := wire.TLS(cert, key, one.File)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Until(short.Add(time.Second)))
	bare := config(t, one, one)
	bare.Certificates = nil
	older := config(t, one, one)
	older.MinVersion, older.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	own := config(t, one, one)
	for name, x := range map[string]struct {
		dials       *tls.Config
		there, here string // what dialer and acceptor are told
	}{
		"ours":                  {config(t, one, one), "", ""},
		"of another authority":  {config(t, two, two), "unknown authority", "certificate"},
		"refused by the dialed": {config(t, two, one), "certificate", "unknown authority"},
		"expired":               {expires, "certificate", "expired"},
		"TLS 1.2":               {older, "protocol version", "unsupported versions"},
		"without a certificate": {bare, "certificate required", "didn't provide a certificate"},
		"without TLS":           {nil, "may want TLS", "handshake"},
		"TLS alone":             {config(t, one, one), "does not look like a TLS handshake", "it begins TLS, which this side was not given"},
	} {
		t.Run(name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			told := make(chan string, 1)
			terms := func(c *tls.Config, self int) *wire.Terms {
				return &wire.Terms{Run: "r", Identity: "i", Token: []byte("t"), TLS: c, Self: self, World: 2, Called: "rank"}
			}
			mine := own
			if name == "TLS alone" {
				mine = nil
			}
			go terms(mine, 0).Serve(ln, func(g *wire.Guest) { told <- ""; _ = g.Welcome() }, func(r wire.Refused) {
				if r.Ours {
					t.Error("it is taken for one of this run")
				}
				told <- r.Err.Error()
			})
			conn, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			dials := terms(x.dials, 1)
			_, err = dials.Greet(context.Background(), conn, dials.Hello(0))
			if (x.there == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), x.there) {
				t.Errorf("dialer: %v, want %q", err, x.there)
			}
			if refusal := (*wire.Refusal)(nil); x.dials != nil && mine != nil && err != nil && !errors.As(err, &refusal) {
				t.Errorf("dialer: %v: it would try again", err)
			}
			if got := <-told; (x.here == "") != (got == "") || !strings.Contains(got, x.here) {
				t.Errorf("acceptor: %q, want %q", got, x.here)
			}
		})
	}
}

// Certificates of one's own that the others would refuse are refused before.
func TestOwnCertificate(t *testing.T) {
	one, two := authority.New(t), authority.New(t)
	cert, key := one.Issue(time.Now().Add(time.Hour))
	old, oldKey := one.Issue(time.Now().Add(-time.Minute))
	_, otherKey := one.Issue(time.Now().Add(time.Hour))
	none := filepath.Join(t.TempDir(), "none.pem")
	if err := os.WriteFile(none, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	for says, x := range map[string][3]string{
		"unknown authority":      {cert, key, two.File},
		"expired":                {old, oldKey, one.File},
		"does not match":         {cert, otherKey, one.File},
		"holds no certificate":   {cert, key, none},
		"no such file":           {cert + "x", key, one.File},
		"authority: open":        {cert, key, none + "x"},
		"failed to find any PEM": {none, key, one.File},
	} {
		if _, err := wire.TLS(x[0], x[1], x[2]); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}
