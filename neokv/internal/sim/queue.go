package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"neokv.dev/neokv/internal/topology"
)

// This file has queues of jobs, one in each of the first regions. Clients push jobs, each of another name. Of the
// workers of a queue, one half takes jobs by BLPOP, the other half by BLMOVE into a list of its own, from where it
// removes them when it is done. A worker waits without a time-out. Now and then it dies while it waits or, with a job
// in its list, before it has removed the job; the next worker of that name finds the job there.
//
// A job that was pushed for certain comes to one worker, and to one only. It may be lost where a worker that has called
// BLPOP got no answer. Every other time who has pushed waits until the queue is empty: else a worker that was forgotten
// would get the next job. In the end each worker gets a last job of its own: whoever waits beside one was forgotten. A
// last job, too, may go with a call that gets no answer; then another one is pushed.

const (
	queueWorkers = 4 // of a queue
	lastJob      = "last"
)

// jobQueues are the queues of a run.
type jobQueues struct {
	s *sim

	mu      sync.Mutex
	pushed  map[string]bool // for certain
	worked  map[string]int  // how many workers got a job
	unheard int             // calls of BLPOP without an answer
	late    [simRegions]int // blocking calls without an answer, of each queue
	waiting [simRegions]int // workers that have not got their last job, of each queue
	served  int             // blocking calls that were answered
	givenUp bool            // nobody calls any more
	open    map[net.Conn]bool
}

// giveUp ends the clients, some of which would wait for ever.
func (q *jobQueues) giveUp() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.givenUp = true
	for nc := range q.open {
		nc.Close()
	}
}

// keep notes a connection, or that it has been closed.
func (q *jobQueues) keep(nc net.Conn, open bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.open[nc] = open; !open || q.givenUp {
		nc.Close()
		delete(q.open, nc)
	}
}

func (q *jobQueues) over() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.givenUp
}

// queueClient is a client that follows redirections.
type queueClient struct {
	q      *jobQueues
	addrs  []string
	addr   string
	asking bool // ASKING comes before the next command
	random *rand.Rand
	w      *respConn
}

func (q *jobQueues) client(i int) *queueClient {
	c := &queueClient{q: q, addrs: q.s.c.Addrs(), random: q.s.random(uint64(2000 + i))}
	if i%3 == 0 {
		c.addrs = []string{q.s.c.ProxyAddr()}
	}
	return c
}

func (c *queueClient) close() {
	if c.w != nil {
		c.q.keep(c.w.nc, false)
		c.w = nil
	}
}

// call calls a command until it is answered, or its outcome is unknown, which is the error then. It gives up waiting
// after a time, 0 for never.
func (c *queueClient) call(wait time.Duration, args ...string) (string, error) {
	for end := time.Now().Add(wait); ; {
		if c.q.over() || wait > 0 && time.Now().After(end) { // a store that lost a region refuses it for ever
			return "", errLate
		}
		if c.w == nil {
			if c.addr == "" {
				c.addr = c.addrs[c.random.IntN(len(c.addrs))]
			}
			dial := c.q.s.c.Dial
			if !c.q.s.config.NoSockets {
				dial = dialTCP
			}
			var nc net.Conn
			var err error
			if nc, err = dial(context.Background(), c.addr); err != nil {
				c.addr = ""
				time.Sleep(10 * time.Millisecond)
				continue
			}
			c.q.keep(nc, true)
			c.w = newWire(nc)
		}
		until := time.Time{}
		if wait > 0 {
			until = time.Now().Add(wait)
		}
		c.w.nc.SetDeadline(until)
		reply, err := "", error(nil)
		if c.asking {
			_, err = c.w.call("ASKING")
		}
		if c.asking = false; err == nil {
			reply, err = c.w.call(args...)
		}
		var no refusal
		switch {
		case err == nil:
			return reply, nil
		case !errors.As(err, &no):
			if errors.Is(err, errUnexpected) {
				c.q.s.fail(found(oddReply, "queue: %q: %w", args, err))
			}
			c.close()
			c.addr = ""
			time.Sleep(time.Millisecond) // else no virtual time passes where a store accepts connections and ends them
			return "", err
		}
		c.close()
		c.addr = ""
		to, moved := strings.CutPrefix(string(no), "MOVED ")
		if !moved {
			to, c.asking = strings.CutPrefix(string(no), "ASK ")
		}
		if moved || c.asking {
			_, c.addr, _ = strings.Cut(to, " ")
		}
		time.Sleep(time.Millisecond)
	}
}

