// Package authority issues certificates for tests.
package authority

import (
	"crypto/ed25519"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority is one whose certificate is in File.
type Authority struct {
	File string

	t      testing.TB
	dir    string
	cert   *x509.Certificate
	key    ed25519.PrivateKey
	issued int64
}

// New makes an authority that lasts as long as the test.
func New(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, dir: t.TempDir()}
	a.cert = &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "an authority of " + t.Name()}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.File, _, a.key = a.sign("authority", a.cert, nil)
	return a
}

// Issue makes a certificate that lasts until a time, and its key: two files.
func (a *Authority) Issue(until time.Time) (cert, key string) {
	a.t.Helper()
	a.issued++
	c := &x509.Certificate{SerialNumber: big.NewInt(1 + a.issued), Subject: pkix.Name{CommonName: "an agent"}, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until}
	cert, key, _ = a.sign(fmt.Sprint("agent", a.issued), c, a.key)
	return cert, key
}

// sign writes a certificate and its key; without a key of the authority it is its own.
func (a *Authority) sign(name string, c *x509.Certificate, by ed25519.PrivateKey) (cert, key string, own ed25519.PrivateKey) {
	a.t.Helper()
	public, own, err := ed25519.GenerateKey(nil)
	if err != nil {
		a.t.Fatal(err)
	}
	if by == nil {
		by = own
	}
	signed, err := x509.CreateCertificate(nil, c, a.cert, public, by)
	if err != nil {
		a.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, key = filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+".key")
	for file, b := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: signed}, key: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(b), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	return cert, key, own
}
