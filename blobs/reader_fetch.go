package blobs

import (
	"bytes"
	"context"
	"iter"
)

// windowKey names an aligned range of a pack: [n, n+1) times Reader.window.
type windowKey struct {
	pack PackID
	n    int64
}

// fetch is one Get of neighbouring windows of a pack.
type fetch struct {
	first windowKey
	count int64
	done  chan struct{} // closed when data and err are final
	data  []byte        // from the start of the first window; shorter where the pack ends
	err   error

	waiters  int  // guarded by Reader.mu; an unfinished fetch is cancelled when it falls to 0
	finished bool // guarded by Reader.mu; done is closed
	cancel   context.CancelFunc
	keepAll  bool // keep every window for others; else only the outer two, which alone have other chunks in them
}

// windows yields the windows a chunk lies in.
func (r *Reader) windows(ref Ref) iter.Seq[windowKey] {
	first := int64(ref.Offset) / r.window
	last := (int64(ref.Offset) + int64(ref.Length) - 1) / r.window
	return func(yield func(windowKey) bool) {
		for n := first; n <= last; n++ {
			if !yield(windowKey{ref.Pack, n}) {
				return
			}
		}
	}
}

// piece is the part of a chunk's stored form that lies in one window.
type piece struct {
	key  windowKey
	dst  []byte // where it belongs
	from int64  // its offset in the window
}

func (r *Reader) pieces(ref Ref, dst []byte) []piece {
	var ps []piece
	off := int64(ref.Offset)
	for key := range r.windows(ref) {
		n := min(int64(len(dst)), (key.n+1)*r.window-off)
		ps = append(ps, piece{key: key, dst: dst[:n], from: off - key.n*r.window})
		dst, off = dst[n:], off+n
	}
	return ps
}

// take copies the piece out of its window's bytes.
func (p piece) take(window []byte) error {
	if int64(len(window)) < p.from+int64(len(p.dst)) {
		return badPack("ends %d bytes into a window where a chunk needs %d", len(window), p.from+int64(len(p.dst)))
	}
	copy(p.dst, window[p.from:])
	return nil
}

// load returns the stored form of a chunk, unverified.
func (r *Reader) load(ctx context.Context, ref Ref) ([]byte, error) {
	stored := make([]byte, ref.Length)
	missing := r.pieces(ref, stored)
	if r.cache != nil {
		missing = r.fromCache(missing)
		if len(missing) == 0 {
			r.count(func(s *ReaderStats) { s.CacheHits++ })
			return stored, nil
		}
	}
	fetches, err := r.gather(missing)
	if err != nil {
		return nil, err
	}
	defer r.release(fetches)
	for f, ps := range fetches {
		if err := f.wait(ctx); err != nil {
			return nil, err
		}
		for _, p := range ps {
			if err := p.take(f.windowBytes(p.key, r.window)); err != nil {
				return nil, err
			}
		}
	}
	return stored, nil
}

// fromCache fills what the local cache has and returns the rest.
func (r *Reader) fromCache(ps []piece) (missing []piece) {
	for _, p := range ps {
		if !r.cache.ReadAt(p.key.pack, p.key.n*r.window+p.from, p.dst) {
			missing = append(missing, p)
		}
	}
	return missing
}

// gather fills pieces from windows fetched lately, and joins or starts the fetches that bring the others. The caller
// releases them.
func (r *Reader) gather(ps []piece) (map[*fetch][]piece, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Misses++
	var absent []piece
	joined := make(map[*fetch][]piece)
	for _, p := range ps {
		if window, ok := r.recent.get(p.key); ok {
			if err := p.take(window); err != nil {
				r.leaveFetches(joined)
				return nil, err
			}
		} else if f := r.fetches[p.key]; f != nil {
			if joined[f] == nil {
				f.waiters++
			}
			joined[f] = append(joined[f], p)
		} else {
			absent = append(absent, p)
		}
	}
	for len(absent) > 0 {
		n := 1
		for n < len(absent) && absent[n].key.n == absent[0].key.n+int64(n) {
			n++
		}
		f := r.startFetch(absent[0].key, int64(n), false)
		f.waiters++
		joined[f] = absent[:n:n]
		absent = absent[n:]
	}
	return joined, nil
}