func queueTag(i int) string { return "{" + sortTags[i][i%4] + "}" }

// push pushes jobs until the schedule is over.
func (q *jobQueues) push(i int) {
	c := q.client(i)
	defer c.close()
	for n := 0; q.s.sleep(time.Duration(c.random.IntN(100)) * time.Millisecond); n++ {
		key := queueTag(i) + "q"
		args := []string{"LPUSH", key}
		for range 1 + c.random.IntN(3) {
			n++
			args = append(args, fmt.Sprintf("j%d.%d", i, n))
		}
		if _, err := c.call(opTime, args...); err == nil {
			q.mu.Lock()
			for _, job := range args[2:] {
				q.pushed[job] = true
			}
			q.mu.Unlock()
		}
		if c.random.IntN(2) == 0 {
			q.drain(c, key)
		}
	}
}

// drain waits until a queue has no job. While the schedule goes on there may be no worker who is not cut off.
func (q *jobQueues) drain(c *queueClient, key string) {
	for end := time.Now().Add(hangTime); !q.over(); time.Sleep(10 * time.Millisecond) {
		left, err := c.call(opTime, "LRANGE", key, "0", "-1")
		switch {
		case err == nil && left == "":
			return
		case !q.s.isOver():
			end = time.Now().Add(hangTime)
		case time.Now().After(end):
			q.s.fail(found(forgotten, "queue: all workers of %s wait, and it has %q, %v", key, left, err))
			return
		}
	}
}

