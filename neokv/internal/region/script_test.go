package region

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/topology"
)

// scriptCall makes a call of EVAL: a text, a number of keys, the keys, the arguments.
func scriptCall(text string, rest ...string) redis.Call {
	return redis.NewScriptCall(0, []byte(text), nil, call(rest...).Args)
}

// TestScriptsInEntries: the text of a script is in an entry once, and a call comes back with it.
func TestScriptsInEntries(t *testing.T) {
	var s scripts
	if s.limit(redis.ScriptLimits{Steps: 1, Bytes: 2, Calls: 3}); s.allow(redis.ScriptLimits{}) {
		t.Error("one entry has scripts with other limits")
	}
	long := strings.Repeat("-", 100_000) + "\nreturn 1"
	calls := []redis.Call{scriptCall(long, "1", "k"), scriptCall("return 2", "0", "arg"), scriptCall(long, "0"),
		{Command: redis.Lookup([]byte("set")), Args: words("set k v")}}
	entry := make([]byte, entryHeaderBytes)
	for i := range calls {
		entry = s.appendCall(entry, &calls[i])
	}
	size := len(s.bytes)
	if n, _ := s.addAll(calls); n != 2*len(long)+len("return 2") || len(s.bytes) != size {
		t.Errorf("%d bytes of texts are in the calls, and %d in the entry, before %d", n, len(s.bytes), size)
	}
	many := make([]redis.Call, 100)
	for i := range many {
		many[i] = scriptCall(strings.Repeat(".", i/2), "0")
	}
	for range 2 {
		if s.addAll(many); len(s.texts) != 2+len(many)/2 {
			t.Errorf("%d texts", len(s.texts))
		}
		if s.cut(2, size); len(s.texts) != 2 || len(s.bytes) != size || s.known([]byte("....")) >= 0 ||
			s.known(bytes.Repeat([]byte("."), 40)) >= 0 || s.known([]byte(long)) != 0 {
			t.Error("what was added is not cut off")
		}
	}
	entry = s.appendGroup(entry, redis.GroupExec, 0, calls)
	new(entryHeader).put(entry)
	entry = appendTrailer(append(entry, s.bytes...), len(s.bytes), 0, false, nil, 7)
	if len(entry) > len(long)+500 {
		t.Errorf("an entry of %d bytes", len(entry))
	}
	h, units, err := parseEntry(entry)
	if err != nil {
		t.Fatal(err)
	}
	texts, limits, err := parseScripts(h.scripts, nil)
	if err != nil || limits != s.limits || len(texts) != 2 {
		t.Fatal(len(texts), limits, err)
	}
	for i := 0; len(units) > 0; {
		var u unit
		var args [][]byte
		if u, args, units, err = parseUnit(units, nil); err != nil {
			t.Fatal(err)
		}
		if u.kind != 0 {
			units = u.calls
			continue
		}
		if err := withText(args, texts); err != nil {
			t.Fatal(err)
		}
		if want := calls[i%len(calls)].Args; !slices.EqualFunc(args, want, bytes.Equal) {
			t.Errorf("call %d comes back as %.200q; want %.200q", i, args, want)
		}
		i++
	}
	for _, b := range []string{"\x09", "\x02", "\x02\x80", "\x02\x01\x02\x03\x09return"} {
		if texts, _, err := parseScripts([]byte(b), nil); err == nil {
			t.Errorf("parseScripts(%q) = %q", b, texts)
		}
	}
	for _, text := range []string{"", "\x02", "\x80", "\x00\x00"} {
		args := scriptCall(text, "0").Args
		if err := withText(args, texts); err == nil {
			t.Errorf("script %q of 2 is %.20q", text, args[3])
		}
	}
}

// entryOfScripts makes one log entry of calls, some of them scripts.
func entryOfScripts(index uint64, limits redis.ScriptLimits, calls ...redis.Call) multiraft.Entry {
	var s scripts
	s.limit(limits)
	entry := entryOf(index)
	for i := range calls {
		entry.Cmd = s.appendCall(entry.Cmd, &calls[i])
	}
	entry.Cmd = appendTrailer(append(entry.Cmd, s.bytes...), len(s.bytes), 0, false, nil, 0)
	return entry
}

// TestScriptsAtApply: a script's calls take effect, those of one that exceeds a limit do not.
func TestScriptsAtApply(t *testing.T) {
	const writes = "redis.call('set', KEYS[1], 'v' .. ARGV[1]) redis.call('rpush', '{foo}l', 'a', 'b') "
	limits := redis.ScriptLimits{Steps: 10_000, Bytes: 100_000, Calls: 10}
	value := func(r still, key string) string {
		t.Helper()
		v := r.o.Engine.NewView()
		defer v.Close()
		run := redis.Run{Calls: []redis.Call{{Command: redis.Lookup([]byte("get")), Args: words("get " + key)}}}
		if err := (&redis.Reader{View: v, Slots: topology.SlotRange{Last: topology.SlotCount - 1}}).Execute(&run); err != nil {
			t.Fatal(err)
		}
		return string(run.Out.Buf)
	}
	for _, x := range []struct {
		text string
		want string
	}{
		{"return 1", "$5\r\nv1111\r\n"},
		{"error('x')", "$5\r\nv1111\r\n"},
		{"return redis.call('incr', '{foo}l')", "$5\r\nv1111\r\n"},
		{"while true do end", "$-1\r\n"},
		{"local s = 'x' while true do s = s .. s end", "$-1\r\n"},
		{"for i = 1, 9 do redis.call('ping') end", "$-1\r\n"},
	} {
		r := openStill(t, disk.Mem())
		entry := entryOfScripts(1, limits, scriptCall(writes+x.text, "1", "{foo}k", "1111"))
		if _, err := r.machine.Update([]multiraft.Entry{entry}); err != nil || r.fs.Failed() != nil {
			t.Fatal(err, r.fs.Failed())
		}
		if got := value(r, "{foo}k"); got != x.want {
			t.Errorf("%s: the key holds %q; want %q", x.text, got, x.want)
		}
		if got := len(r.content(t)); (got == 1) != (x.want[1] != '5') {
			t.Errorf("%s: %d records, the region state among them", x.text, got)
		}
		r.close(t)
	}
}

// TestScriptsOfAGroup: the scripts of a transaction share the limits of one; those of other units do not.
func TestScriptsOfAGroup(t *testing.T) {
	for _, text := range []string{ // each takes a tenth of a limit, or a little more
		"for i = 1, 1000 do end", "local s = ('x'):rep(10000)", "for i = 1, 9 do redis.call('ping') end",
	} {
		r := openStill(t, disk.Mem())
		script := scriptCall("redis.call('incr', KEYS[1]) "+text, "1", "{foo}k")
		var s scripts
		s.limit(redis.ScriptLimits{Steps: 10_000, Bytes: 100_000, Calls: 100})
		units := s.appendGroup(nil, redis.GroupExec, 0, slices.Repeat([]redis.Call{script}, 20))
		for range 20 {
			units = s.appendCall(units, &script)
		}
		entry := entryOfUnits(1, units, nil, nil, &s)
		if _, err := r.machine.Update([]multiraft.Entry{entry}); err != nil || r.fs.Failed() != nil {
			t.Fatal(err, r.fs.Failed())
		}
		if ended := r.machine.writer.ScriptsEnded; ended < 8 || ended > 16 {
			t.Errorf("%s: %d of 20 scripts in a group and of as many by themselves are ended; want those behind the "+
				"first few of the group", text, ended)
		}
		r.close(t)
	}
}
