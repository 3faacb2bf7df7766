package fault

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		text, want string // want is the text again, or "! " and a part of the error
	}{
		{"kill 2", "kill 2"},
		{" kill   3,1,3 ", "kill 1,3"},
		{"kill all keep=50% sync=7", "kill all keep=50% sync=7"},
		{"stop all", "stop all"},
		{"transfer 3 1", "transfer 3 1"},
		{"stepdown 3", "stepdown 3"},
		{"partition 1 2,3", "partition 1 2,3"},
		{"partition 1 all", "partition 1 all"},
		{"link 1 2 delay=20ms jitter=5ms loss=1% bandwidth=1MB", "link 1 2 delay=20ms jitter=5ms loss=1% bandwidth=1MiB"},
		{"link all all one-way cut", "link all all one-way cut"},
		{"link 1 all one-way ok", "link 1 all one-way ok"},
		{"network 3 regions", "network 3 regions"},
		{"network ok", "network ok"},
		{"network us-east-1  eu-west-1 us-east-1b", "network us-east-1 eu-west-1 us-east-1b"},
		{"network 4 regions", `! there is no matrix "4 regions"; want 3 regions, 3 zones, or cloud regions, each perhaps ` +
			`with the letter of a zone, as in us-east-1a us-east-1b eu-west-1: us-east-1, us-east-2, `},
		{"network us-east-1 mars-1 us-east-1x eu-west-1aa",
			"! there is no cloud region mars-1, us-east-1x, eu-west-1aa; want"},
		{"network us-east-1 ok", "! there is no cloud region ok; want"},
		{"network", "! no matrix and no places; want network MATRIX|PLACES|ok"},
		{"disk 2 hang", "disk 2 hang"},
		{"disk 2 ok", "disk 2 ok"},
		{"disk 2 latency=5ms read-errors", "disk 2 latency=5ms read-errors"},
		{"clock 2 +500ms", "clock 2 500ms"},
		{"clock 2 -5s", "clock 2 -5s"},
		{"clock 2 0s", "clock 2 ok"},
		{"clients 1 refuse", "clients 1 refuse"},
		{"heal", "heal"},
		{"fail all get 10%  LOADING   Redis is loading", "fail all GET 10% LOADING Redis is loading"},
		{"fail 2 client|list 100% BUSY", "fail 2 CLIENT|LIST 100% BUSY"},
		{"fail all all 0.5% ERR no", "fail all all 0.5% ERR no"},
		{"fail 1 GET ok", "fail 1 GET ok"},
		{"migrate 7 1 2", "migrate 7 1 2"},
		{"migrate 0-16383 2 1 for 1500ms", "migrate 0-16383 2 1 for 1.5s"},
		{"migrate 7-7 ok", "migrate 7 ok"},

		{"", "! no text; want one of stop, kill,"},
		{"kil 2", `! unknown verb "kil"; did you mean kill?; want one of stop, kill,`},
		{"kill", "! no stores; want kill STORES [keep=SHARE] [sync=N]"},
		{"kill 0", `! stores "0": want numbers from 1 on, or all`},
		{"kill 1,x", "! want numbers from 1 on, or all"},
		{"kill 2 keep=101% sync=-1 now", `! "keep=101%": want a share from 0% to 100%; "sync=-1": want a number from 0 to ` +
			`1000000; unknown property "now": want keep=SHARE, sync=N; want kill`},
		{"kill 2 keep=50", "! want a share from 0% to 100%"},
		{"kill 2 keep=NaN%", "! want a share from 0% to 100%"},
		{"kill 2 keep=1% keep=2%", "! keep stands there twice"},
		{"disk 2", "! no properties; want disk STORES PROPERTIES|ok"},
		{"disk 2 hang=1", `! "hang=1": want no value`},
		{"disk 2 latency", `! "latency": want latency=TIME`},
		{"disk 2 latency=-1s", "! want a time from 0s to 24h0m0s"},
		{"link 1 2 one-way", "! no properties"},
		{"link 1 2 loss=50% reorder=51%", "! loss, duplicate and reorder are 101% together; want at most 100%"},
		{"partition 1,2 2,3", "! a store stands on both sides"},
		{"transfer 1", "! no store; want transfer REGION STORE"},
		{"clock 2 soon", "! is no time from -24h0m0s to 24h0m0s"},
		{"fail all", "! no command; no share and error; want fail STORES COMMAND|all SHARE ERROR|ok"},
		{"fail all GET 10%", `! no error, such as "LOADING `},
		{"fail all GET 0% BUSY", `! "0%": want a share above 0%, or ok`},
		{"fail all GET BUSY", `! "BUSY": want a share from 0% to 100%`},
		{"fail all GET 1% a\x00b", "! want words that can be printed"},
		{"migrate 7", "! no stores; want migrate SLOTS FROM TO [for TIME]|ok"},
		{"migrate -7 1 2", `! slots "-7": want a slot from 0 to 16383, or two as in 100-199`},
		{"migrate 7 1 2 in 3s", `! "1 2 in 3s": want FROM TO, FROM TO for TIME, or ok`},
		{"heal 1", `! "1" is too much; want heal`},
		{strings.Repeat("x", 2000), "! 2000 bytes of text; want at most 1024"},
	} {
		f, err := Parse(c.text)
		if part, wrong := strings.CutPrefix(c.want, "! "); wrong {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("Parse(%.40q) = %v, %v; want an error with %q", c.text, f, err, part)
			}
			continue
		}
		if err != nil || f.String() != c.want {
			t.Errorf("Parse(%q) = %q, %v; want %q", c.text, f, err, c.want)
		}
	}
}

