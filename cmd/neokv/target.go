package main

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"neokv.dev/bench"
)

// targetHelp says what a target is, in the help of verbs that take one.
const targetHelp = `A target is ` + bench.TargetForms + `.
The settings load.password and --user say who connects, unless the URL does. With --tls, as with rediss://, connections
are made in TLS, and the server's certificate must be good for its host: for --sni if that is given, and by --cacert in
place of the system's authorities.`

// targetFlags say how connections to a server that runs begin. The names are those of redis-cli.
type targetFlags struct {
	flags         *pflag.FlagSet
	prefix        string // of a message about a target
	user          string
	tls, insecure bool
	ca, cert, key string
	sni           string
}

// register registers the flags. Messages about a target begin with the prefix and the word target.
func (f *targetFlags) register(flags *pflag.FlagSet, prefix string) {
	f.flags, f.prefix = flags, prefix
	flags.StringVar(&f.user, "user", "", "`name` of the user who connects (default that of the server)")
	flags.BoolVar(&f.tls, "tls", false, "connect in TLS")
	flags.StringVar(&f.ca, "cacert", "", "PEM `file` of the authorities that may have signed the server's certificate")
	flags.StringVar(&f.cert, "cert", "", "PEM `file` of the client's certificate")
	flags.StringVar(&f.key, "key", "", "PEM `file` of its key")
	flags.StringVar(&f.sni, "sni", "", "`name` of the server in TLS (default its host)")
	flags.BoolVar(&f.insecure, "insecure", false, "take any certificate of the server")
}

// tlsFlags are those that say something only in TLS.
var tlsFlags = []string{"cacert", "cert", "key", "sni", "insecure"}

// read reads targets. Its error lists everything that is wrong with them and the flags.
func (f *targetFlags) read(texts []string, password string) (addrs []string, logins []bench.Login, err error) {
	var wrong mistakes
	inTLS := f.tls
	for _, text := range texts {
		addr, login, err := bench.ParseTarget(text)
		wrong.check(err == nil, "%s%v", f.prefix, err)
		inTLS = inTLS || login.TLS != nil
		if f.user != "" {
			wrong.check(login.User == "" || login.User == f.user, "--user %s: %starget %q names another one", f.user,
				f.prefix, bench.ShownTarget(text))
			login.User = f.user
		}
		login.Password = cmp.Or(login.Password, password)
		addrs, logins = append(addrs, addr), append(logins, login)
	}
	if !inTLS {
		for _, name := range tlsFlags {
			wrong.check(!f.flags.Changed(name), "--%s is for TLS; want --tls or rediss://", name)
		}
		return addrs, logins, errors.Join(wrong...)
	}
	config, err := f.tlsConfig()
	wrong.check(err == nil, "%v", err)
	for i := range logins {
		if f.tls || logins[i].TLS != nil {
			logins[i].TLS = config
			wrong.check(!strings.HasPrefix(addrs[i], "unix:") || f.sni != "" || f.insecure,
				"%starget %q: a socket has no host; want --sni", f.prefix, bench.ShownTarget(texts[i]))
		}
	}
	return addrs, logins, errors.Join(wrong...)
}

// tlsConfig reads the files of the flags.
func (f *targetFlags) tlsConfig() (*tls.Config, error) {
	config := &tls.Config{ServerName: f.sni, InsecureSkipVerify: f.insecure}
	var wrong []error
	if f.ca != "" {
		text, err := os.ReadFile(f.ca)
		config.RootCAs = x509.NewCertPool()
		if err == nil && !config.RootCAs.AppendCertsFromPEM(text) {
			err = fmt.Errorf("%s: no certificate in it", f.ca)
		}
		if err != nil {
			wrong = append(wrong, fmt.Errorf("--cacert: %w", err))
		}
	}
	switch {
	case (f.cert == "") != (f.key == ""):
		wrong = append(wrong, errors.New("--cert and --key go together"))
	case f.cert != "":
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("--cert, --key: %w", err))
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, errors.Join(wrong...)
}

// shownTargets is the text of --target, whose passwords nobody sees.
type shownTargets string

func (v *shownTargets) Set(text string) error { *v = shownTargets(text); return nil }
func (v *shownTargets) String() string        { return string(*v) }
func (v *shownTargets) Type() string          { return "target,..." }

func (v *shownTargets) shown() []string {
	words := strings.Split(string(*v), ",")
	for i, word := range words {
		words[i] = bench.ShownTarget(word)
	}
	return []string{strings.Join(words, ",")}
}
