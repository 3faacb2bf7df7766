// Package profiles gives sets of settings a name: settings of the cluster, its engines and the load on it. A value
// comes from the command line (--set and flags), else from the environment, else from the chosen profile, else from the
// profile `default`; Resolve remembers from which. It refuses everything that is unknown or not allowed, and reports
// all problems together.
package profiles

import (
	"bytes"
	"cmp"
	"embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/viper"

	"neokv.dev/bench"
	"neokv.dev/neokv/settings"
	"neokv.dev/workloads"
)

// EnvPrefix begins the names of environment variables that stand for settings: NEOKV_ENGINE_BLOOM_BITS is
// engine.bloom_bits.
const EnvPrefix = "NEOKV_"

//go:embed *.yaml
var embedded embed.FS

// Profile is everything that a profile sets.
type Profile struct {
	settings.Settings
	Load LoadKnobs `key:"load"`
}

// LoadKnobs is what `neokv bench` sends. The values in default.yaml are the defaults.
type LoadKnobs struct {
	Workload  string         `key:"workload" help:"what to send"` // one of workloads.Names
	Clients   int            `key:"clients" min:"1" max:"10000" help:"connections that send at the same time"`
	Pipeline  int            `key:"pipeline" min:"1" max:"10000" help:"commands that a client sends at once"`
	Rate      string         `key:"rate" help:"operations per second by schedule, of all clients together"`
	Duration  time.Duration  `key:"duration" min:"100ms" max:"168h" help:"how long is measured"`
	Warmup    string         `key:"warmup" help:"how long is sent before that without measuring"`
	Records   int            `key:"records" min:"1" max:"10000000000" help:"keys loaded before, and chosen from"`
	Elements  int            `key:"elements" min:"1" max:"10000" help:"elements that a collection is loaded with"`
	ValueSize settings.Bytes `key:"value_size" min:"1B" max:"64MiB" help:"size of a value"`
	Password  string         `key:"password" secret:"true" help:"password of --target, empty for none"`
	Seed      uint64         `key:"seed" help:"feeds every random choice; 0 picks one, which the result names"`
}

// Fields lists the settings of a profile. Setting a field changes the profile.
func (p *Profile) Fields() []settings.Field {
	fields := settings.Fields(p)
	for i := range fields {
		switch f := &fields[i]; f.Name {
		case "load.workload":
			f.Describe("a workload, or the path of a YAML file")
		case "load.rate":
			f.Check(bench.PaceForms, func(text string) error {
				_, err := bench.ParsePace(text)
				return err
			})
		case "load.warmup":
			f.Check("0s to 1h, or auto", func(text string) error {
				_, _, err := ParseWarmup(text)
				return err
			})
		}
	}
	return fields
}

// ParseWarmup reads load.warmup: how long the warm-up takes, or `auto` if the run is to find its end from the data.
func ParseWarmup(text string) (length time.Duration, auto bool, err error) {
	if text == "auto" {
		return 0, true, nil
	}
	length, err = time.ParseDuration(text)
	if err == nil && (length < 0 || length > time.Hour) {
		err = fmt.Errorf("%s is not from 0s to 1h", length)
	}
	return length, false, err
}

// ValueSources says from where Resolve takes values.
type ValueSources struct {
	Profile string   // name of an embedded profile, or the path of a YAML file; empty for `default`
	Env     []string // NAME=value, as os.Environ returns them
	Set     []string // name=value, as --set takes them
	Flags   []Flag
}

// Flag is a flag of the command line that sets a setting.
type Flag struct{ Flag, Setting, Value string }

// Resolved has the value of every setting, and where it came from.
type Resolved struct {
	Profile
	Name  string // the profile's name as requested
	About string // when to use the profile
	// Notes say what of the profile's model no setting expresses.
	Notes []string

	from map[string]valueOrigin
}

// valueOrigin says which layer a value came from. A layer of a higher rank wins.
type valueOrigin struct {
	rank int
	text string
}

const (
	rankDefault = iota
	rankProfile
	rankEnv
	rankCommandLine
)

// Names lists the embedded profiles, `default` first.
func Names() []string {
	files, err := embedded.ReadDir(".")
	if err != nil {
		panic(err)
	}
	names := []string{"default"}
	for _, f := range files {
		if name := strings.TrimSuffix(f.Name(), ".yaml"); name != "default" {
			names = append(names, name)
		}
	}
	return names
}

// Resolve works out every value. Its error is a settings.Invalid, with all problems.
func Resolve(q ValueSources) (*Resolved, error) {
	r := &resolver{Resolved: &Resolved{Name: cmp.Or(q.Profile, "default"), from: map[string]valueOrigin{},
		Profile: Profile{Settings: settings.Constants()}}}
	r.fields = r.Fields()
	r.file("default", valueOrigin{rankDefault, "default"})
	if r.Name != "default" {
		r.file(r.Name, valueOrigin{rankProfile, "profile " + r.Name})
	}
	r.env(q.Env)
	for _, s := range q.Set {
		if name, value, ok := strings.Cut(s, "="); ok {
			r.set(strings.TrimSpace(name), strings.TrimSpace(value), valueOrigin{rankCommandLine, "--set"})
		} else {
			r.complain("--set "+s, "want name=value")
		}
	}
	for _, f := range q.Flags {
		r.set(f.Setting, f.Value, valueOrigin{rankCommandLine, f.Flag})
	}
	r.followStores()
	r.followWorkload()
	r.validate()
	if err := r.problems.Err(); err != nil {
		return nil, err
	}
	return r.Resolved, nil
}

