package transport

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"neokv.dev/neokv/internal/topology"
)

func sampleBatch() []pb.Message {
	return []pb.Message{
		{Type: pb.Heartbeat, To: 2, From: 1, ShardID: 7, Term: 3, Commit: 1 << 40, Hint: 1<<64 - 1, HintHigh: 1 << 63},
		{Type: pb.Replicate, To: 2, From: 1, ShardID: 7, Term: 3, LogTerm: 2, LogIndex: 9, Reject: true,
			Entries: []pb.Entry{
				{Term: 3, Index: 10, Type: pb.EncodedEntry, Key: 1<<64 - 1, ClientID: 5, SeriesID: 6, RespondedTo: 7,
					Cmd: []byte("set k v")},
				{Term: 3, Index: 11},
				{Term: 3, Index: 12, Cmd: bytes.Repeat([]byte("x"), 300)},
			}},
		{},
	}
}

func TestBatchRoundTrip(t *testing.T) {
	for _, want := range [][]pb.Message{{}, sampleBatch()} {
		payload := appendBatch(nil, want)
		got, err := decodeBatch([]pb.Message{}, payload)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%d messages: %+v, %v; want %+v", len(want), got, err, want)
		}
		// What was decoded shares nothing with the buffer that it came from.
		clear(payload)
		if !reflect.DeepEqual(got, want) {
			t.Error("the messages changed with the payload")
		}
	}
	// Commands of one message share memory, but no capacity.
	got, _ := decodeBatch(nil, appendBatch(nil, sampleBatch()))
	_ = append(got[1].Entries[0].Cmd, "over"...)
	if got[1].Entries[2].Cmd[0] != 'x' {
		t.Error("appending to a command changed the next one")
	}
}

// Every way to cut a payload short, and every number in it that is too large, is an error.
func TestDamagedBatch(t *testing.T) {
	whole := appendBatch(nil, sampleBatch())
	for n := range whole {
		if _, err := decodeBatch(nil, whole[:n]); err == nil {
			t.Errorf("%d of %d bytes decode", n, len(whole))
		}
	}
	if _, err := decodeBatch(nil, append(whole, 0)); err == nil {
		t.Error("a byte too many decodes")
	}
	if _, err := decodeBatch(nil, binary.AppendUvarint(nil, 1<<60)); err == nil {
		t.Error("2^60 messages in no bytes decode")
	}
	if _, err := decodeBatch(nil, appendBatch(nil, []pb.Message{{Type: pb.InstallSnapshot}})); err == nil {
		t.Error("InstallSnapshot without its snapshot decodes")
	}
}

func TestFrames(t *testing.T) {
	var stream []byte
	var err error
	payloads := []string{"", "a", strings.Repeat("b", firstBuffer), strings.Repeat("c", 3*keptBuffer), "d"}
	for _, p := range payloads {
		if stream, err = appendFrame(stream, requestFrame, []byte(p)); err != nil {
			t.Fatal(err)
		}
	}
	f := frameReader{r: iotestReader{bytes.NewReader(stream)}}
	for i, want := range payloads {
		if kind, got, err := f.next(answerFrame, requestFrame); err != nil || kind != requestFrame ||
			string(got) != want {
			t.Fatalf("frame %d: kind %d, %d bytes, %v; want %d bytes", i, kind, len(got), err, len(want))
		}
	}
	if _, _, err := f.next(requestFrame); err != io.EOF {
		t.Errorf("behind the last frame: %v, want EOF", err)
	}
	if len(f.buf) > keptBuffer {
		t.Errorf("a buffer of %d bytes is kept", len(f.buf))
	}

	one, _ := appendFrame(nil, requestFrame, []byte("hello"))
	for i := range one {
		damaged := bytes.Clone(one)
		damaged[i] ^= 0x40
		f := frameReader{r: bytes.NewReader(damaged)}
		if _, _, err := f.next(requestFrame); err == nil {
			t.Errorf("a bit of byte %d flipped: no error", i)
		}
	}
	f = frameReader{r: bytes.NewReader(one[:len(one)-1])}
	if _, _, err := f.next(requestFrame); err != io.ErrUnexpectedEOF {
		t.Errorf("cut short: %v, want %v", err, io.ErrUnexpectedEOF)
	}
	if b, err := appendFrame([]byte("kept"), helloFrame, make([]byte, maxHello+1)); err == nil || string(b) != "kept" {
		t.Errorf("a frame above its limit: %d bytes, %v", len(b), err)
	}
	// A length that a frame announces takes no memory before the bytes arrive.
	long := binary.BigEndian.AppendUint32(nil, maxBatch)
	f = frameReader{r: bytes.NewReader(append(long, 0, 0, 0, 0, byte(batchFrame), 1, 2, 3))}
	if _, _, err := f.next(batchFrame); err == nil || len(f.buf) > firstBuffer {
		t.Errorf("a frame of %d bytes of which 4 arrive: %v with a buffer of %d bytes", maxBatch, err, len(f.buf))
	}
}

