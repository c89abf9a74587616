package syncer

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Touch tells the background loop that something changed. It costs one or two atomic loads, so every op may call it.
func (w *Writer) Touch() {
	if !w.touched.Load() {
		w.touched.Store(true)
	}
	if w.asleep.Load() && w.asleep.CompareAndSwap(true, false) {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// Run makes commits in the background until ctx ends or the Writer is fenced: after Quiet without a Touch and at the
// latest Latest after the first one. It begins with a look at what is dirty already, and loads the pool's chunk
// indexes. While files may be written behind our back (live) it looks every Latest, touched or not. If a try
// fails it tries again after a pause that grows from 1 s to a minute, for as long as it takes; Status tells. It
// also renews the lease. When it returns, nothing of it runs any more. It does not make a last commit: call Commit.
func (w *Writer) Run(ctx context.Context) {
	var background sync.WaitGroup
	defer background.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.OnFence(func(error) { cancel() })
	background.Go(func() { w.refreshIndexes(ctx) })
	if w.lease != nil {
		background.Go(func() { w.keepLease(ctx) })
	}
	w.Touch()
	var trouble backoff
	for ctx.Err() == nil {
		if err := w.awaitChange(ctx); err != nil {
			return
		}
		if err := w.awaitQuiet(ctx); err != nil {
			return
		}
		_, err := w.join(ctx, "", false)
		switch {
		case err == nil:
			if trouble.tries > 0 {
				w.log.Info("commits work again", "workspace", w.name)
			}
			trouble.reset()
			continue
		case errors.Is(err, ErrFenced) || ctx.Err() != nil:
			return
		}
		wait := trouble.next()
		w.log.Warn("commit failed, everything stays in the journal", "workspace", w.name, "error", err, "again", wait)
		w.Touch()
		if err := pause(ctx, w.o.Clock, wait); err != nil {
			return
		}
	}
}

// awaitChange returns when there may be something to commit.
func (w *Writer) awaitChange(ctx context.Context) error {
	w.asleep.Store(true)
	defer w.asleep.Store(false)
	if w.touched.Load() { // set before asleep was: its Touch did not wake us
		return nil
	}
	var look <-chan time.Time
	if w.mustLook() {
		look = w.o.Clock.After(w.o.Latest)
	}
	for {
		select {
		case <-w.wake:
			if w.touched.Load() {
				return nil // else it was the wake of a change that is committed
			}
			w.asleep.Store(true)
			if w.touched.Load() {
				return nil
			}
		case <-look:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// mustLook tells whether there may be changes that nobody touches us for.
func (w *Writer) mustLook() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.live || w.status.Unstable > 0
}

// awaitQuiet returns when a commit is due. What is touched after it has returned is a new change.
func (w *Writer) awaitQuiet(ctx context.Context) error {
	first := w.o.Clock.Now()
	last := first
	if !w.touched.Swap(false) {
		return nil // a look: nothing to wait for
	}
	step := max(min(w.o.Quiet/4, w.o.Latest/4), time.Millisecond)
	for {
		if err := pause(ctx, w.o.Clock, step); err != nil {
			return err
		}
		now := w.o.Clock.Now()
		if w.touched.Swap(false) {
			last = now
		}
		if now.Sub(last) >= w.o.Quiet || now.Sub(first) >= w.o.Latest || now.Before(first) {
			return nil
		}
	}
}

// keepLease renews the lease until ctx ends. A lease in other hands most likely means another writer has made a commit:
// we look at once instead of finding out at our next one.
func (w *Writer) keepLease(ctx context.Context) {
	failed := false
	for {
		if err := pause(ctx, w.o.Clock, w.lease.TTL()/3); err != nil {
			return
		}
		err := w.lease.Renew(ctx, w.headNow().Epoch)
		switch {
		case err == nil:
			failed = false
		case ctx.Err() != nil:
			return
		case errors.Is(err, ErrHeld):
			w.log.Warn("the lease is in other hands", "workspace", w.name, "error", err)
			if err := w.Verify(ctx); err != nil && ctx.Err() == nil {
				w.log.Warn("could not find out who writes", "workspace", w.name, "error", err)
			}
		case !failed:
			failed = true
			w.log.Warn("the lease could not be renewed", "workspace", w.name, "error", err)
		}
	}
}

// Verify compares the head in the store with ours (one LIST, one GET) and fences the Writer if another one reigns; it
// then returns the *FencedError.
func (w *Writer) Verify(ctx context.Context) error {
	select {
	case w.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-w.turn }()
	if err := w.reigns(); err != nil {
		return err
	}
	return w.verify(ctx)
}
