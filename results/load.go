package results

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"regexp"
	"strings"
)

// Content is what a file holds that says what a run sends: a workload, a schedule, a recording. A file of the same name
// with other contents is another load.
type Content struct {
	SHA256 string `json:"sha256"` // hexadecimal
	Bytes  int64  `json:"bytes"`
	// Text is the whole of it. It is empty if that has more than MaxContent bytes. Lines that may have a password are
	// left out.
	Text string `json:"text,omitempty"`
}

// MaxContent is how many bytes of a file a header keeps at most.
const MaxContent = 64 << 10

// ContentOf describes a text.
func ContentOf(text []byte) *Content {
	s := NewContentSum()
	_, _ = s.Write(text)
	return s.Content()
}

// ContentSum describes a text that is written to it piece by piece.
type ContentSum struct {
	hash  hash.Hash
	bytes int64
	text  []byte
}

var _ io.Writer = (*ContentSum)(nil)

// NewContentSum returns the ContentSum of no text.
func NewContentSum() *ContentSum { return &ContentSum{hash: sha256.New()} }

func (s *ContentSum) Write(p []byte) (int, error) {
	s.bytes += int64(len(p))
	if s.bytes <= MaxContent {
		s.text = append(s.text, p...)
	}
	return s.hash.Write(p)
}

// Content describes what has been written.
func (s *ContentSum) Content() *Content {
	c := &Content{SHA256: hex.EncodeToString(s.hash.Sum(nil)), Bytes: s.bytes}
	if s.bytes <= MaxContent {
		c.Text = withoutPasswords(string(s.text))
	}
	return c
}

// passwordWords are words of Redis commands with passwords.
var passwordWords = regexp.MustCompile(`(?i)\b(auth2?|requirepass|masterauth|masteruser|setuser|key-file-pass)\b`)

func withoutPasswords(text string) string {
	if !passwordWords.MatchString(text) {
		return text
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		if passwordWords.MatchString(line) {
			line = "(left out: this line may have a password)\n"
		}
		b.WriteString(line)
	}
	return b.String()
}

// String names the contents: enough of the hash to tell files apart, and the size.
func (c *Content) String() string {
	if c == nil {
		return ""
	}
	return c.name() + ", " + Count(c.Bytes) + " bytes"
}

// name is String without the size.
func (c *Content) name() string {
	if c == nil {
		return ""
	}
	return "sha256 " + c.SHA256[:min(len(c.SHA256), 12)]
}

// Schedule is what a run does at instants of its measured part. The content has a line for each event.
type Schedule struct {
	Content
	Events int `json:"events"`
	Faults int `json:"faults,omitempty"` // of these
}

// NewSchedule describes events, each `TIME WHAT`. faults is how many of them are faults. It returns nil if there are no
// events.
func NewSchedule(events []string, faults int) *Schedule {
	if len(events) == 0 {
		return nil
	}
	return &Schedule{*ContentOf([]byte(strings.Join(events, "\n") + "\n")), len(events), faults}
}

// String says how many events there are, and if they are few which.
func (s *Schedule) String() string {
	if s == nil {
		return ""
	}
	text := Plural(int64(s.Events), "event")
	if s.Faults > 0 {
		text += ", " + Plural(int64(s.Faults), "fault") + " among them"
	}
	const few = 5
	if s.Events <= few && s.Text != "" {
		return text + ": " + strings.ReplaceAll(strings.TrimSpace(s.Text), "\n", "; ")
	}
	return text + ", " + s.Content.String()
}