func (r *Reader) release(fetches map[*fetch][]piece) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaveFetches(fetches)
}

// leaveFetches gives up the caller's interest in fetches. Caller holds mu.
func (r *Reader) leaveFetches(fetches map[*fetch][]piece) {
	for f := range fetches {
		r.leaveFetch(f)
	}
}

func (r *Reader) leaveFetch(f *fetch) {
	f.waiters--
	if f.waiters == 0 && !f.finished {
		f.cancel()
		r.unlist(f)
	}
}

// unlist takes a fetch out of the table, so that nobody joins it any more. Caller holds mu.
func (r *Reader) unlist(f *fetch) {
	for i := range f.count {
		key := windowKey{f.first.pack, f.first.n + i}
		if r.fetches[key] == f {
			delete(r.fetches, key)
		}
	}
}

// startFetch lists and starts a fetch of count windows, none of which is listed. Caller holds mu and joins it.
func (r *Reader) startFetch(first windowKey, count int64, keepAll bool) *fetch {
	ctx, cancel := context.WithCancel(r.ctx)
	f := &fetch{first: first, count: count, done: make(chan struct{}), cancel: cancel, keepAll: keepAll}
	for i := range count {
		r.fetches[windowKey{first.pack, first.n + i}] = f
	}
	r.work.Go(func() { r.fetch(ctx, f) })
	return f
}

// fetch brings the windows, hands them to who waits, and puts them where the next reader looks before it leaves the
// table: until then, who wants them joins it and is served at once.
func (r *Reader) fetch(ctx context.Context, f *fetch) {
	defer f.cancel()
	off := f.first.n * r.window
	var cached bool
	if f.data, cached = r.arrived(f); !cached {
		f.data, f.err = r.get(ctx, f.first.pack, off, f.count*r.window)
	}
	r.finish(f)
	if f.err == nil && !cached && r.cache != nil {
		cached = r.cache.store(f.first.pack, off, f.data)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.err == nil && !cached {
		r.keepRecent(f)
	}
	r.unlist(f)
}

// arrived looks into the cache again: another fetch of the same windows may have ended between the look of this one's
// caller and its listing.
func (r *Reader) arrived(f *fetch) ([]byte, bool) {
	if r.cache == nil {
		return nil, false
	}
	data := r.cache.window(f.first.pack, f.first.n*r.window, f.count*r.window)
	return data, data != nil
}

func (r *Reader) get(ctx context.Context, p PackID, off, n int64) ([]byte, error) {
	data, err := r.store.Get(ctx, p.Key(), off, n)
	r.count(func(s *ReaderStats) { s.Requests++; s.Bytes += int64(len(data)) })
	if err == nil && int64(len(data)) > n {
		return nil, badPack("store returned %d bytes for %d", len(data), n)
	}
	return data, err
}

func (r *Reader) finish(f *fetch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f.finished = true
	close(f.done)
}

// keepRecent keeps a fetch's windows for neighbours. Windows of a larger fetch are copied so that one of them does not
// hold the memory of all. Caller holds mu.
func (r *Reader) keepRecent(f *fetch) {
	for i := range f.count {
		if !f.keepAll && i != 0 && i != f.count-1 {
			continue
		}
		key := windowKey{f.first.pack, f.first.n + i}
		window := f.windowBytes(key, r.window)
		if f.count > 1 {
			window = bytes.Clone(window)
		}
		if len(window) > 0 {
			r.recent.add(key, window)
		}
	}
}

// windowBytes returns a window of a finished fetch; short or empty where the pack ends.
func (f *fetch) windowBytes(key windowKey, window int64) []byte {
	size := int64(len(f.data))
	start := min((key.n-f.first.n)*window, size)
	return f.data[start:min(start+window, size)]
}

func (f *fetch) wait(ctx context.Context) error {
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
