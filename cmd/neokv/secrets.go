package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"neokv.dev/bench/ab"
	"neokv.dev/profiles"
)

// This file keeps secret settings, such as passwords, out of what others can see: the command line that a result names,
// the arms of ab, and the arguments and environments of child processes.

// environment returns the variables of this process, and takes those with secrets away from the processes that it will
// start.
func environment() []string {
	all := os.Environ()
	for _, e := range all {
		if _, secret := profiles.SplitVariables([]string{e}); secret != nil {
			name, _, _ := strings.Cut(e, "=")
			os.Unsetenv(name)
		}
	}
	return all
}

// secretValue is the value of a flag that may have secrets. shown returns what others may see, one text for each time
// that the flag was given.
type secretValue interface{ shown() []string }

// listValue is the value of a flag that may be repeated. hide says what others may see of each.
type listValue struct {
	into  *[]string
	given []string
	kind  string
	hide  func(text string) string
}

func (v *listValue) Set(text string) error {
	v.given, *v.into = append(v.given, text), append(*v.into, text)
	return nil
}
func (v *listValue) String() string { return strings.Join(v.given, " ") }
func (v *listValue) Type() string   { return v.kind }

func (v *listValue) shown() (out []string) {
	for _, text := range v.given {
		out = append(out, v.hide(text))
	}
	return out
}

// setFlags adds the flags that change settings. They append to set, in the order of the command line.
func setFlags(flags *pflag.FlagSet, set *[]string, help string) {
	flags.Var(&listValue{into: set, kind: "name=value", hide: profiles.Shown}, "set",
		help+", `name=value`; may be repeated")
	flags.Var(&setFromValue{into: set}, "set-from",
		"the same with each line of this `file`; for passwords, which ps shows where --set has them")
}

// setFromValue is the value of --set-from: it reads the file at once.
type setFromValue struct {
	into *[]string
	path string
}

// maxSetFrom bounds the size of a file of settings.
const maxSetFrom = 1 << 20

// Set names no line's content in its error, since it may be a secret.
func (v *setFromValue) Set(path string) error {
	v.path = path
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxSetFrom+1))
	switch {
	case err != nil:
		return err
	case len(text) > maxSetFrom:
		return fmt.Errorf("more than %d bytes", maxSetFrom)
	}
	var wrong []error
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		switch line = strings.TrimSpace(line); {
		case line == "" || line[0] == '#':
		case strings.Contains(line, "="):
			*v.into = append(*v.into, line)
		default:
			wrong = append(wrong, fmt.Errorf("line %d: want name=value", n))
		}
	}
	return errors.Join(wrong...)
}
func (v *setFromValue) String() string { return v.path }
func (v *setFromValue) Type() string   { return "file" }

// commandLine returns the flags of the command line without secrets, so that a file may keep it.
func commandLine(c *cobra.Command) []string {
	words := append([]string{os.Args[0]}, strings.Fields(c.CommandPath())[1:]...)
	c.Flags().Visit(func(f *pflag.Flag) {
		values := []string{f.Value.String()}
		switch v := f.Value.(type) {
		case secretValue:
			values = v.shown()
		case pflag.SliceValue:
			values = v.GetSlice()
		}
		for _, value := range values {
			if f.NoOptDefVal != "" {
				words = append(words, "--"+f.Name+"="+value)
			} else {
				words = append(words, "--"+f.Name, value)
			}
		}
	})
	return words
}

// armValue is the value of a flag that takes the text of an arm.
type armValue string

func (v *armValue) Set(text string) error { *v = armValue(text); return nil }
func (v *armValue) String() string        { return string(*v) }
func (v *armValue) Type() string          { return "arm" }
func (v *armValue) shown() []string       { return []string{shownArm(string(*v))} }

// shownArm returns the text of an arm as others may see it.
func shownArm(text string) string {
	words := strings.Fields(text)
	for i, word := range words {
		if variable, ok := strings.CutPrefix(word, "env="); ok {
			words[i] = "env=" + profiles.ShownVariable(variable)
		} else {
			words[i] = profiles.Shown(word)
		}
	}
	return strings.Join(words, " ")
}

// hideSecrets makes the secret settings of an arm, of all its sources, ones that only its process will see. If they
// have its password, connections will give it.
func hideSecrets(arm *ab.Arm, env []string) {
	arm.Text = shownArm(arm.Text)
	_, inherited := profiles.SplitVariables(env)
	var own, set []string
	arm.Env, own = profiles.SplitVariables(arm.Env)
	arm.Set, set = profiles.Split(arm.Set)
	arm.Secrets = nil
	for _, s := range slices.Concat(inherited, own, set) { // the later ones count
		if password, ok := strings.CutPrefix(s, "redis.requirepass="); ok {
			arm.Secrets, arm.Password = append(arm.Secrets, s), password
		}
	}
}
