package bench

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path"
	"strings"
	"time"
)

// Login says how a connection to a target begins. The zero value sends nothing first.
type Login struct {
	User     string // of AUTH; empty for the default user
	Password string // sent first, unless this and User are empty
	// TLS, unless it is nil, is the configuration of TLS. If it names no server, the host of an address is the name.
	TLS *tls.Config
}

// unixPrefix begins the address of a Unix socket: unix:///run/redis.sock.
const unixPrefix = "unix://"

// isUnix reports whether an address is that of a Unix socket.
func isUnix(addr string) bool { return strings.HasPrefix(addr, unixPrefix) }

// TargetForms says what ParseTarget takes.
const TargetForms = "host:port, redis://[USER[:PASSWORD]@]HOST[:PORT], rediss:// for TLS, or unix:///PATH"

// redisPort is the port of a URL that names none.
const redisPort = "6379"

// ParseTarget reads where a server is, in one of TargetForms. It returns the address as Options.Targets takes it. The
// error names no password.
func ParseTarget(text string) (addr string, login Login, err error) {
	scheme, _, isURL := strings.Cut(text, "://")
	bad := func(why string) (string, Login, error) {
		return "", Login{}, fmt.Errorf("target %q: %s", ShownTarget(text), why)
	}
	switch {
	case !isURL && strings.Contains(text, "@"): // it may be what follows a comma in a password
		return "", login, errors.New("target with a user or a password: want redis:// in front, and %2C for a comma")
	case !isURL && CheckTarget(text) != nil:
		return bad("want " + TargetForms)
	case !isURL:
		return text, login, nil
	}
	u, err := url.Parse(text)
	if err != nil { // its text may have the password
		return bad("want " + TargetForms)
	}
	if u.User != nil {
		login.User = u.User.Username()
		login.Password, _ = u.User.Password()
	}
	switch {
	case u.RawQuery != "" || u.Fragment != "":
		return bad("want nothing behind the address; flags and settings say the rest")
	case scheme == "unix" && (u.Host != "" || !path.IsAbs(u.Path)):
		return bad("want the whole path of a socket: unix:///run/redis.sock")
	case scheme == "unix":
		return unixPrefix + u.Path, login, nil
	case scheme != "redis" && scheme != "rediss":
		return bad("want " + TargetForms)
	case u.Path != "" && u.Path != "/" && u.Path != "/0":
		return bad("want database 0, the only one of a cluster")
	case u.Hostname() == "":
		return bad("want a host")
	}
	if scheme == "rediss" {
		login.TLS = &tls.Config{}
	}
	port := u.Port()
	if port == "" {
		port = redisPort
	}
	return net.JoinHostPort(u.Hostname(), port), login, nil
}

// ShownTarget returns the text of a target as others may see it.
func ShownTarget(text string) string {
	scheme, rest, isURL := strings.Cut(text, "://")
	at := strings.LastIndex(rest, "@")
	switch u, err := url.Parse(text); {
	case !isURL:
		return text
	case at >= 0:
		if user, _, given := strings.Cut(rest[:at], ":"); given {
			return scheme + "://" + user + ":(set)" + rest[at:]
		}
		return text
	case err != nil || u.Hostname() == "" && u.Path == "": // it may be what stands before a comma in a password
		return scheme + "://(...)"
	}
	return text
}

// CheckTarget says what is wrong with the address of a target, nil if nothing is.
func CheckTarget(addr string) error {
	if isUnix(addr) {
		return nil
	}
	if host, port, err := net.SplitHostPort(addr); err != nil || host == "" || port == "" {
		return fmt.Errorf("target %q: want host:port", addr)
	}
	return nil
}

// dialFunc makes a connection to an address.
type dialFunc = func(ctx context.Context, addr string) (net.Conn, error)

