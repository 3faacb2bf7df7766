package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"

	"github.com/alexedwards/scs/redisstore"
	"github.com/alexedwards/scs/v2"
	"github.com/gomodule/redigo/redis"
)

// sessions is the example of the README of SCS's redisstore, and a look at all sessions.
func sessions(ctx context.Context, addrs []string) error {
	pool := &redis.Pool{MaxIdle: 10, Dial: func() (redis.Conn, error) { return redis.Dial("tcp", addrs[0]) }}
	defer pool.Close()
	manager := scs.New()
	manager.Store = redisstore.New(pool)

	mux := http.NewServeMux()
	mux.HandleFunc("/put", func(w http.ResponseWriter, r *http.Request) {
		manager.Put(r.Context(), "message", "Hello from a session!")
	})
	mux.HandleFunc("/get", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, manager.GetString(r.Context(), "message"))
	})
	mux.HandleFunc("/end", func(w http.ResponseWriter, r *http.Request) { manager.Destroy(r.Context()) })
	server := httptest.NewServer(manager.LoadAndSave(mux))
	defer server.Close()
	client := server.Client()
	client.Jar, _ = cookiejar.New(nil)

	get := func(path string) (string, error) {
		reply, err := client.Get(server.URL + path)
		if err != nil {
			return "", err
		}
		defer reply.Body.Close()
		body, err := io.ReadAll(reply.Body)
		return string(body), err
	}
	for _, step := range []struct{ path, want string }{
		{"/put", ""}, {"/get", "Hello from a session!"}, {"/end", ""}, {"/get", ""}, {"/put", ""},
	} {
		if got, err := get(step.path); err != nil || got != step.want {
			return fmt.Errorf("%s: %q, %v", step.path, got, err)
		}
	}
	n := 0
	if err := manager.Iterate(ctx, func(context.Context) error { n++; return nil }); err != nil || n != 1 {
		return fmt.Errorf("Iterate: %d sessions, %v", n, err)
	}
	return nil
}