// resolver is the state of Resolve.
type resolver struct {
	*Resolved
	fields   []settings.Field // of the profile
	problems settings.Invalid
}

func (r *resolver) complain(where, text string) {
	r.problems = append(r.problems, &settings.Problem{Name: where, Text: where + ": " + text})
}

// set stores one value, if the setting exists and the value parses.
func (r *resolver) set(name, value string, from valueOrigin) {
	f, err := settings.Find(r.fields, name)
	if err == nil {
		err = f.Set(value)
	}
	if err != nil {
		r.complain(from.text, err.Error())
		return
	}
	r.from[name] = from
}

// file takes the values of a YAML file. The name is that of an embedded profile, or a path.
func (r *resolver) file(name string, from valueOrigin) {
	where := "profile " + name
	text, err := read(name)
	if err != nil {
		r.complain(where, err.Error())
		return
	}
	r.text(where, text, from)
}

// text takes the values of a YAML text. Besides settings the text may have `about` and a list `notes`.
func (r *resolver) text(where string, text []byte, from valueOrigin) {
	v := viper.New()
	v.SetConfigType("yaml")
	if err := v.ReadConfig(bytes.NewReader(text)); err != nil {
		r.complain(where, cmp.Or(errors.Unwrap(err), err).Error())
		return
	}
	r.About, r.Notes = "", nil
	for _, key := range slices.Sorted(slices.Values(v.AllKeys())) {
		switch key {
		case "about":
			r.About = v.GetString(key)
			continue
		case "notes":
			r.Notes = v.GetStringSlice(key)
			continue
		}
		value := ""
		if x := v.Get(key); x != nil {
			value = fmt.Sprint(x)
		}
		r.set(key, value, from)
	}
}

// read returns the text of a profile. A name with a slash, or with the ending of a YAML file, is a path.
func read(name string) ([]byte, error) {
	if strings.ContainsRune(name, '/') || slices.Contains([]string{".yaml", ".yml"}, path.Ext(name)) {
		return os.ReadFile(name)
	}
	if names := Names(); !slices.Contains(names, name) {
		return nil, errors.New("no such profile" + settings.DidYouMean(name, names))
	}
	return embedded.ReadFile(name + ".yaml")
}

// env takes the values of the variables that begin with EnvPrefix.
func (r *resolver) env(environ []string) {
	settingOf := map[string]string{}
	for _, f := range r.fields {
		settingOf[EnvName(f.Name)] = f.Name
	}
	known := slices.Sorted(maps.Keys(settingOf))
	for _, e := range slices.Sorted(slices.Values(environ)) {
		variable, value, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(variable, EnvPrefix) {
			continue
		}
		if name, ok := settingOf[variable]; ok {
			r.set(name, value, valueOrigin{rankEnv, "env " + variable})
		} else {
			r.complain("env "+variable, "unknown setting"+settings.DidYouMean(variable, known))
		}
	}
}

// EnvName returns the environment variable of a setting.
func EnvName(setting string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(setting, ".", "_"))
}

// followStores lowers the replicas to the number of stores, if the user gave the stores and not the replicas.
func (r *resolver) followStores() {
	stores, replicas := r.from["cluster.stores"], r.from["cluster.replicas"]
	if r.Cluster.Replicas > r.Cluster.Stores && replicas.rank < stores.rank && replicas.rank < rankEnv {
		r.Cluster.Replicas = r.Cluster.Stores
		r.from["cluster.replicas"] = valueOrigin{replicas.rank, "as cluster.stores"}
	}
}

// followWorkload turns the row cache off for a workload that is meant to read from Pebble, if the user chose the
// workload and not the size of the row cache.
func (r *resolver) followWorkload() {
	w, err := workloads.Find(r.Load.Workload)
	if err != nil {
		for line := range strings.Lines(err.Error() + "\n") {
			r.complain(r.from["load.workload"].text, "load.workload: "+strings.TrimSpace(line))
		}
		return
	}
	if !w.Storage {
		return
	}
	workload, cache := r.from["load.workload"], r.from["engine.row_cache"]
	if cache.rank < workload.rank && cache.rank < rankEnv {
		r.Engine.RowCache = 0
		r.from["engine.row_cache"] = valueOrigin{cache.rank, "as load.workload " + w.Name}
	}
}

// validate checks the ranges. A problem names the layer that the value came from.
func (r *resolver) validate() {
	load := slices.DeleteFunc(slices.Clone(r.fields),
		func(f settings.Field) bool { return !strings.HasPrefix(f.Name, "load.") })
	var cluster settings.Invalid
	errors.As(r.Settings.Validate(), &cluster)
	for _, p := range append(cluster, settings.Problems(load)...) {
		if from := r.from[p.Name]; from.rank > rankDefault {
			r.complain(from.text, p.Text)
		} else {
			r.problems = append(r.problems, p)
		}
	}
}

// ResolvedValue is one resolved setting.
type ResolvedValue struct {
	Name, Value, From string
}

// Values lists every setting in the order of the struct.
func (r *Resolved) Values() []ResolvedValue {
	fields := r.Fields()
	out := make([]ResolvedValue, len(fields))
	for i, f := range fields {
		out[i] = ResolvedValue{f.Name, f.Shown(), r.from[f.Name].text}
	}
	return out
}

// Asked reports whether the environment or the command line gave the setting for this very run.
func (r *Resolved) Asked(setting string) bool { return r.from[setting].rank >= rankEnv }
