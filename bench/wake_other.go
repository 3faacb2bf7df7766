//go:build !linux

package bench

import (
	"context"
	"time"
)

// keepAwake has nothing to do where the system's wait for events takes nanoseconds.
func keepAwake(context.Context, schedule, time.Duration, func() time.Duration) {}
