package server

import (
	"context"
	"errors"
	"strings"
	"time"

	"neokv.dev/neokv/internal/redis"
)

// This file has BGSAVE, SAVE and LASTSAVE, and what INFO says of them. They are about the whole cluster, whichever port
// is asked.

// ErrSaving is the error of Node.Save while a backup is made.
var ErrSaving = errors.New("a backup is under way already")

// SaveState says which backups of the cluster there were.
type SaveState struct {
	Since   time.Time     // when the one under way began; zero for none
	Time    time.Time     // as of which the last one that succeeded is; zero for none since the start
	Count   int           // how many have succeeded
	Failed  bool          // the last one has failed
	Took    time.Duration // the last one
	Changes int64         // writing commands since the last one that succeeded began
}

// lastSave is the time of the last backup or, as in Redis, of the start if there was none.
func (c *conn) lastSave(s SaveState) int64 {
	if s.Time.IsZero() {
		return c.s.started.Unix()
	}
	return s.Time.Unix()
}

func runLastSave(c *conn, _ [][]byte) { c.out.Int(c.lastSave(c.s.o.Node.SaveState())) }

// runBGSave begins a backup. SCHEDULE changes nothing: in Redis it lets the save wait for a rewrite of the append-only
// file, which there is not.
func runBGSave(c *conn, args [][]byte) {
	if len(args) > 2 || len(args) == 2 && !redis.IsOption(args[1], "schedule") {
		c.out.Error(redis.ErrSyntax)
		return
	}
	_, err := c.s.o.Node.Save()
	switch {
	case err != nil:
		c.saveFailed(err)
	case c.session.Inside():
		c.out.Status("Background saving scheduled")
	default:
		c.out.Status("Background saving started")
	}
}

// runSave makes a backup, and answers when it is whole. Unlike in Redis, other clients go on.
func runSave(c *conn, _ [][]byte) {
	wait, err := c.s.o.Node.Save()
	if err == nil {
		if !c.out.flush() {
			c.closing = true
			return
		}
		err = wait(c.ctx)
	}
	if errors.Is(err, context.Canceled) {
		c.closing = true
		return
	}
	if err != nil {
		c.saveFailed(err)
		return
	}
	c.out.OK()
}

func (c *conn) saveFailed(err error) {
	if errors.Is(err, ErrSaving) {
		c.out.Error("ERR Background save already in progress")
		return
	}
	c.out.Error("ERR " + strings.ReplaceAll(err.Error(), "\n", "; "))
}

// infoPersistence is about backups. What is durable is in the Raft log: see the section neokv.
func infoPersistence(c *conn) []string {
	s := c.s.o.Node.SaveState()
	running, current, took, status := 0, int64(-1), int64(-1), "ok"
	if !s.Since.IsZero() {
		running, current = 1, int64(time.Since(s.Since).Seconds())
	}
	if s.Count > 0 || s.Failed {
		took = int64(s.Took.Seconds())
	}
	if s.Failed {
		status = "err"
	}
	return lines("loading", 0, "async_loading", 0, "rdb_changes_since_last_save", s.Changes,
		"rdb_bgsave_in_progress", running, "rdb_last_save_time", c.lastSave(s), "rdb_last_bgsave_status", status,
		"rdb_last_bgsave_time_sec", took, "rdb_current_bgsave_time_sec", current, "rdb_last_cow_size", 0,
		"rdb_last_load_keys_expired", 0, "rdb_last_load_keys_loaded", 0, "current_cow_peak", 0, "current_cow_size", 0,
		"current_cow_size_age", 0, "current_fork_perc", "0.00", "current_save_keys_processed", 0,
		"current_save_keys_total", 0, "module_fork_in_progress", 0, "module_fork_last_cow_size", 0,
		"rdb_saves", s.Count, "aof_enabled", 0, "aof_rewrites", 0, "aof_rewrites_consecutive_failures", 0,
		"aof_last_cow_size", 0, "aof_rewrite_in_progress", 0, "aof_rewrite_scheduled", 0,
		"aof_last_rewrite_time_sec", -1,
		"aof_current_rewrite_time_sec", -1, "aof_last_bgrewrite_status", "ok", "aof_last_write_status", "ok")
}
