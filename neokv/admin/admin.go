// Package admin is the control port of a running cluster: HTTP on loopback, by which another process sees the state of
// the cluster and does things to it on purpose. A process that serves a control port says so in a file that only its
// user can read, with a token that every request must show; Find reads these files.
//
//	GET  /v1/status   the state of the cluster, as JSON: neokv.ClusterStatus
//	GET  /v1/plan     what the plan for replicas would do now, as JSON: neokv.Plan
//	POST /v1/do       carries out the fault whose text is the body; as JSON: Done; 400 if the text is wrong or names what
//	                  the cluster does not have, 409 if it cannot be done
//	POST /v1/backup   backs the cluster up to the folder, an absolute path, that is the body; as JSON: neokv.Backup; 409 if
//	                  that fails. It is given up if the request is
package admin

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"neokv.dev/neokv"
	"neokv.dev/neokv/fault"
)

// maxBody bounds what a request may send, in bytes.
const maxBody = 4 << 10

// Port is a control port that listens.
type Port struct {
	server *http.Server
	ln     net.Listener
	token  string
	ended  chan struct{}
}

// Listen serves the control port of a cluster on loopback. Port 0 picks a free one. The caller closes it before the
// cluster. A request begins to be carried out only if it shows the token.
func Listen(c *neokv.Cluster, port int) (*Port, error) {
	ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", fmt.Sprint(port)))
	if err != nil {
		return nil, fmt.Errorf("control port: %w", err)
	}
	p := &Port{ln: ln, token: rand.Text(), ended: make(chan struct{})}
	p.server = &http.Server{
		Handler: Handler(c, p.token), ReadTimeout: 10 * time.Second, MaxHeaderBytes: maxBody,
		IdleTimeout: time.Minute,
	}
	go func() {
		defer close(p.ended)
		p.server.Serve(ln)
	}()
	return p, nil
}

// Addr returns the address of the port, host:port.
func (p *Port) Addr() string { return p.ln.Addr().String() }

// Close ends the port: requests that are under way are cut off.
func (p *Port) Close() error {
	err := p.server.Close()
	<-p.ended
	return err
}

// Handler answers the requests of a control port. Each needs the header "Authorization: Bearer TOKEN".
func Handler(c *neokv.Cluster, token string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, r *http.Request) { answer(w, http.StatusOK, c.Status()) })
	mux.HandleFunc("GET /v1/plan", func(w http.ResponseWriter, r *http.Request) {
		plan, err := c.Plan(r.Context())
		if err != nil {
			refuse(w, http.StatusConflict, err)
			return
		}
		answer(w, http.StatusOK, plan)
	})
	mux.HandleFunc("POST /v1/do", func(w http.ResponseWriter, r *http.Request) {
		var f fault.Fault
		text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err == nil {
			f, err = fault.Parse(string(text))
		}
		if err != nil {
			refuse(w, http.StatusBadRequest, err)
			return
		}
		switch outcome, err := c.Inject(r.Context(), f); {
		case errors.Is(err, neokv.ErrNoRegion), errors.Is(err, neokv.ErrNoStore):
			refuse(w, http.StatusBadRequest, err)
		case err != nil:
			refuse(w, http.StatusConflict, err)
		default:
			answer(w, http.StatusOK, Done{c.Status(), outcome})
		}
	})
	mux.HandleFunc("POST /v1/backup", func(w http.ResponseWriter, r *http.Request) {
		dir, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err == nil && !filepath.IsAbs(string(dir)) {
			err = fmt.Errorf("%q: want an absolute path", dir)
		}
		if err != nil {
			refuse(w, http.StatusBadRequest, err)
			return
		}
		made, err := c.Backup(r.Context(), string(dir))
		if err != nil {
			refuse(w, http.StatusConflict, err)
			return
		}
		answer(w, http.StatusOK, made)
	})
	want := []byte("Bearer " + token)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), want) != 1 {
			refuse(w, http.StatusUnauthorized, errors.New("want the token of this control port"))
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body)
}

// errorBody is the body of an answer that is an error.
type errorBody struct {
	Error string `json:"error"`
}

func refuse(w http.ResponseWriter, status int, err error) { answer(w, status, errorBody{err.Error()}) }

// Done is the answer to a fault that has been carried out: the state of the cluster after it, and what has come of it, as
// neokv.Cluster.Inject says it.
type Done struct {
	neokv.ClusterStatus
	Outcome string `json:"outcome,omitempty"`
}

// InvalidError is the error of a request whose text is wrong, or that names what the cluster does not have.
type InvalidError string

func (e InvalidError) Error() string { return string(e) }

// Status asks for the state of the cluster.
func (a *Announcement) Status(ctx context.Context) (s neokv.ClusterStatus, err error) {
	return s, a.ask(ctx, http.MethodGet, "/v1/status", "", &s)
}

// Plan asks what the plan for replicas and homes would do now.
func (a *Announcement) Plan(ctx context.Context) (plan neokv.Plan, err error) {
	return plan, a.ask(ctx, http.MethodGet, "/v1/plan", "", &plan)
}

// Inject has the cluster carry out a fault. The error is an InvalidError if the cluster does not know what the fault
// names.
func (a *Announcement) Inject(ctx context.Context, f fault.Fault) (d Done, err error) {
	return d, a.ask(ctx, http.MethodPost, "/v1/do", f.String(), &d)
}

// Backup has the cluster back itself up to a folder, an absolute path. If ctx ends, the cluster gives that up.
func (a *Announcement) Backup(ctx context.Context, dir string) (b neokv.Backup, err error) {
	return b, a.ask(ctx, http.MethodPost, "/v1/backup", dir, &b)
}

func (a *Announcement) ask(ctx context.Context, method, path, body string, into any) error {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+a.Addr+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+a.Token)
	client := http.Client{Transport: &http.Transport{Proxy: nil, DisableKeepAlives: true}}
	reply, err := client.Do(r)
	if err != nil {
		return fmt.Errorf("control port %s: %w", a.Addr, err)
	}
	defer reply.Body.Close()
	if reply.StatusCode == http.StatusOK {
		if err := json.NewDecoder(reply.Body).Decode(into); err != nil {
			return fmt.Errorf("control port %s: decode answer: %w", a.Addr, err)
		}
		return nil
	}
	var no errorBody
	if err := json.NewDecoder(io.LimitReader(reply.Body, 1<<20)).Decode(&no); err != nil || no.Error == "" {
		return fmt.Errorf("control port %s: %s", a.Addr, reply.Status)
	}
	if reply.StatusCode == http.StatusBadRequest {
		return InvalidError(no.Error)
	}
	return errors.New(no.Error)
}
