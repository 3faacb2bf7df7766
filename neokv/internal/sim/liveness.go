package sim

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// soon is how long after the end of all faults the last region may begin to take writes: three election time-outs.
// Raft draws each between raft.election_ticks and twice as many; the longest counts. So there is time for an election
// whose votes stores split that started at one moment. In real time a busy machine makes an election take any time, so
// there only a cluster that hangs is late.
func (s *sim) soon() time.Duration {
	if s.real {
		return hangTime
	}
	k := s.config.Settings.Raft
	return 3 * 2 * k.RTT * time.Duration(k.ElectionTicks)
}

// serves checks that each region takes a write soon. Clients that know nothing of the past try, one after the other,
// since a write that a leader of yesterday has taken may wait for its deadline.
func (s *sim) serves() error { return s.servesWhile(func() bool { return true }) }

// servesWhile is serves, and gives up without an error when wanted returns false.
func (s *sim) servesWhile(wanted func() bool) error {
	const pause = 50 * time.Millisecond
	began := time.Now()
	soon := s.soon()
	all := s.regions()
	took := make([]time.Duration, len(all)) // 0 for none
	var regions sync.WaitGroup
	for region := range all {
		regions.Go(func() {
			served := make(chan struct{})
			var once sync.Once
			var tries sync.WaitGroup
			defer tries.Wait()
			timeout := time.NewTimer(soon)
			defer timeout.Stop()
			for {
				tries.Go(func() {
					c := s.newCaller(400 + region)
					defer c.close()
					c.over = served
					ok, err := c.do(set, s.keyIn(all[region].Slots), "probe")
					s.fail(err)
					if ok {
						once.Do(func() {
							took[region] = time.Since(began) + 1
							close(served)
						})
					}
				})
				select {
				case <-served:
					return
				case <-timeout.C:
					return
				case <-time.After(pause):
					if !wanted() {
						return
					}
				}
			}
		})
	}
	regions.Wait()
	if !wanted() {
		return nil
	}
	var late []string
	for region, d := range took {
		switch {
		case d == 0:
			late = append(late, fmt.Sprintf("slots %v took no write", all[region].Slots))
		case d > soon+1:
			late = append(late, fmt.Sprintf("slots %v took one after %s", all[region].Slots, d))
		}
		s.mu.Lock()
		s.stats.Served = max(s.stats.Served, d)
		s.mu.Unlock()
	}
	if late != nil {
		return found(noAnswer, "after all faults had ended %s; want one in the slots of each region within %s",
			strings.Join(late, ", "), soon)
	}
	return nil
}
