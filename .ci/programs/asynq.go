package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
)

// tasks are how often asynq's tasks were worked on.
type tasks struct {
	mu    sync.Mutex
	begun map[string]time.Time // when a task was last begun
	given map[string]bool      // task and retry count
	twice int
	err   error
}

// ProcessTask checks what asynq promises: a task is given to one worker. It is given to a further one only as a retry,
// and where none has failed that is when the lease of the first one has been over for half a minute.
func (t *tasks) ProcessTask(ctx context.Context, task *asynq.Task) error {
	id, _ := asynq.GetTaskID(ctx)
	retries, _ := asynq.GetRetryCount(ctx)
	if task.Type() == "wait" {
		t.mu.Lock()
		t.begun[id] = time.Now()
		t.mu.Unlock()
		<-ctx.Done()
		return ctx.Err()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	last, again := t.begun[id]
	given := fmt.Sprint(id, " ", retries)
	if since := time.Since(last); t.given[given] || again && since < 55*time.Second {
		t.err = errors.Join(t.err, fmt.Errorf("task %s comes again after %s, retry %d", id, since, retries))
	}
	if again {
		t.twice++
	}
	t.begun[id], t.given[given] = time.Now(), true
	return nil
}

func (t *tasks) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.begun)
}

// asynqTasks is the example of asynq's README: a client that enqueues tasks, some for later, two servers that work on
// them, and an inspector that cancels one.
func asynqTasks(ctx context.Context, s site) (string, error) {
	var opt asynq.RedisConnOpt = asynq.RedisClientOpt{Addr: s.addrs[0]}
	if len(s.addrs) > 1 {
		opt = asynq.RedisClusterClientOpt{Addrs: s.addrs}
	}
	client := asynq.NewClient(opt)
	defer client.Close()
	inspector := asynq.NewInspector(opt)
	defer inspector.Close()
	done := &tasks{begun: map[string]time.Time{}, given: map[string]bool{}}
	for range 2 {
		server := asynq.NewServer(opt, asynq.Config{Concurrency: 10, LogLevel: asynq.FatalLevel,
			TaskCheckInterval: 50 * time.Millisecond, DelayedTaskCheckInterval: 200 * time.Millisecond,
			RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 }})
		if err := server.Start(done); err != nil {
			return "", err
		}
		defer server.Shutdown()
	}

	// A task that is kept when it is done cannot be enqueued again, so a client may do so where it does not know.
	var enqueued, unknown atomic.Int64
	enqueue := func(kind, id string, options ...asynq.Option) error {
		options = append(options, asynq.TaskID(id), asynq.Retention(time.Hour))
		for {
			_, err := client.EnqueueContext(ctx, asynq.NewTask(kind, nil), options...)
			if err == nil || errors.Is(err, asynq.ErrTaskIDConflict) {
				enqueued.Add(1)
				return nil
			}
			if !s.hurt || ctx.Err() != nil {
				return err
			}
			unknown.Add(1)
			time.Sleep(10 * time.Millisecond)
		}
	}
	begin, clients := time.Now(), make(chan error)
	for c := range 5 {
		go func() {
			var err error
			for n := c; err == nil && time.Since(begin) < s.time; n += 5 {
				var later []asynq.Option
				if n%10 == 0 {
					later = append(later, asynq.ProcessIn(time.Second))
				}
				err = enqueue("work", fmt.Sprint(n), later...)
				time.Sleep(10 * time.Millisecond)
			}
			clients <- err
		}()
	}
	for range 5 {
		if err := <-clients; err != nil {
			return "", err
		}
	}
	// A task whose worker is not known is found after two minutes at most.
	for begin := time.Now(); done.count() < int(enqueued.Load()); time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > 3*time.Minute || ctx.Err() != nil {
			return "", fmt.Errorf("of %d tasks %d are worked on", enqueued.Load(), done.count())
		}
	}

	if err := enqueue("wait", "wait", asynq.MaxRetry(0)); err != nil {
		return "", err
	}
	for begin := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		info, err := inspector.GetTaskInfo("default", "wait")
		if err == nil && info.State == asynq.TaskStateArchived {
			break
		}
		if err == nil {
			err = inspector.CancelProcessing("wait")
		}
		if time.Since(begin) > 30*time.Second {
			return "", fmt.Errorf("a task is not cancelled: %v, %v", info, err)
		}
	}
	done.mu.Lock()
	defer done.mu.Unlock()
	if done.twice > 0 && !s.hurt {
		done.err = errors.Join(done.err, fmt.Errorf("%d tasks were worked on twice", done.twice))
	}
	return fmt.Sprintf("%d tasks, none lost, %d worked on again; %d enqueued again", enqueued.Load()-1, done.twice,
		unknown.Load()), done.err
}
