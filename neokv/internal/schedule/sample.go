package schedule

import (
	"sync/atomic"

	"neokv.dev/neokv/internal/topology"
)

// sampleEvery is how many commands stand behind one that a SlotTap counts, on average.
const sampleEvery = 64

// SlotSampler counts by slot what a store serves, one command in 64. A store has one, 128 KiB in size. Connections
// count through a SlotTap each; they share nothing until a command is sampled, and then one atomic addition to the
// slot's own counter: no lock, no allocation. One goroutine, the store's heartbeat, calls Fold and Weights.
type SlotSampler struct {
	fresh [topology.SlotCount]atomic.Uint32
	taps  atomic.Uint32
	heat  [topology.SlotCount]float32 // what Fold has collected, decayed
}

// SlotTap is the part of a connection in sampling. The zero value is ready. Only one goroutine at a time may use it.
//
// The gaps between samples are random, 1 to 127. With a fixed gap a pipeline of 64 commands would have the same place
// sampled in every round, and a client that repeats a few keys the same few.
type SlotTap struct {
	left   uint32
	random uint32
}

// Count takes notice of a command for a slot, which the store of a sampler serves.
func (t *SlotTap) Count(at *SlotSampler, slot topology.Slot) {
	if t.left > 1 {
		t.left--
		return
	}
	t.sample(at, slot)
}

// sample also begins the random sequence of a new tap. It depends only on how many taps have begun there before.
func (t *SlotTap) sample(at *SlotSampler, slot topology.Slot) {
	if t.left == 0 {
		t.random = at.taps.Add(1) * 0x9e3779b9
	} else {
		at.fresh[slot%topology.SlotCount].Add(1)
	}
	t.left = t.gap()
}

// gap draws the number of commands until the next sample, evenly from 1 to 2*sampleEvery-1 (the generator is the LCG of
// Numerical Recipes; its upper bits are good enough).
func (t *SlotTap) gap() uint32 {
	t.random = t.random*1664525 + 1013904223
	return 1 + uint32(uint64(t.random)*(2*sampleEvery-1)>>32)
}

// Fold adds the samples since the call before to those of earlier calls, which keep the share keep (0 to 1) of their
// weight. It takes about 50 us.
func (s *SlotSampler) Fold(keep float64) {
	for i := range s.fresh {
		h := s.heat[i]
		if h != 0 {
			if h *= float32(keep); h < 1e-3 { // less than any sample can still matter
				h = 0
			}
		}
		if s.fresh[i].Load() != 0 {
			h += float32(s.fresh[i].Swap(0))
		}
		s.heat[i] = h
	}
}

// Weights returns the samples of a region as most weights at most. A slot with more than 2/most of all has a weight of
// its own, so that a hot one is seen; lighter ones are put together with their neighbours. The unit is samples, so the
// sum tells how good they are.
func (s *SlotSampler) Weights(region topology.SlotRange, most int) []Weight {
	sum, slots := 0.0, 0
	for _, h := range s.heat[region.First : int(region.Last)+1] {
		if h > 0 {
			sum, slots = sum+float64(h), slots+1
		}
	}
	// Any two weights that follow each other have more than unit together, so there are no more than most.
	unit := 2 * sum / float64(most)
	if slots <= most {
		unit = 0
	}
	var out []Weight
	for i := int(region.First); i <= int(region.Last); i++ {
		h, slot := float64(s.heat[i]), topology.Slot(i)
		if h == 0 {
			continue
		}
		if n := len(out); n > 0 && out[n-1].Amount+h <= unit {
			out[n-1].Amount += h
			out[n-1].Slots.Last = slot
		} else {
			out = append(out, Weight{topology.SlotRange{First: slot, Last: slot}, h})
		}
	}
	return out
}
