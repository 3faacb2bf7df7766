package redis

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"sync"
)

// This file has the reply of COMMAND DOCS. What it says about commands that Redis has is redis-server's own reply, in
// command_docs.json: one line for each command, by full name, also for commands that are not here. So a new row needs
// no more than its name. The texts are those of Redis 7.0, copyright Salvatore Sanfilippo and others, under the
// three-clause BSD licence.

//go:generate go test -tags redisserver ../server -run TestCommandDocs -update-docs

//go:embed command_docs.json
var commandDocsFile []byte

// commandDoc is what COMMAND DOCS says about a command, without subcommands. The fields have the order of the reply.
type commandDoc struct {
	Summary         string        `json:"summary"`
	Since           string        `json:"since"`
	Group           string        `json:"group"`
	Complexity      string        `json:"complexity,omitempty"`
	Flags           []string      `json:"doc_flags,omitempty"`
	DeprecatedSince string        `json:"deprecated_since,omitempty"`
	ReplacedBy      string        `json:"replaced_by,omitempty"`
	History         [][2]string   `json:"history,omitempty"` // since when, what
	Arguments       []argumentDoc `json:"arguments,omitempty"`
}

// argumentDoc describes an argument of a command, or a block or choice of arguments.
type argumentDoc struct {
	Name            string        `json:"name"`
	Type            string        `json:"type"`
	KeySpec         *int          `json:"key_spec_index,omitempty"`
	Token           string        `json:"token,omitempty"`
	Summary         string        `json:"summary,omitempty"`
	Since           string        `json:"since,omitempty"`
	DeprecatedSince string        `json:"deprecated_since,omitempty"`
	Flags           []string      `json:"flags,omitempty"`
	Arguments       []argumentDoc `json:"arguments,omitempty"`
}

// commandDocs has the docs of Redis's commands by full name. They are read when somebody first asks for them.
var commandDocs = sync.OnceValue(func() (all map[string]*commandDoc) {
	if err := json.Unmarshal(commandDocsFile, &all); err != nil {
		panic(fmt.Sprintf("command_docs.json: %v", err))
	}
	return all
})

// WriteDocs appends the row's entry in COMMAND DOCS: its name, then a map of facts about it.
func (c *Command) WriteDocs(out *Reply) {
	d := commandDocs()[c.FullName()]
	if d == nil {
		d = &commandDoc{Summary: c.Doc.Summary, Since: c.Doc.Since, Group: c.Doc.Group, Complexity: c.Doc.Complexity}
	}
	f := docFacts{out: out}
	f.texts("summary", d.Summary, "since", d.Since, "group", d.Group, "complexity", d.Complexity)
	f.flags("doc_flags", d.Flags)
	f.texts("deprecated_since", d.DeprecatedSince, "replaced_by", d.ReplacedBy)
	if len(d.History) > 0 {
		f.add("history", func() {
			out.Set(len(d.History))
			for _, x := range d.History {
				out.Array(len(x))
				out.BulkString(x[0])
				out.BulkString(x[1])
			}
		})
	}
	f.arguments(d.Arguments)
	if len(c.Sub) > 0 {
		f.add("subcommands", func() {
			out.Map(len(c.Sub))
			for _, s := range c.Sub {
				s.WriteDocs(out)
			}
		})
	}
	out.BulkString(c.FullName())
	out.MapOf(f.pairs...)
}

// docFacts gathers pairs for Reply.MapOf. It leaves out what is empty.
type docFacts struct {
	out   *Reply
	pairs []any
}

func (f *docFacts) add(name string, value any) { f.pairs = append(f.pairs, name, value) }

// texts adds names and texts in turn.
func (f *docFacts) texts(pairs ...string) {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			f.add(pairs[i], pairs[i+1])
		}
	}
}

func (f *docFacts) flags(name string, all []string) {
	if len(all) > 0 {
		f.add(name, func() { f.out.statuses(all) })
	}
}

func (f *docFacts) arguments(all []argumentDoc) {
	if len(all) == 0 {
		return
	}
	f.add("arguments", func() {
		f.out.Array(len(all))
		for i := range all {
			d, x := &all[i], docFacts{out: f.out}
			x.texts("name", d.Name, "type", d.Type)
			if d.KeySpec != nil {
				x.add("key_spec_index", *d.KeySpec)
			}
			x.texts("token", d.Token, "summary", d.Summary, "since", d.Since, "deprecated_since", d.DeprecatedSince)
			x.flags("flags", d.Flags)
			x.arguments(d.Arguments)
			f.out.MapOf(x.pairs...)
		}
	})
}
