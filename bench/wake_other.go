//go:build !linux

package bench

import (
	"context"
	"time"
)

// keepAwake does nothing where the system waits for events with a time-out in nanoseconds.
func keepAwake(context.Context, *dueCounter, time.Duration, func() time.Duration) {}
