package syncer

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"wsfs/blobs"
)

const (
	indexPrefix = "index/"
	indexMark   = "index" // Local.Mark: key of the newest index object loaded
	// indexOverlap is how far back LoadIndexes looks behind its mark: hosts whose clocks differ by less find each
	// other's chunks.
	indexOverlap = 15 * time.Minute
	// indexRefs bounds one index object (4 MiB).
	indexRefs = 1 << 16
	// indexGets is how many index objects are read at once.
	indexGets = 4
)

// indexTimeKey is the smallest key an index object made at t can have. Keys are ordered by time, in milliseconds.
func indexTimeKey(t time.Time) string {
	return fmt.Sprintf("%s%013x", indexPrefix, max(t.UnixMilli(), 0))
}

func indexKey(t time.Time) string { return indexTimeKey(t) + "-" + newNonce()[:16] }

// indexTime returns when an index object was made; zero for a key that is none.
func indexTime(key string) time.Time {
	s, _, _ := strings.Cut(strings.TrimPrefix(key, indexPrefix), "-")
	ms, err := strconv.ParseInt(s, 16, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// putIndex names the chunks the commit added, for other writers to find.
func (r *commitRun) putIndex(ctx context.Context) error {
	refs := r.added()
	for len(refs) > 0 {
		part := refs[:min(len(refs), indexRefs)]
		refs = refs[len(part):]
		key := indexKey(r.w.o.Clock.Now())
		if err := r.w.repo.store.Put(ctx, key, blobs.EncodeIndex(part)); err != nil {
			return fmt.Errorf("putting the chunk index of a commit of %q: %w", r.w.name, err)
		}
		r.w.indexes.saw(key)
		r.w.unindexed.Lock()
		for _, ref := range part {
			delete(r.w.unindexed.refs, ref.ID)
		}
		r.w.unindexed.Unlock()
	}
	return nil
}

// added returns the data chunks of the commit that no index names yet, in file order. Chunks that only a dropped round
// needed are not among them.
func (r *commitRun) added() []blobs.Ref {
	r.mu.Lock()
	defer r.mu.Unlock()
	var refs []blobs.Ref
	take := func(id blobs.ID) {
		if ref, ok := r.fresh[id]; ok {
			refs = append(refs, ref)
			delete(r.fresh, id)
		}
	}
	for i := range r.plan.files {
		f := &r.plan.files[i]
		take(f.Ref.ID)
		for j := range f.Extents {
			take(f.Extents[j].Ref.ID)
		}
	}
	return refs
}

// LoadIndexes tells local about every chunk the pool's writers have named since it was last called: it lists the index
// objects after local's mark and remembers their chunks. Interrupted, it goes on from where it was. A damaged
// index object is logged and passed over: that costs space, not data. It returns how many objects it read.
func (r *Repo) LoadIndexes(ctx context.Context, local Local) (int, error) {
	return r.loadIndexes(ctx, local, new(indexState))
}

func (r *Repo) loadIndexes(ctx context.Context, local Local, seen *indexState) (loaded int, err error) {
	mark, err := local.Mark(indexMark)
	if err != nil {
		return 0, fmt.Errorf("loading chunk indexes: %w", err)
	}
	after := ""
	if mark != "" {
		after = indexTimeKey(indexTime(mark).Add(-indexOverlap))
	}
	for {
		page, err := r.store.List(ctx, indexPrefix, after, 1000)
		if err != nil {
			return loaded, fmt.Errorf("listing chunk indexes: %w", err)
		}
		n, err := r.loadIndexPage(ctx, local, page, seen)
		loaded += n
		if err != nil {
			return loaded, err
		}
		if len(page) > 0 {
			after = page[len(page)-1].Key
		}
		if after > mark {
			if err := local.SetMark(indexMark, after); err != nil {
				return loaded, fmt.Errorf("loading chunk indexes: %w", err)
			}
			mark = after
		}
		if len(page) < 1000 {
			return loaded, nil
		}
	}
}

// loadIndexPage loads the index objects of one page of a LIST that were not seen before.
func (r *Repo) loadIndexPage(ctx context.Context, local Local, page []blobs.Object, seen *indexState) (int, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	keys := make(chan string)
	var workers sync.WaitGroup
	for range min(indexGets, len(page)) {
		workers.Go(func() {
			for key := range keys {
				if err := r.loadIndex(ctx, local, key); err != nil {
					cancel(err)
					continue
				}
				seen.saw(key)
			}
		})
	}
	n := 0
	for _, o := range page {
		if seen.has(o.Key) {
			continue
		}
		select {
		case keys <- o.Key:
			n++
		case <-ctx.Done():
		}
	}
	close(keys)
	workers.Wait()
	return n, context.Cause(ctx)
}

func (r *Repo) loadIndex(ctx context.Context, local Local, key string) error {
	body, err := r.store.Get(ctx, key, 0, -1)
	if errors.Is(err, blobs.ErrNotExist) {
		return nil // collected since the LIST
	}
	if err != nil {
		return fmt.Errorf("reading chunk index %s: %w", key, err)
	}
	refs, err := blobs.DecodeIndex(body)
	if err != nil {
		r.log.Warn("passing over a chunk index", "key", key, "error", err)
		return nil
	}
	if err := local.Remember(refs); err != nil {
		return fmt.Errorf("remembering the chunks of %s: %w", key, err)
	}
	return nil
}

// indexState is what a Writer knows of the pool's index objects.
type indexState struct {
	mu      sync.Mutex // guards what follows
	seen    map[string]struct{}
	running chan struct{} // closed when the load under way ends; nil if there is none
	loaded  time.Time     // end of the last complete load
}

func (s *indexState) saw(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		s.seen = make(map[string]struct{})
	}
	s.seen[key] = struct{}{}
}

func (s *indexState) has(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.seen[key]
	return ok
}

// awaitIndexes makes sure, before a big upload, that the chunks other writers have stored are known. It waits for a
// load that is under way or does one, for at most IndexWait; then the upload begins without. It tells whether
// it had to wait.
func (w *Writer) awaitIndexes(ctx context.Context) bool {
	s := &w.indexes
	s.mu.Lock()
	if !s.loaded.IsZero() && w.o.Clock.Now().Sub(s.loaded) < w.o.IndexFresh {
		s.mu.Unlock()
		return false
	}
	running := s.running
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, w.o.IndexWait)
	defer cancel()
	if running == nil {
		w.refreshIndexes(ctx)
		return true
	}
	select {
	case <-running:
	case <-ctx.Done():
	}
	return true
}

// refreshIndexes loads what is new among the pool's indexes, unless a load is under way. Failure is logged only: without
// an index the store gets chunks it has already.
func (w *Writer) refreshIndexes(ctx context.Context) {
	s := &w.indexes
	s.mu.Lock()
	if s.running != nil {
		s.mu.Unlock()
		return
	}
	running := make(chan struct{})
	s.running = running
	s.mu.Unlock()
	n, err := w.repo.loadIndexes(ctx, w.local, s)
	if err != nil && ctx.Err() == nil {
		w.log.Warn("chunk indexes could not be loaded; chunks of others may be stored twice", "workspace", w.name, "error", err)
	} else if n > 0 {
		w.log.Debug("chunk indexes loaded", "workspace", w.name, "objects", n)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// Tried is as good as done for IndexFresh: a commit must not wait for a store that does not answer again and again.
	s.loaded = w.o.Clock.Now()
	s.running = nil
	close(running)
}