// iotestReader returns a few bytes at a time.
type iotestReader struct{ r io.Reader }

func (r iotestReader) Read(b []byte) (int, error) { return r.r.Read(b[:min(len(b), 1000)]) }

// FuzzFrames reads any bytes as a stream of frames, and any payload as what it may be: never a panic, never more memory
// than a small multiple of what arrived; and what decodes encodes again to something that decodes to the same.
func FuzzFrames(f *testing.F) {
	whole, _ := appendFrame(nil, batchFrame, appendBatch(nil, sampleBatch()))
	f.Add(whole)
	chunk, _ := (&pb.Chunk{ShardID: 1, Data: []byte("data"), Filepath: "f",
		Membership: pb.Membership{Addresses: map[uint64]string{1: "store-1"}}}).Marshal()
	f.Add(chunk)
	f.Add(appendBatch(nil, sampleBatch()))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := frameReader{r: bytes.NewReader(data)}
		for {
			_, payload, err := r.next(batchFrame, chunkFrame, helloFrame)
			if err != nil {
				break
			}
			decodeBatch(nil, payload)
		}
		if len(r.buf) > 2*len(data)+firstBuffer {
			t.Errorf("a buffer of %d bytes for %d", len(r.buf), len(data))
		}
		decodeChunk(data)
		parseHello(data)
		got, err := decodeBatch(nil, data)
		if err != nil {
			return
		}
		again, err := decodeBatch(nil, appendBatch(nil, got))
		if err != nil || !reflect.DeepEqual(got, again) {
			t.Errorf("%+v encodes to %+v, %v", got, again, err)
		}
	})
}

func BenchmarkBatch(b *testing.B) {
	messages, buf := sampleBatch(), []byte(nil)
	var decoded []pb.Message
	b.ReportAllocs()
	for b.Loop() {
		buf, _ = endFrame(appendBatch(begun(buf[:0]), messages), 0)
		var err error
		if decoded, err = decodeBatch(decoded[:0], buf[frameHeader:]); err != nil {
			b.Fatal(err)
		}
	}
}

func begun(b []byte) []byte { b, _ = beginFrame(b, batchFrame); return b }

// TestProof introduces a dialler that knows everything but the secret: its call gets no answer. A dialler that knows
// the secret gets one.
func TestProof(t *testing.T) {
	network := NewTCP(TCP{Listen: func() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") }})
	defer network.Close()
	e := network.NewEndpoint(Options{Store: 1, Handle: func(context.Context, topology.StoreID, []byte) ([]byte, error) {
		return []byte("answer"), nil
	}})
	for _, knows := range []bool{false, true} {
		nc, err := net.Dial("tcp", e.address)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		nc.SetDeadline(time.Now().Add(10 * time.Second))
		c := &peerConn{Conn: nc, frames: frameReader{r: nc}}
		h := hello{helloVersion, forCalls, network.tcp.Cluster, 2, 1}.append(nil)
		if err := c.write(helloFrame, h); err != nil {
			t.Fatal(err)
		}
		_, welcome, err := c.frames.next(welcomeFrame)
		if err != nil {
			t.Fatal(err)
		}
		proof := network.proof(diallerSide, h, welcome[:nonceBytes])
		if !knows {
			proof = bytes.Clone(welcome[nonceBytes:]) // the other side's, sent back
		}
		if err := c.write(proofFrame, proof); err != nil {
			t.Fatal(err)
		}
		c.write(requestFrame, []byte("request")) // may find the connection closed
		_, answer, err := c.frames.next(answerFrame)
		if (err == nil) != knows || knows && string(answer) != "answer" {
			t.Errorf("a dialler who knows the secret %v: %q, %v", knows, answer, err)
		}
	}
}
