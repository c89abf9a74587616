package blobs

import (
	"bytes"
	"context"
	"slices"
)

const (
	prefetchJobs  = 8       // Prefetch calls at work at once; more are dropped
	prefetchBytes = 8 << 20 // largest Get of a prefetch
	prefetchGets  = 2       // Gets in flight of one Prefetch
)

// Prefetch brings the bytes of refs near, in the background and best effort: windows that are not in the cache or on
// their way are fetched, neighbouring ones of a pack with one Get of up to 8 MiB. It returns at once. The work ends
// early when ctx does, so pass one that outlives the request at hand. Errors are left for Chunk to meet. While 8 calls
// are at work, another one does nothing. Without a cache, no more than the windows kept in memory can hold is fetched.
func (r *Reader) Prefetch(ctx context.Context, refs []Ref) {
	select {
	case r.jobs <- struct{}{}:
	default:
		return
	}
	refs = slices.Clone(refs)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		<-r.jobs
		return
	}
	r.work.Go(func() {
		defer func() { <-r.jobs }()
		r.prefetch(ctx, refs)
	})
}

func (r *Reader) prefetch(ctx context.Context, refs []Ref) {
	var flying []*fetch
	for _, run := range r.runs(r.wanted(refs)) {
		if ctx.Err() != nil || r.ctx.Err() != nil {
			break
		}
		if f := r.prefetchRun(run); f != nil {
			flying = append(flying, f)
		}
		if len(flying) >= prefetchGets {
			r.await(ctx, flying[0])
			flying = flying[1:]
		}
	}
	for _, f := range flying {
		r.await(ctx, f)
	}
}

func (r *Reader) await(ctx context.Context, f *fetch) {
	_ = f.wait(ctx) // best effort: whoever needs the chunk meets the error
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaveFetch(f)
}

// wanted returns the windows of refs whose bytes are nowhere near, each once, by pack and position.
func (r *Reader) wanted(refs []Ref) []windowKey {
	seen := make(map[windowKey]struct{})
	var keys []windowKey
	for _, ref := range refs {
		if checkSpan(ref.Offset, ref.Length, ref.Raw) != nil || r.near(ref) {
			continue
		}
		for key := range r.windows(ref) {
			if _, ok := seen[key]; !ok {
				seen[key] = struct{}{}
				if r.absent(key) {
					keys = append(keys, key)
				}
			}
		}
	}
	if r.cache == nil { // in the order asked for: more than half of what can be kept would push out itself
		keys = keys[:min(len(keys), recentWindows/2)]
	}
	slices.SortFunc(keys, func(a, b windowKey) int {
		if c := bytes.Compare(a.pack[:], b.pack[:]); c != 0 {
			return c
		}
		return int(a.n - b.n)
	})
	return keys
}

// near reports whether a chunk can be read without the store.
func (r *Reader) near(ref Ref) bool {
	if r.cache != nil && r.cache.has(ref.Pack, int64(ref.Offset), int64(ref.Length)) {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.chunks.get(ref.ID)
	return ok
}

// run is a number of neighbouring windows.
type run struct {
	first windowKey
	count int64
}

func (r *Reader) runs(keys []windowKey) []run {
	most := max(prefetchBytes/r.window, 1)
	var runs []run
	for _, key := range keys {
		if n := len(runs); n > 0 {
			last := &runs[n-1]
			if last.first.pack == key.pack && last.first.n+last.count == key.n && last.count < most {
				last.count++
				continue
			}
		}
		runs = append(runs, run{key, 1})
	}
	return runs
}

// absent reports whether a window is neither recent nor on its way.
func (r *Reader) absent(key windowKey) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.absentLocked(key)
}

func (r *Reader) absentLocked(key windowKey) bool {
	_, recent := r.recent.get(key)
	return !recent && r.fetches[key] == nil
}

// prefetchRun starts the fetch of a run, cut short at the first window that somebody else began meanwhile. It returns
// nil if that is the very first.
func (r *Reader) prefetchRun(run run) *fetch {
	r.mu.Lock()
	defer r.mu.Unlock()
	var n int64
	for n < run.count && r.absentLocked(windowKey{run.first.pack, run.first.n + n}) {
		n++
	}
	if n == 0 {
		return nil
	}
	f := r.startFetch(run.first, n, true)
	f.waiters++
	return f
}
