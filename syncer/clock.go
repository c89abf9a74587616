package syncer

import (
	"context"
	"time"
)

// Clock is the time as the syncer sees it; tests turn it.
type Clock interface {
	Now() time.Time
	// After delivers once d has passed.
	After(d time.Duration) <-chan time.Time
}

// WallClock is the real clock. Now has no monotonic reading: a machine that slept must notice that it did.
type WallClock struct{}

// Now is time.Now by the wall.
func (WallClock) Now() time.Time { return time.Now().Round(0) }

// After is time.After.
func (WallClock) After(d time.Duration) <-chan time.Time { return time.After(d) }

func pause(ctx context.Context, c Clock, d time.Duration) error {
	select {
	case <-c.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
