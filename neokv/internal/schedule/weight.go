package schedule

import (
	"cmp"
	"slices"

	"neokv.dev/neokv/internal/topology"
)

// Weight says how much of a region's size or load lies in a range of its slots. How it is spread within the range is
// not known. The unit is whoever measures it: only its share of the sum counts.
type Weight struct {
	Slots  topology.SlotRange `json:"slots"`
	Amount float64            `json:"amount"`
}

// cut is a place where a region can be split, and what it does to the weight.
type cut struct {
	slot topology.Slot // the first slot of the right side
	left float64       // the share of the weight that stays left of it, 0 to 1
}

// lesser is the share of the lighter side.
func (c cut) lesser() float64 { return min(c.left, 1-c.left) }

// bestCut returns the cut that leaves both sides as near to one half of the weight as can be. Where cuts are equally
// good, as between two sampled slots, it takes the one nearest to the middle of the region. Without weights it is the
// middle. The region has two slots or more. Weights outside of it do not count.
func bestCut(region topology.SlotRange, weights []Weight) cut {
	weights = within(region, weights)
	sum := 0.0
	for _, w := range weights {
		sum += w.Amount
	}
	middle := region.First + topology.Slot(region.Count()/2)
	if sum == 0 {
		return cut{middle, 0.5}
	}
	best, found := cut{}, false
	// offer looks at cuts from the slots first to last, all of which leave as much on the left.
	offer := func(first, last topology.Slot, left float64) {
		first, last = max(first, region.First+1), min(last, region.Last)
		if first > last {
			return
		}
		c := cut{min(max(middle, first), last), left / sum}
		if !found || c.lesser() > best.lesser() {
			best, found = c, true
		}
	}
	left, next := 0.0, region.First
	for _, w := range weights {
		offer(next, w.Slots.First, left)
		if inside := sum/2 - left; inside > 0 && inside < w.Amount {
			n := float64(w.Slots.Count())
			k := min(max(int(n*inside/w.Amount+0.5), 1), w.Slots.Count()-1) // slots of the range on the left
			if k >= 1 {
				at := w.Slots.First + topology.Slot(k)
				offer(at, at, left+w.Amount*float64(k)/n)
			}
		}
		left, next = left+w.Amount, w.Slots.Last+1
	}
	offer(next, region.Last, left)
	return best
}

// Halve returns the slot before which a region of two slots or more is best split by its weights.
func Halve(region topology.SlotRange, weights []Weight) topology.Slot {
	return bestCut(region, weights).slot
}

// heaviest returns the weight with the largest share, and that share. There is one at least.
func heaviest(region topology.SlotRange, weights []Weight) (Weight, float64) {
	weights = within(region, weights)
	sum, top := 0.0, Weight{Slots: region}
	for _, w := range weights {
		sum += w.Amount
		if w.Amount > top.Amount {
			top = w
		}
	}
	if sum == 0 {
		return top, 1
	}
	return top, top.Amount / sum
}

// within returns the weights inside the region, sorted, without those that are nothing or that overlap one before
// them.
func within(region topology.SlotRange, weights []Weight) []Weight {
	out := make([]Weight, 0, len(weights))
	for _, w := range weights {
		inside := w.Slots.First <= w.Slots.Last && region.Contains(w.Slots.First) && region.Contains(w.Slots.Last)
		if inside && w.Amount > 0 {
			out = append(out, w)
		}
	}
	slices.SortStableFunc(out, func(a, b Weight) int { return cmp.Compare(a.Slots.First, b.Slots.First) })
	kept := out[:0]
	for _, w := range out {
		if n := len(kept); n == 0 || kept[n-1].Slots.Last < w.Slots.First {
			kept = append(kept, w)
		}
	}
	return kept
}

// BisectSize finds where in a range of slots the bytes lie. It calls size, which estimates the bytes of a range, once
// for the whole range and then for both halves of the range that is the heaviest so far, steps times at most. So an even
// range is known in steps+1 parts, and a slot that holds nearly all is found with 14 steps. It stops when no range has
// more than its share of 1/(steps+1). The weights are in bytes, sorted, and cover the range, less what is empty.
//
// Both halves are asked for, although one would do if estimates added up. They do not, and the difference would be
// bytes in a half that is empty: enough, next to a very large slot, for a split that leaves nothing on one side.
func BisectSize(region topology.SlotRange, size func(topology.SlotRange) uint64, steps int) []Weight {
	sum := float64(size(region))
	leaves := []Weight{{region, sum}}
	whole := map[topology.Slot]bool{} // the first slots of ranges of which the halves have no bytes that could be seen
	for range steps {
		heavy := -1
		for i, w := range leaves {
			if w.Slots.Count() > 1 && !whole[w.Slots.First] && (heavy < 0 || w.Amount > leaves[heavy].Amount) {
				heavy = i
			}
		}
		if heavy < 0 || leaves[heavy].Amount*float64(steps+1) <= sum {
			break
		}
		w := leaves[heavy]
		half := w.Slots.First + topology.Slot(w.Slots.Count()/2)
		left := topology.SlotRange{First: w.Slots.First, Last: half - 1}
		right := topology.SlotRange{First: half, Last: w.Slots.Last}
		l, r := float64(size(left)), float64(size(right))
		if l+r == 0 {
			whole[w.Slots.First] = true
			continue
		}
		leaves[heavy] = Weight{left, w.Amount * l / (l + r)}
		leaves = slices.Insert(leaves, heavy+1, Weight{right, w.Amount * r / (l + r)})
	}
	return slices.DeleteFunc(leaves, func(w Weight) bool { return w.Amount == 0 })
}
