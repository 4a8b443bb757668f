package wire

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// TLS is the configuration of both sides of connections between processes that show
// each other certificates of one authority, by TLS 1.3. They reach each other by
// numbers, so a certificate's names do not count: who has one of the authority, and the
// token, is of the run.
func TLS(cert, key, authority string) (*tls.Config, error) {
	own, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", cert, key, err)
	}
	pem, err := os.ReadFile(authority)
	if err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("authority %s: holds no certificate", authority)
	}
	chain := make([]*x509.Certificate, len(own.Certificate))
	for i, c := range own.Certificate {
		if chain[i], err = x509.ParseCertificate(c); err != nil {
			return nil, fmt.Errorf("certificate %s: %w", cert, err)
		}
	}
	if err := verify(chain, roots); err != nil { // the others would only say that it is bad
		return nil, fmt.Errorf("certificate %s: %w", cert, err)
	}
	return config(own, roots), nil
}

func config(own tls.Certificate, roots *x509.CertPool) *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{own},
		ClientAuth:   tls.RequireAnyClientCert,
		// Both sides check the other one's certificate by the same rule.
		InsecureSkipVerify:     true,
		SessionTicketsDisabled: true,
		VerifyConnection:       func(s tls.ConnectionState) error { return verify(s.PeerCertificates, roots) },
	}
}

// verify holds a certificate, with those between, against an authority.
func verify(chain []*x509.Certificate, roots *x509.CertPool) error {
	if len(chain) == 0 {
		return errors.New("shows no certificate")
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err
}

// secure is one side's end of a connection: as TLS, where there is to be one.
func (t *Terms) secure(conn net.Conn, side func(net.Conn, *tls.Config) *tls.Conn) (net.Conn, error) {
	if t.TLS == nil {
		return conn, nil
	}
	c := side(conn, t.TLS)
	if err := conn.SetDeadline(time.Now().Add(Patience)); err != nil {
		return nil, err
	}
	if err := c.Handshake(); err != nil {
		return nil, alerted(err)
	}
	return c, conn.SetDeadline(time.Time{})
}

// mistaken is an error of the first note, which may be none but the beginning of TLS: a
// handshake of its version 3.
func mistaken(err error) error {
	if long := (*tooLong)(nil); errors.As(err, &long) && long.size&0xffff == 22|3<<8 {
		return errors.New("it begins TLS, which this side was not given: all agents must be, or none")
	}
	return err
}

// alerted is an error of a handshake; a refusal where one of the sides does not take
// the certificate of the other one.
func alerted(err error) error {
	var op *net.OpError
	var authority x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	if errors.As(err, &op) && op.Op == "remote error" || errors.As(err, &authority) || errors.As(err, &invalid) {
		return &Refusal{Text: err.Error()}
	}
	return fmt.Errorf("handshake: %w", err)
}
