package syncer

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"wsfs/blobs/fault"
)

func TestLease(t *testing.T) {
	e, ctx := newEnv(t), context.Background()
	if _, err := e.repo.Create(ctx, "w"); err != nil {
		t.Fatal(err)
	}
	var lostTo []Holder
	a, err := e.repo.Acquire(ctx, "w", LeaseOptions{Writer: "a", Holder: "ann@one", Host: "one", PID: 7,
		OnLost: func(by Holder) { lostTo = append(lostTo, by) }})
	if err != nil {
		t.Fatal(err)
	}
	e.clock.advance(30 * time.Second)
	_, err = e.repo.Acquire(ctx, "w", LeaseOptions{Writer: "b"})
	var held *HeldError
	if !errors.As(err, &held) || !errors.Is(err, ErrHeld) || held.Holder != "ann@one" || held.Host != "one" || held.PID != 7 ||
		held.Age != 30*time.Second || !strings.Contains(err.Error(), "30s ago") {
		t.Fatalf("second writer: %v", err)
	}
	if _, err := e.repo.Acquire(ctx, "w", LeaseOptions{Writer: "a"}); err != nil {
		t.Errorf("the same writer again: %v", err)
	}
	if err := a.Renew(ctx, 1); err != nil {
		t.Errorf("renewal: %v", err)
	}
	e.clock.advance(59 * time.Second)
	if _, err := e.repo.Acquire(ctx, "w", LeaseOptions{Writer: "b"}); !errors.Is(err, ErrHeld) {
		t.Errorf("59 s after the renewal: %v", err)
	}
	e.clock.advance(2 * time.Second)
	b, err := e.repo.Acquire(ctx, "w", LeaseOptions{Writer: "b"})
	if err != nil {
		t.Fatalf("after it ran out: %v", err)
	}
	for range 2 {
		if err := a.Renew(ctx, 1); !errors.Is(err, ErrHeld) {
			t.Errorf("renewal of a lost lease: %v", err)
		}
	}
	if len(lostTo) != 1 || lostTo[0].Writer != "b" {
		t.Errorf("told of %+v", lostTo)
	}
	if err := a.Release(ctx); err != nil { // not ours: it stays
		t.Error(err)
	}
	if h, live, err := e.repo.LeaseHolder(ctx, "w"); err != nil || !live || h.Writer != "b" {
		t.Errorf("holder %+v, %v, %v", h, live, err)
	}
	if _, err := e.repo.Acquire(ctx, "w", LeaseOptions{Writer: "c", Takeover: true}); err != nil {
		t.Errorf("takeover: %v", err)
	}
	if err := b.Renew(ctx, 1); !errors.Is(err, ErrHeld) {
		t.Errorf("renewal after a takeover: %v", err)
	}
}

func TestLeaseRelease(t *testing.T) {
	e, ctx := newEnv(t), context.Background()
	a, err := e.repo.Acquire(ctx, "w", LeaseOptions{Writer: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if err := a.Renew(ctx, 1); err == nil {
		t.Error("a released lease was renewed")
	}
	if h, _, err := e.repo.LeaseHolder(ctx, "w"); h != nil || err != nil {
		t.Errorf("holder %+v, %v", h, err)
	}
	if _, err := e.repo.Acquire(ctx, "w", LeaseOptions{Writer: "b"}); err != nil {
		t.Error(err)
	}
}

func TestLeaseOddities(t *testing.T) {
	e, ctx := newEnv(t), context.Background()
	// Nonsense in its place counts as no lease.
	if err := e.inner.Put(ctx, leaseKey("w"), []byte("nonsense")); err != nil {
		t.Fatal(err)
	}
	a, err := e.repo.Acquire(ctx, "w", LeaseOptions{Writer: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if h, live, err := e.repo.LeaseHolder(ctx, "w"); err != nil || !live || h.Writer != "a" {
		t.Errorf("holder %+v, %v, %v", h, live, err)
	}
	// Somebody removed it: the renewal puts it back.
	if err := e.inner.Delete(ctx, leaseKey("w")); err != nil {
		t.Fatal(err)
	}
	if err := a.Renew(ctx, 1); err != nil {
		t.Error(err)
	}
	if h, _, err := e.repo.LeaseHolder(ctx, "w"); err != nil || h == nil {
		t.Errorf("holder %+v, %v", h, err)
	}
	// The clock of the other host is ahead: it is live, and its age is not negative.
	e.clock.advance(-time.Hour)
	_, err = e.repo.Acquire(ctx, "w", LeaseOptions{Writer: "b"})
	var held *HeldError
	if !errors.As(err, &held) || held.Age != 0 {
		t.Errorf("holder from the future: %v", err)
	}
	// A lost reply of the first put is no other holder.
	e.fault.Plan(fault.Plan{Op: fault.PutIfAbsent, Prefix: "workspaces/v/", Kind: fault.After})
	if _, err := e.repo.Acquire(ctx, "v", LeaseOptions{Writer: "a"}); err == nil {
		t.Error("lost reply: no error")
	}
	e.fault.MustHaveFired(t)
	if _, err := e.repo.Acquire(ctx, "v", LeaseOptions{Writer: "a"}); err != nil {
		t.Errorf("after a lost reply: %v", err)
	}
	for _, o := range []LeaseOptions{{}, {Writer: "a", TTL: time.Millisecond}} {
		if _, err := e.repo.Acquire(ctx, "v", o); err == nil {
			t.Errorf("accepted %+v", o)
		}
	}
}
