package workloads

import (
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// Shifted returns the file of a workload that is like w, but for the shares of the operations that only read: they are
// multiplied by factor. ok is false unless w has such operations and others, too.
func (w *Workload) Shifted(factor float64) (text []byte, ok bool) {
	reads := func(op Op) bool { return op.Reads }
	if !slices.ContainsFunc(w.Ops, reads) || !slices.ContainsFunc(w.Ops, func(op Op) bool { return !op.Reads }) {
		return nil, false
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(w.Text, &doc); err != nil {
		panic(err) // it has been read before
	}
	root := doc.Content[0]
	mix := root.Content[slices.IndexFunc(root.Content, func(n *yaml.Node) bool { return n.Value == "mix" })+1]
	for i, op := range w.Ops {
		share := op.Share
		if op.Reads {
			share *= factor
		}
		setShare(mix.Content[i], share)
	}
	text, err := yaml.Marshal(&doc)
	return text, err == nil
}

// setShare sets the share of an operation in its file.
func setShare(op *yaml.Node, share float64) {
	value := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!float", Value: strconv.FormatFloat(share, 'g', -1, 64)}
	for i := 0; i+1 < len(op.Content); i += 2 {
		if op.Content[i].Value == "share" {
			op.Content[i+1] = value
			return
		}
	}
	op.Content = append(op.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: "share"}, value)
}
