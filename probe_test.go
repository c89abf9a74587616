package wsfs

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"wsfs/blobs"
	"wsfs/syncer"
)

// careless is a remote store that ignores the condition of a conditional put, as some servers do without a word.
type careless struct {
	blobs.Store
	on bool
}

func (c *careless) URL() string { return "s3://careless/" }

func (c *careless) PutIfAbsent(ctx context.Context, key string, body []byte) error {
	if c.on {
		return c.Put(ctx, key, body)
	}
	return c.Store.PutIfAbsent(ctx, key, body)
}

// TestStoreThatStopsKeepingWritersApart: such a store is noticed at the next mount and gets no more commits.
func TestStoreThatStopsKeepingWritersApart(t *testing.T) {
	r := newRig(t)
	c := &careless{Store: r.store}
	r.store = c
	ok(t, r.open("demo", t.TempDir()).Close(ctx))
	c.on = true
	w := r.open("demo", t.TempDir())
	deadline := time.Now().Add(10 * time.Second)
	for !w.ReadOnly() {
		if time.Now().After(deadline) {
			t.Fatal("the workspace is still writable")
		}
		time.Sleep(5 * time.Millisecond)
	}
	wantErr(t, w.WriteFile(ctx, "/f", nil, 0o600), syscall.EROFS)
	if _, err := w.Commit(ctx); !errors.Is(err, syncer.ErrConditional) {
		t.Errorf("commit: %v", err)
	}
	if s := w.Status(); s.Fenced == "" {
		t.Error("the status does not say why")
	}
}
