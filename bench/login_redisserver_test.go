//go:build redisserver

package bench

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
	"strings"
	"testing"
	"time"
)

// certificate writes a certificate for 127.0.0.1 and its key into a folder, signed by an authority of its own, which is
// in the file ca.pem.
func certificate(t *testing.T, dir string) (pair tls.Certificate, authorities *x509.CertPool) {
	t.Helper()
	write := func(name, kind string, bytes []byte) []byte {
		text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes})
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
		return text
	}
	sign := func(of, by *x509.Certificate, key, with *ecdsa.PrivateKey) []byte {
		of.NotBefore, of.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, of, by, &key.PublicKey, with)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	newKey := func() *ecdsa.PrivateKey {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	caKey, key := newKey(), newKey()
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	authorities = x509.NewCertPool()
	authorities.AppendCertsFromPEM(write("ca.pem", "CERTIFICATE", sign(ca, ca, caKey, caKey)))
	of := &x509.Certificate{SerialNumber: big.NewInt(2), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		DNSNames: []string{"redis.example"}}
	certText := write("cert.pem", "CERTIFICATE", sign(of, ca, key, caKey))
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	if pair, err = tls.X509KeyPair(certText, write("key.pem", "EC PRIVATE KEY", der)); err != nil {
		t.Fatal(err)
	}
	return pair, authorities
}

// TestLogin loads a redis-server that wants a user, in TLS with certificates of both sides, and over a Unix socket.
func TestLogin(t *testing.T) {
	dir := t.TempDir()
	pair, authorities := certificate(t, dir)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	secure := free.Addr().String()
	_, port, _ := net.SplitHostPort(secure)
	free.Close()
	socket := filepath.Join(dir, "redis.sock")
	plain := startRedis(t, "--tls-port", port, "--tls-cert-file", filepath.Join(dir, "cert.pem"), "--tls-key-file",
		filepath.Join(dir, "key.pem"), "--tls-ca-cert-file", filepath.Join(dir, "ca.pem"), "--unixsocket", socket,
		"--user", "app", "on", ">secret", "~*", "+@all")
	good := &tls.Config{RootCAs: authorities, Certificates: []tls.Certificate{pair}}
	for _, c := range []struct {
		what, addr string
		login      Login
		says       string // what is wrong; empty for nothing
	}{
		{"a user", plain, Login{User: "app", Password: "secret"}, ""},
		{"a wrong password", plain, Login{User: "app", Password: "x"}, "WRONGPASS"},
		{"TLS", secure, Login{TLS: good}, ""},
		{"TLS and a user", secure, Login{User: "app", Password: "secret", TLS: good}, ""},
		{"another name", secure, Login{TLS: &tls.Config{RootCAs: authorities, Certificates: good.Certificates,
			ServerName: "redis.example"}}, ""},
		{"a name that is not its own", secure, Login{TLS: &tls.Config{RootCAs: authorities, ServerName: "x.example"}},
			"x.example"},
		{"an authority that nobody knows", secure, Login{TLS: &tls.Config{}}, "unknown authority"},
		{"any certificate", secure, Login{TLS: &tls.Config{InsecureSkipVerify: true, Certificates: good.Certificates}}, ""},
		// The alert, or the end of the connection: in TLS 1.3 the server refuses after the handshake.
		{"no certificate of the client", secure, Login{TLS: &tls.Config{RootCAs: authorities}}, secure},
		{"TLS where there is none", plain, Login{TLS: good}, "TLS: "},
		{"a socket", "unix://" + socket, Login{}, ""},
		{"a socket and a user", "unix://" + socket, Login{User: "app", Password: "secret"}, ""},
		{"a socket that is not there", "unix://" + socket + "2", Login{}, "no such file"},
	} {
		err := AwaitServing(t.Context(), c.addr, c.login, time.Now())
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v; want %q", c.what, err, c.says)
		}
		if c.says != "" {
			continue
		}
		s, _ := runFor(t, Options{Targets: []string{c.addr}, Login: c.login, Duration: 50 * time.Millisecond, Seed: 1,
			Groups: []GroupOptions{{Workload: "set", Clients: 2, Pipeline: 4, Records: 10, ValueSize: 10}}, Verify: true})
		if g := s.Groups[0]; g.Total.Count == 0 || len(g.Kinds) > 0 {
			t.Errorf("%s: %d operations, errors %v", c.what, g.Total.Count, g.Kinds)
		}
	}
}
