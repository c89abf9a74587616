package syncer

import (
	"sync"
	"time"
)

// fakeClock stands still unless it is told to advance; waits are then over at once, unless it is told to hold them.
type fakeClock struct {
	mu   sync.Mutex
	now  time.Time
	held bool
	wait []fakeWait
}

type fakeWait struct {
	at time.Time
	c  chan time.Time
}

func newFakeClock() *fakeClock {
	return &fakeClock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
}

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// After is over at once, in no time, unless the clock holds.
func (c *fakeClock) After(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := make(chan time.Time, 1)
	if !c.held || d <= 0 {
		ch <- c.now
	} else {
		c.wait = append(c.wait, fakeWait{c.now.Add(d), ch})
	}
	return ch
}

// hold makes waits last until advance reaches them.
func (c *fakeClock) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = true
}

func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	left := c.wait[:0]
	for _, w := range c.wait {
		if w.at.After(c.now) {
			left = append(left, w)
			continue
		}
		w.c <- c.now
	}
	c.wait = left
}

// waiting is how many waits are under way.
func (c *fakeClock) waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.wait)
}
