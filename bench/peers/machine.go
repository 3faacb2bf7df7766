package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

func addr(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }

// loadAverage returns the machine's load average of the last minute.
func loadAverage() float64 {
	f, err := os.Open("/proc/loadavg")
	if err != nil {
		return 0
	}
	defer f.Close()
	b, _ := io.ReadAll(f)
	first, _, _ := strings.Cut(string(b), " ")
	load, _ := strconv.ParseFloat(first, 64)
	return load
}

// await calls ask until it returns no error, for at most half a minute.
func await(ctx context.Context, what string, ask func() error) error {
	for deadline := time.Now().Add(30 * time.Second); ; {
		err := ask()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: not after 30 s: %w", what, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
	}
}
