package profiles

import (
	"strings"
	"sync"

	"neokv.dev/neokv/settings"
)

// secretSettings has the names of the secret settings, by their variables of the environment.
var secretSettings = sync.OnceValue(func() map[string]string {
	secret := map[string]string{}
	for _, f := range settings.Fields(&Profile{}) {
		if f.Secret {
			secret[EnvName(f.Name)] = f.Name
		}
	}
	return secret
})

// Shown returns a setting, name=value, as people and files may see it: of a secret only whether there is one.
func Shown(set string) string {
	name, value, _ := strings.Cut(set, "=")
	return shown(set, EnvName(strings.TrimSpace(name)), strings.TrimSpace(value))
}

// ShownVariable is Shown for a variable of the environment, NAME=value.
func ShownVariable(variable string) string {
	name, value, _ := strings.Cut(variable, "=")
	return shown(variable, name, value)
}

func shown(text, variable, value string) string {
	if secretSettings()[variable] == "" || value == "" {
		return text
	}
	name, _, _ := strings.Cut(text, "=")
	return name + "=(set)"
}

// Split parts settings, name=value, into those that everybody may see and the secret ones. The latter have no spaces
// around name and value.
func Split(set []string) (open, secret []string) {
	for _, s := range set {
		name, value, _ := strings.Cut(s, "=")
		if name := secretSettings()[EnvName(strings.TrimSpace(name))]; name != "" {
			secret = append(secret, name+"="+strings.TrimSpace(value))
		} else {
			open = append(open, s)
		}
	}
	return open, secret
}

// SplitVariables parts variables of the environment, NAME=value, into those that everybody may see and those of secret
// settings. It returns the latter as settings, name=value.
func SplitVariables(environ []string) (open, secret []string) {
	for _, e := range environ {
		variable, value, _ := strings.Cut(e, "=")
		if name := secretSettings()[variable]; name != "" {
			secret = append(secret, name+"="+value)
		} else {
			open = append(open, e)
		}
	}
	return open, secret
}
