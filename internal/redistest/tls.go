// Certificates for servers that speak TLS, made anew for each test.

package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// TLS names the PEM files of a certificate authority and of the two certificates it
// has signed: the servers' (for 127.0.0.1 and localhost) and a client's.
type TLS struct {
	CA                    string
	ServerCert, ServerKey string
	ClientCert, ClientKey string
}

// NewTLS makes an authority that nobody else trusts; its files go with the test.
func NewTLS(t testing.TB) *TLS {
	t.Helper()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	f := &TLS{file("ca.crt"), file("server.crt"), file("server.key"), file("client.crt"), file("client.key")}
	authority := newIdentity(t, "test authority", nil)
	authority.write(t, f.CA, file("ca.key"))
	newIdentity(t, "redis", authority).write(t, f.ServerCert, f.ServerKey)
	newIdentity(t, "agent", authority).write(t, f.ClientCert, f.ClientKey)
	return f
}

// Client is what a client needs to connect: the authority and its own certificate.
func (f *TLS) Client(t testing.TB) *tls.Config {
	t.Helper()
	own, err := tls.LoadX509KeyPair(f.ClientCert, f.ClientKey)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(f.CA)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}}
}

func (f *TLS) conf(port string) []string {
	return []string{
		"port 0", "tls-port " + port, "tls-auth-clients yes", "tls-replication yes", "tls-cluster yes",
		"tls-ca-cert-file " + strconv.Quote(f.CA),
		"tls-cert-file " + strconv.Quote(f.ServerCert), "tls-key-file " + strconv.Quote(f.ServerKey),
	}
}

type identity struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	der  []byte
}

// newIdentity makes a certificate signed by an authority, or an authority of its own
// when there is none. Servers are clients of each other, so all may be both.
func newIdentity(t testing.TB, name string, authority *identity) *identity {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	made := &identity{cert: cert, key: key}
	if authority == nil {
		authority = made
		cert.IsCA, cert.BasicConstraintsValid = true, true
		cert.KeyUsage, cert.ExtKeyUsage = x509.KeyUsageCertSign, nil
		cert.IPAddresses, cert.DNSNames = nil, nil
	}
	if made.der, err = x509.CreateCertificate(rand.Reader, cert, authority.cert, &key.PublicKey, authority.key); err != nil {
		t.Fatal(err)
	}
	return made
}

func (i *identity) write(t testing.TB, certFile, keyFile string) {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(i.key)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, certFile, "CERTIFICATE", i.der)
	writePEM(t, keyFile, "PRIVATE KEY", key)
}

func writePEM(t testing.TB, file, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