// got notes a job that a worker got. It returns false if the job is the last one.
func (q *jobQueues) got(worker, job string) bool {
	if job == lastJob {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.worked[job]++; q.worked[job] > 1 {
		q.s.fail(found(doubled, "queue: %s gets the job %s, which a worker got before", worker, job))
	}
	return true
}

// work takes jobs until the last one comes.
func (q *jobQueues) work(queue, worker int) {
	c := q.client(100 + queue*queueWorkers + worker)
	defer c.close()
	name := fmt.Sprintf("worker %d.%d", queue, worker)
	key, own := queueTag(queue)+"q", fmt.Sprintf("%sown%d", queueTag(queue), worker)
	held := ""   // the job that the worker has been told of, and that is in its own list
	unheard := 0 // calls of BLMOVE without an answer
	for !q.over() {
		patience := time.Duration(0)
		select {
		case <-q.s.over:
		default:
			if c.random.IntN(4) == 0 {
				patience = time.Duration(1+c.random.IntN(300)) * time.Millisecond // then it dies
			}
		}
		if worker%2 == 0 {
			reply, err := c.call(patience, "BLPOP", key, queueTag(queue)+"none", "0")
			_, job, _ := strings.Cut(reply, " ")
			q.mu.Lock()
			if q.served++; err != nil {
				q.unheard++
				q.late[queue]++
			}
			q.mu.Unlock()
			if err == nil && !q.got(name, job) {
				return
			}
			continue
		}
		left, err := "", errLate
		for err != nil && !q.over() {
			left, err = c.call(opTime, "LRANGE", own, "0", "-1")
		}
		if q.over() {
			return
		}
		jobs := strings.Fields(left)
		if held != "" && !slices.Contains(jobs, held) {
			q.s.fail(found(lostWrite, "queue: %s held %s, and its list has %q", name, held, jobs))
		}
		if len(jobs) > 1+unheard {
			q.s.fail(found(doubled, "queue: the list of %s has %q; %d calls had no answer", name, jobs, unheard))
		}
		job := held
		if job == "" && len(jobs) > 0 {
			job = jobs[0]
		}
		if job == "" {
			if job, err = c.call(patience, "BLMOVE", key, own, "RIGHT", "LEFT", "0"); err != nil {
				unheard++ // a job may come into the list at any time
				q.mu.Lock()
				q.late[queue]++
				q.mu.Unlock()
				continue
			}
		}
		if held = job; c.random.IntN(8) == 0 {
			c.close() // it dies with the job
			continue
		}
		for err = errLate; err != nil && !q.over(); {
			_, err = c.call(opTime, "LREM", own, "1", job)
		}
		if held = ""; !q.got(name, job) {
			return
		}
	}
}

// runQueues has clients push and work. The workers go on until finishQueues.
func (s *sim) runQueues(n int) (q *jobQueues, pushers, workers *sync.WaitGroup) {
	q = &jobQueues{s: s, pushed: map[string]bool{}, worked: map[string]int{}, open: map[net.Conn]bool{}}
	pushers, workers = new(sync.WaitGroup), new(sync.WaitGroup)
	for i := range min(n, simRegions) {
		pushers.Go(func() { q.push(i) })
		q.waiting[i] = queueWorkers
		for w := range queueWorkers {
			workers.Go(func() {
				q.work(i, w)
				q.mu.Lock()
				defer q.mu.Unlock()
				q.waiting[i]--
			})
		}
	}
	return q, pushers, workers
}

// finish gives each worker its last job, and checks that no job is lost.
func (q *jobQueues) finish(n int, workers *sync.WaitGroup) {
	ended := make(chan struct{})
	go func() {
		workers.Wait()
		close(ended)
	}()
	boss := q.client(0)
	defer boss.close()
	lasts := make([]int, min(n, simRegions)) // last jobs pushed into each queue
	for over := false; !over; {
		for i := range lasts {
			if err := q.pushLasts(boss, i, &lasts[i]); err != nil {
				q.s.fail(err)
				q.giveUp()
				<-ended
				return
			}
		}
		select {
		case <-ended:
			over = true
		case <-time.After(hangTime):
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	var lost []string
	for job := range q.pushed {
		if q.worked[job] == 0 {
			lost = append(lost, job)
		}
	}
	q.s.h.note("queues: %d jobs pushed, %d came to a worker, %d waits ended without an answer", len(q.pushed),
		len(q.worked), q.unheard)
	if len(lost) > q.unheard {
		q.s.fail(found(lostWrite, "queue: %d jobs are lost, such as %s, and %d calls of BLPOP had no answer", len(lost),
			lost[0], q.unheard))
	}
}

// pushLasts pushes a last job for each worker of a queue that waits, and adds to the number of those pushed. The error
// is not nil where a worker waits beside a job, and where more last jobs are gone than calls without an answer can have
// taken.
func (q *jobQueues) pushLasts(boss *queueClient, queue int, pushed *int) error {
	q.mu.Lock()
	waiting, late := q.waiting[queue], q.late[queue]
	q.mu.Unlock()
	key := queueTag(queue) + "q"
	if *pushed > 0 && waiting > 0 {
		if left, err := boss.call(hangTime, "LRANGE", key, "0", "-1"); err != nil || left != "" {
			return found(forgotten, "queue: %d workers of %s wait for a job, and it has %q, %v", waiting, key, left, err)
		}
	}
	if *pushed+waiting > queueWorkers+late {
		return found(lostWrite, "queue: %d workers of %s wait behind %d last jobs; %d calls had no answer", waiting, key,
			*pushed, late)
	}
	for range waiting {
		if _, err := boss.call(hangTime, "LPUSH", key, lastJob); err != nil {
			return found(noAnswer, "queue: a last job of %s: %w", key, err)
		}
		*pushed++
	}
	return nil
}

// lateWorkers holds a push while a worker begins to wait for what it brings. The worker gets that when the push goes
// on.
func lateWorkers(s *sim, random *rand.Rand) {
	q := &jobQueues{s: s, open: map[net.Conn]bool{}}
	boss, worker := q.client(0), q.client(1)
	defer boss.close()
	defer worker.close()
	for n := 0; s.sleep(time.Duration(50+random.IntN(200)) * time.Millisecond); n++ {
		i := random.IntN(simRegions)
		home, term := s.leader(topology.RegionID(1 + i))
		if home == nil {
			continue
		}
		key, job := queueTag(i)+"late", fmt.Sprint("late-", n)
		var wg sync.WaitGroup
		s.holdWrite(topology.RegionID(1+i), term, func() error {
			_, err := boss.call(opTime, "LPUSH", key, job)
			return err
		}, func() {
			wg.Go(func() {
				got, err := worker.call(opTime, "BLPOP", key, "1")
				if left, there := worker.call(opTime, "LRANGE", key, "0", "-1"); there == nil && left != "" {
					s.fail(found(forgotten, "a worker waited for a second and got %q, %v; its queue has %q", got, err,
						left))
				}
			})
			s.sleep(20 * time.Millisecond)
		})
		wg.Wait()
		_, err := boss.call(opTime, "DEL", key)
		s.fail(err)
	}
}
