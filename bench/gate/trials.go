package gate

import (
	"encoding/json"
	"fmt"
	"io"
)

// ReadTrials reads the trials of all sittings, lines of a file to which each trial was appended at once. known reports
// whether a trial is one of what, which names the kind of file in an error.
func ReadTrials[T any](r io.Reader, what string, known func(*T) bool) (out []T, err error) {
	for lines := json.NewDecoder(r); ; {
		var t T
		switch err := lines.Decode(&t); {
		case err == io.EOF:
			return out, nil
		case err != nil || !known(&t):
			return nil, fmt.Errorf("trial %d is not one of %s, or is cut off", len(out)+1, what)
		}
		out = append(out, t)
	}
}