func TestCheck(t *testing.T) {
	f, err := Parse("partition 1,4 5")
	if err != nil {
		t.Fatal(err)
	}
	err = f.Check(3)
	want := `fault "partition 1,4 5": there is no store 4; want 1 to 3; there is no store 5; want 1 to 3`
	if err == nil || err.Error() != want {
		t.Errorf("Check = %v; want %s", err, want)
	}
	if err := f.Check(5); err != nil {
		t.Errorf("Check = %v", err)
	}
}

func TestEnd(t *testing.T) {
	for text, want := range map[string]string{
		"kill 2 keep=50%":             "restart 2",
		"stop all":                    "restart all",
		"pause 1,2":                   "resume 1,2",
		"partition 1 2":               "mend 1 2",
		"link 1 2 one-way delay=1ms":  "link 1 2 one-way ok",
		"network 3 regions":           "network ok",
		"network us-east-1 sa-east-1": "network ok",
		"disk 3 hang":                 "disk 3 ok",
		"clock all 5s":                "clock all ok",
		"clients 1 reset":             "clients 1 ok",
		"fail 1 GET 1% BUSY":          "fail 1 GET ok",
		"transfer 1 2":                "",
		"migrate 1 1 2":               "",
		"heal":                        "",
	} {
		f, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Lasts(); got != (want != "") {
			t.Errorf("%s lasts: %v", text, got)
		}
		if want != "" && f.End().String() != want {
			t.Errorf("the end of %s is %s; want %s", text, f.End(), want)
		}
	}
}

func TestSchedule(t *testing.T) {
	got, err := ParseSchedule("# a comment\nat 1s: kill 2\n\n  at 1.5s for 300ms: pause 1\n")
	if want := "at 1s: kill 2\nat 1.5s for 300ms: pause 1\n"; err != nil || got.String() != want {
		t.Errorf("schedule = %q, %v; want %q", got, err, want)
	}
	_, err = ParseSchedule("kill 2\nat 1s: kill 2\nat x for y: kil 2\nat 1s for 1s: transfer 1 2\nat 1s for 0s: kill 1")
	want := `line 1: event "kill 2": want "at TIME: FAULT" or "at TIME for TIME: FAULT"
line 3: event "at x for y: kil 2": "x" is no time from 0s to 24h0m0s; "y" is no time from 0s to 24h0m0s; fault: unknown verb "kil"; did you mean kill?; want one of ` + list(Verbs()) + `
line 4: event "at 1s for 1s: transfer 1 2": transfer does not last
line 5: event "at 1s for 0s: kill 1": 0s is no time to last`
	if err == nil || err.Error() != want {
		t.Errorf("error = %v\nwant %s", err, want)
	}
}

// TestDraw draws schedules: their text reads back as they are, the cluster has what they hit, every verb and every
// property occurs, and one verb more does not change what others do.
func TestDraw(t *testing.T) {
	o := DrawOptions{Stores: 5, Regions: 8, Length: 20 * time.Second, Verbs: Drawn(), Gap: time.Second}
	var text strings.Builder
	for seed := range uint64(50) {
		s := Draw(rand.New(rand.NewPCG(seed, 1)), o)
		text.WriteString(s.String())
		again, err := ParseSchedule(s.String())
		if err != nil || !reflect.DeepEqual(again, s) {
			t.Fatalf("seed %d reads back as %v, %v; want %v", seed, again, err, s)
		}
		for _, e := range s {
			if err := e.Fault.Check(5); err != nil {
				t.Error(err)
			}
		}
	}
	for _, v := range Verbs() {
		switch v {
		case Resume, Mend, Heal: // these only end others
			continue
		case AddReplica, RemoveReplica: // none is drawn, since a region shall keep its number of replicas
			continue
		case AddStore, Drain, RemoveStore: // nor one of these, since the numbers of a schedule's stores are those of its beginning
			continue
		case Wipe: // nor that: most draws would find another store down, and be refused
			continue
		}
		if !strings.Contains(text.String(), ": "+string(v)+" ") {
			t.Errorf("no %s was drawn", v)
		}
		for _, p := range propertiesIn(v) {
			if !strings.Contains(text.String(), " "+p) {
				t.Errorf("no %s with %s was drawn", v, p)
			}
		}
	}
	given := o
	given.Verbs, given.Slots = []Verb{Split}, []int{100, 16383}
	for _, e := range Draw(rand.New(rand.NewPCG(1, 1)), given) {
		if e.Fault.Verb != Split || !slices.Contains(given.Slots, e.Fault.Slot) {
			t.Errorf("%s was drawn; want a split before one of the slots %d", e.Fault, given.Slots)
		}
	}
	kills := func(s Schedule) Schedule {
		return slices.DeleteFunc(s, func(e FaultEvent) bool { return e.Fault.Verb != Kill })
	}
	of := func(verbs ...Verb) Schedule {
		o := o
		o.Verbs = verbs
		return kills(Draw(rand.New(rand.NewPCG(7, 1)), o))
	}
	if alone, beside := of(Kill), of(Kill, Pause, Disk); len(alone) == 0 || !reflect.DeepEqual(alone, beside) {
		t.Errorf("kills alone:\n%skills beside other faults:\n%s", alone, beside)
	}
}

