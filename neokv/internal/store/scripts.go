package store

import (
	"context"
	"sync"

	"neokv.dev/neokv/internal/lua"
	"neokv.dev/neokv/internal/topology"
)

// This file has the scripts that clients have loaded at a store. They are in memory alone, as in Redis. A store that
// lacks one asks the others, since clients load a script at one store and call it at all.

// scriptAnswer is the answer to the question for a script.
type scriptAnswer struct {
	Text []byte `json:"text"` // nil: the store lacks it
}

// scripts has the scripts of this store, and finds those of others. All methods may run concurrently.
type scripts struct {
	*core
	cluster *clusterMap
	loaded  lua.Scripts
}

// find asks all other stores for a script and keeps it. It returns nil if none has it, as far as they answer.
func (s *scripts) find(sha string) *lua.Script {
	t := s.cluster.Table()
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	answers := make(chan *lua.Script, len(t.Stores))
	var asked sync.WaitGroup
	for _, peer := range t.Stores {
		if peer.ID != s.o.ID {
			asked.Go(func() {
				if x := s.askStore(ctx, peer.ID, sha); x != nil {
					answers <- x
				}
			})
		}
	}
	go func() {
		asked.Wait()
		close(answers)
	}()
	x := <-answers // nil: all have answered, or cannot
	if x != nil {
		s.loaded.Add(x, false)
	}
	return x
}

func (s *scripts) askStore(ctx context.Context, of topology.StoreID, sha string) *lua.Script {
	var a scriptAnswer
	if err := s.ask(ctx, of, message{Script: sha}, &a); err != nil || a.Text == nil {
		return nil
	}
	x, err := lua.Compile(string(a.Text))
	if err != nil || x.SHA != sha {
		return nil // it is damaged: scripts that do not compile are not loaded
	}
	return x
}

// answer answers another store that asks for a script.
func (s *scripts) answer(sha string) scriptAnswer {
	if x := s.loaded.Get(sha); x != nil {
		return scriptAnswer{Text: []byte(x.Text)}
	}
	return scriptAnswer{}
}
