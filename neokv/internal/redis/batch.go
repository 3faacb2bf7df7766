package redis

// This file has NEOKV BATCH: several writes of one slot as one call. Apply never ends a stage within a call, so all
// writes of a batch become visible together, and a crash takes all of them or none.

// Batch is the subcommand of NEOKV that runs several writes together. Clients, and the programs that embed a cluster,
// use it where a transaction would do no more than write.
var Batch = &Command{
	Name: "batch", Arity: -2, Flags: FlagWrite | FlagDenyOOM | FlagMovableKeys, Write: runBatch,
	Keys: []KeySpec{{Unknown: true, Flags: []string{"RW", "update", "delete"},
		Notes: "A key follows the name of each operation, and operations differ in length"}},
	FindKeys: appendBatchKeys, Reads: Reads{BlindAt: blindInBatch}, Restores: restoresOfBatch,
	Doc: Doc{"Runs operations on keys of one slot, all or none: SET key value, PSETEX key milliseconds value, " +
		"DEL key, PEXPIRE key milliseconds, PERSIST key.", "0.1.0", "server",
		"O(N) where N is the number of operations."},
}

// batchOperation is what may stand in a batch. Its arguments in the batch are those of the command of the same name,
// and that command's function runs it.
type batchOperation struct {
	name string
	args int // the name included
	run  func(*Writer, [][]byte, *Reply) error
	// check, if it is not nil, reports whether run will not reply an error. If run would, check appends the error of
	// the batch.
	check func(*Writer, [][]byte, *Reply) bool
	blind bool // it looks a record up no more often than SET does
	// restores says that it stores a short string again that is not among its arguments, with another expire time.
	restores bool
}

var batchOperations = [...]batchOperation{
	{name: "set", args: 3, run: set, blind: true},
	{name: "psetex", args: 4, run: with((*Writer).setFor, milliseconds), blind: true,
		check: func(w *Writer, args [][]byte, out *Reply) bool {
			_, ok := w.expireTime(batchName, args[2], milliseconds, out)
			return ok
		}},
	{name: "del", args: 2, run: del},
	{name: "pexpire", args: 3, run: with((*Writer).expire, milliseconds), restores: true,
		check: func(w *Writer, args [][]byte, out *Reply) bool {
			_, ok := w.instant(batchName, args[2], milliseconds, out)
			return ok
		}},
	{name: "persist", args: 2, run: persist, restores: true},
}

// batchName is the full name, as errors have it.
var batchName = []byte("neokv|batch")

// firstOperation is the index of the first operation's name in the arguments of a batch.
const firstOperation = 2

// operationAt returns the operation of a batch whose name is args[i], nil if there is none of that name or if some of
// its arguments are missing.
func operationAt(args [][]byte, i int) *batchOperation {
	for k := range batchOperations {
		o := &batchOperations[k]
		if len(args[i]) == len(o.name) && IsOption(args[i], o.name) && i+o.args <= len(args) {
			return o
		}
	}
	return nil
}

// appendBatchKeys appends the positions of a batch's keys. It appends nothing if the operations are not well formed:
// then any region replies the error.
func appendBatchKeys(dst []int, args [][]byte) []int {
	before := len(dst)
	for i := firstOperation; i < len(args); {
		o := operationAt(args, i)
		if o == nil {
			return dst[:before]
		}
		dst = append(dst, i+1)
		i += o.args
	}
	return dst
}

func blindInBatch(args [][]byte, place int) bool {
	o := operationAt(args, place-1)
	return o != nil && o.blind
}

func restoresOfBatch(args [][]byte) (n int) {
	for i := firstOperation; i < len(args); {
		o := operationAt(args, i)
		if o == nil {
			return 0
		}
		if o.restores {
			n++
		}
		i += o.args
	}
	return n
}

// runBatch checks all operations before it runs the first, since nothing takes back what one has written.
func runBatch(w *Writer, args [][]byte, out *Reply) error {
	if len(args) == firstOperation {
		out.Error(ErrSyntax)
		return nil
	}
	for i := firstOperation; i < len(args); {
		o := operationAt(args, i)
		if o == nil {
			out.Error(ErrSyntax)
			return nil
		}
		if o.check != nil && !o.check(w, args[i:i+o.args], out) {
			return nil
		}
		i += o.args
	}
	start := len(out.Buf)
	for i := firstOperation; i < len(args); {
		o := operationAt(args, i)
		w.event = eventOf[o.name]
		if err := o.run(w, args[i:i+o.args], out); err != nil {
			return err
		}
		out.Buf = out.Buf[:start] // the batch has one reply
		i += o.args
	}
	out.OK()
	return nil
}