// dialer returns a function that makes connections as dial does, over TCP or a Unix socket if that is nil, and begins
// them as login says.
func dialer(dial dialFunc, login Login) dialFunc {
	if dial == nil {
		dial = func(ctx context.Context, addr string) (net.Conn, error) {
			if socket, ok := strings.CutPrefix(addr, unixPrefix); ok {
				return new(net.Dialer).DialContext(ctx, "unix", socket)
			}
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		}
	}
	if login.TLS != nil {
		dial = overTLS(dial, login.TLS)
	}
	if login.User == "" && login.Password == "" {
		return dial
	}
	return func(ctx context.Context, addr string) (net.Conn, error) {
		return authenticated(ctx, dial, addr, login)
	}
}

// overTLS returns a function that makes connections as dial does, and a TLS handshake.
func overTLS(dial dialFunc, config *tls.Config) dialFunc {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		nc, err := dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		own := config
		if config.ServerName == "" {
			own = config.Clone()
			own.ServerName, _, _ = net.SplitHostPort(addr)
		}
		secured := tls.Client(nc, own)
		if err := secured.HandshakeContext(ctx); err != nil {
			nc.Close()
			return nil, fmt.Errorf("TLS: %w", err)
		}
		return secured, nil
	}
}

// authenticated makes a connection and sends the user and the password.
func authenticated(ctx context.Context, dial dialFunc, addr string, login Login) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	nc, err := dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	c := loadConn{epoch: time.Now(), timeout: askTimeout}
	c.attach(nc)
	stop := context.AfterFunc(ctx, func() { nc.Close() })
	if login.User == "" {
		_, err = c.call("AUTH", login.Password)
	} else {
		_, err = c.call("AUTH", login.User, login.Password)
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("AUTH: %w", err)
	}
	return nc, nil
}

// Serves returns an error that says what is missing, unless a server answers and serves: a Redis its data, a node of a
// cluster all slots.
func Serves(ctx context.Context, addr string, login Login) error {
	t := &target{dial: dialer(nil, login)}
	info, err := t.fields(ctx, addr, "INFO")
	if err != nil {
		return fmt.Errorf("%s: %w", addr, err)
	}
	switch {
	case info["redis_version"] == "":
		return fmt.Errorf("%s: %w: no Redis", addr, errProtocol)
	case info["loading"] == "1":
		return fmt.Errorf("%s: it loads its data", addr)
	case info["cluster_enabled"] == "1":
		return t.servesSlots(ctx, addr)
	}
	// A proxy port counts the keys of all regions, so each must have a leader.
	if _, err := t.ask(ctx, addr, "DBSIZE"); err != nil {
		return fmt.Errorf("%s: %w", addr, err)
	}
	return nil
}

// servesSlots returns an error unless a node of a cluster knows that every slot is served, and by nodes that it has
// met.
func (t *target) servesSlots(ctx context.Context, addr string) error {
	fields, err := t.fields(ctx, addr, "CLUSTER", "INFO")
	if err != nil {
		return fmt.Errorf("%s: %w", addr, err)
	}
	if fields["cluster_state"] != "ok" || fields["cluster_slots_ok"] != "16384" {
		return fmt.Errorf("%s: state %s, %s of 16384 slots served", addr, fields["cluster_state"],
			fields["cluster_slots_ok"])
	}
	return nil
}

// AwaitServing asks a server every tenth of a second until it serves. It gives up when ctx ends, at a refusal that no
// waiting changes, such as a wrong password, or when the time is over; it asks once at least.
func AwaitServing(ctx context.Context, addr string, login Login, late time.Time) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := Serves(ctx, addr, login)
		if err == nil || ctx.Err() != nil || time.Now().After(late) || final(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// final reports whether waiting does not help against an error.
func final(err error) bool {
	var refused serverError
	var unknown *tls.CertificateVerificationError
	return errors.As(err, &unknown) || errors.As(err, &refused) &&
		(strings.HasPrefix(string(refused), "WRONGPASS") || strings.HasPrefix(string(refused), "NOAUTH") ||
			strings.HasPrefix(string(refused), "NOPERM"))
}