// propertiesIn are the properties that a verb takes.
func propertiesIn(v Verb) (keys []string) {
	if _, _, choices, among := v.Usage(); choices == "Properties" {
		for _, line := range among {
			keys = append(keys, line[:strings.IndexAny(line, "= ")])
		}
	}
	return keys
}

// FuzzParse reads texts of events: what can be read prints as text that reads back as the same event.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"at 1s: kill 2 keep=50% sync=7", "at 1.2s for 300ms: link 1 2,3 one-way loss=0.000001%",
		"at 0s: disk all latency=1ms bandwidth=1MiB flipped-bit", "at 3s: clock 1 -5s", "at 1s: network 3 regions",
		"at 0s for 1s: network us-east-1a us-east-1b eu-west-1",
		"at 1s for 2s: fail all GET 10% LOADING Redis is loading"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := ParseEvent(text)
		if err != nil {
			return
		}
		again, err := ParseEvent(e.String())
		if err != nil || !reflect.DeepEqual(again, e) {
			t.Errorf("%q is %q, which reads back as %q, %v", text, e, again, err)
		}
	})
}

func TestMatrixDelay(t *testing.T) {
	for _, c := range []struct {
		name     string
		from, to int
		want     time.Duration // there and back
	}{
		{"3 regions", 1, 2, 66 * ms},
		{"3 regions", 1, 3, 64 * ms},
		{"3 regions", 2, 3, 146 * ms},
		{"3 regions", 4, 2, 66 * ms},
		{"3 regions", 5, 9, 146 * ms},
		{"3 regions", 4, 1, ms / 2},
		{"3 regions", 3, 3, 0},
		{"3 zones", 1, 3, ms},
		{"3 zones", 2, 8, ms / 2},
		{"us-east-1 eu-west-1 ap-southeast-1", 1, 2, 70 * ms},
		{"us-east-1 eu-west-1 ap-southeast-1", 1, 3, 212 * ms},
		{"us-east-1 eu-west-1 ap-southeast-1", 3, 2, 182 * ms},
		{"us-east-1 eu-west-1 ap-southeast-1", 4, 6, 212 * ms},
		{"us-east-1 eu-west-1 ap-southeast-1", 2, 5, ms / 2},
		{"us-east-1 eu-west-1 ap-southeast-1", 2, 2, 0},
		{"eu-west-1a eu-west-1b us-east-1c", 1, 2, ms},
		{"eu-west-1a eu-west-1b us-east-1c", 3, 2, 70 * ms},
		{"eu-west-1 eu-west-1b", 1, 2, ms},
		{"sa-east-1", 1, 9, ms / 2},
		{"", 1, 2, 0},
	} {
		there, err := MatrixDelay(c.name, c.from, c.to)
		back, _ := MatrixDelay(c.name, c.to, c.from)
		if there+back != c.want || there != back || err != nil {
			t.Errorf("%s, stores %d and %d: %s there and %s back, %v; want %s together, half each", c.name, c.from, c.to,
				there, back, err, c.want)
		}
	}
	for i, r := range cloudRegions {
		if len(r.roundTrips) != i || regionOf(r.name) != i || regionOf(r.name+"a") != i {
			t.Errorf("%s: %d round trips, row %d; want %d, one to each region above", r.name, len(r.roundTrips),
				regionOf(r.name), i)
		}
		for j, trip := range r.roundTrips {
			if trip < 5 || trip > 500 {
				t.Errorf("%s to %s: %d ms", r.name, cloudRegions[j].name, trip)
			}
		}
	}
	for _, m := range matrices {
		for i, row := range m.roundTrips {
			if len(row) != len(m.roundTrips) {
				t.Errorf("%s: row %d has %d places; want %d", m.name, i, len(row), len(m.roundTrips))
			}
			for j, r := range row {
				if r <= 0 || r != m.roundTrips[j][i] {
					t.Errorf("%s: %s from place %d to %d and %s back", m.name, r, i+1, j+1, m.roundTrips[j][i])
				}
			}
		}
	}
}
