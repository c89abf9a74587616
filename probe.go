package wsfs

import (
	"context"
	"fmt"
	"time"

	"wsfs/blobs"
	"wsfs/metadata"
	"wsfs/syncer"
)

const (
	probeRace  = 16              // conditional puts that race in a probe
	probeEvery = 24 * time.Hour  // how long a host trusts a probe of its store
	probeDelay = 2 * time.Second // after the opening, which others wait for
)

// probeStore proves again, beside the work and once a day on each host, what init proved first: that of several
// conditional puts of one object exactly one succeeds. On a store that has stopped doing so nothing keeps two writers
// apart; the workspace then turns read-only and commits no more, as if fenced. A probe that cannot be made decides
// nothing.
func (w *Workspace) probeStore(ctx context.Context) {
	store := w.repo.Store()
	if w.repo.Format().SingleWriter || blobs.OnThisHost(store) {
		return
	}
	key := metadata.LocalKey("probed")
	if v, _, err := w.live.GetLocal(key); err == nil {
		if at, err := time.Parse(time.RFC3339, string(v)); err == nil && time.Since(at) < probeEvery && time.Since(at) >= 0 {
			return
		}
	}
	select {
	case <-ctx.Done():
		return
	case <-time.After(probeDelay):
	}
	res, err := blobs.Probe(ctx, store, probeRace)
	if err != nil {
		w.log.Warn("the store's conditional puts could not be probed", "err", err)
		return
	}
	if !res.Exclusive() {
		err := fmt.Errorf("%s: %w: %s", store.URL(), syncer.ErrConditional, res)
		w.log.Error("the store does not keep two writers apart; nothing more is committed", "err", err)
		w.writer.Refuse(err)
		w.freezeFor(err)
		return
	}
	now := time.Now().UTC().Format(time.RFC3339)
	if err := w.live.AppendClean([]metadata.Mutation{{Key: key, Value: []byte(now)}}); err != nil {
		w.log.Warn("remember the probe", "err", err)
	}
}
