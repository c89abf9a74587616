package blobs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
)

// Defaults and bounds of ReaderOptions.
const (
	DefaultReaderMemory    = 16 << 20
	DefaultReaderReadAhead = 1 << 20
	minReadAhead           = 4 << 10
	maxReadAhead           = 16 << 20
	recentWindows          = 8 // windows kept for neighbours when there is no cache to keep them
)

// ErrDamaged: a chunk is missing from the store or is there with other content. The range of the file that needs it
// cannot be read; nothing else is affected.
var ErrDamaged = errors.New("chunk damaged or missing")

// ErrReaderClosed is returned by every call after Close.
var ErrReaderClosed = errors.New("chunk reader is closed")

// DamagedError says which chunk cannot be read and why. It matches ErrDamaged and syscall.EIO, which is what a front
// end answers. Cause is deliberately out of errors.Is's sight: a missing pack is no ErrNotExist of the file.
type DamagedError struct {
	Ref   Ref
	Cause error
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("chunk %s in pack %s at %d: %v", e.Ref.ID, e.Ref.Pack, e.Ref.Offset, e.Cause)
}

// Unwrap makes errors.Is(e, ErrDamaged) and errors.Is(e, syscall.EIO) true.
func (e *DamagedError) Unwrap() []error { return []error{ErrDamaged, syscall.EIO} }

// ReaderOptions configures a Reader; the zero value is good for a local store.
type ReaderOptions struct {
	// Cache keeps fetched bytes on the local disk; nil reads straight from the store, which suits dir: and mem:.
	Cache *PackCache
	// Memory is how many bytes of decoded chunks are kept; 0 means DefaultReaderMemory, less means none.
	Memory int64
	// ReadAhead is the size in bytes of the aligned windows packs are fetched in; 0 or less means
	// DefaultReaderReadAhead. With a Cache it is rounded up to whole MiB. Without one, the last 8 windows are
	// kept in memory.
	ReadAhead int64
}

// ReaderStats counts what a Reader did.
type ReaderStats struct {
	Hits      int64 // chunks found decoded in memory
	CacheHits int64 // chunks read from the local cache alone
	Misses    int64 // chunks that needed the store, or bytes just fetched from it
	Requests  int64 // Gets sent to the store
	Bytes     int64 // bytes those returned
	Healed    int64 // chunks whose first copy was bad and whose second was good
	Damaged   int64 // chunks given up with a DamagedError
}

// Reader reads chunks and proves every one against its name before anybody sees it.
//
// A chunk is looked for in memory (decoded), in the local cache, among windows fetched lately, and in the store, from
// where it comes in aligned windows: chunks written together lie together, so the neighbours, likely to be wanted
// next, come with the same request.
//
// Two layers share work between concurrent callers. A flight is one chunk being loaded and decoded: callers of the
// same Ref join it. A fetch is one Get of neighbouring windows: flights (and Prefetch) that need any of them join it.
// Both run on a goroutine of their own, so a caller who gives up harms nobody; when the last one has left, the work is
// cancelled and forgotten in the same critical section, so that nobody can join what is dying.
//
// A fetch ends by putting its windows where the next caller looks (cache or recent) before it leaves the table, and
// starts by looking there again; hence a window is never requested twice while one of these holds it.
type Reader struct {
	store Store
	cache *PackCache

	window int64 // bytes
	ctx    context.Context
	stop   context.CancelFunc
	work   sync.WaitGroup
	jobs   chan struct{} // one token per Prefetch at work

	mu      sync.Mutex // guards everything below; never held during I/O or decoding
	chunks  *byteLRU[ID]
	recent  *byteLRU[windowKey]
	flights map[Ref]*flight
	fetches map[windowKey]*fetch
	stats   ReaderStats
	closed  bool
}

// flight is one chunk being read for any number of callers.
type flight struct {
	done    chan struct{} // closed when content and err are final
	content []byte
	err     error
	waiters int // guarded by Reader.mu; the flight is cancelled when it falls to 0
	cancel  context.CancelFunc
}

// NewReader returns a Reader of store's packs. Close it when done.
func NewReader(store Store, o ReaderOptions) *Reader {
	if o.Memory == 0 {
		o.Memory = DefaultReaderMemory
	}
	if o.ReadAhead <= 0 {
		o.ReadAhead = DefaultReaderReadAhead
	}
	window := min(max(o.ReadAhead, minReadAhead), maxReadAhead)
	if o.Cache != nil {
		window = (window + cacheBlock - 1) / cacheBlock * cacheBlock
	}
	ctx, stop := context.WithCancel(context.Background())
	return &Reader{
		store: store, cache: o.Cache, window: window, ctx: ctx, stop: stop, jobs: make(chan struct{}, prefetchJobs),
		chunks: newByteLRU[ID](o.Memory), recent: newByteLRU[windowKey](recentWindows * window),
		flights: make(map[Ref]*flight), fetches: make(map[windowKey]*fetch),
	}
}

// Close cancels what is under way and waits for it to end. The store and the cache stay open.
func (r *Reader) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.stop()
	r.work.Wait()
}

// Stats returns the counters so far.
func (r *Reader) Stats() ReaderStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats
}

// Chunk returns the content of the chunk ref points to, verified against its name. The result is shared and must not
// be modified. A chunk that is not what its name says is dropped from the cache and fetched once more; if that is no
// better, or the pack is missing, the error is a *DamagedError. Any other error (the store cannot be reached, ctx
// ended) says nothing about the chunk.
func (r *Reader) Chunk(ctx context.Context, ref Ref) ([]byte, error) {
	if err := checkSpan(ref.Offset, ref.Length, ref.Raw); err != nil {
		return nil, &DamagedError{Ref: ref, Cause: err}
	}
	content, f, err := r.join(ref)
	if err != nil || f == nil {
		return content, err
	}
	select {
	case <-f.done:
		return f.content, f.err
	case <-ctx.Done():
		r.leave(ref, f)
		return nil, fmt.Errorf("reading chunk %s: %w", ref.ID, context.Cause(ctx))
	}
}

// join finds the chunk in memory, or the flight that reads it, starting one if there is none.
func (r *Reader) join(ref Ref) ([]byte, *flight, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, nil, ErrReaderClosed
	}
	if content, ok := r.chunks.get(ref.ID); ok && len(content) == int(ref.Raw) {
		r.stats.Hits++
		return content, nil, nil
	}
	f := r.flights[ref]
	if f == nil {
		ctx, cancel := context.WithCancel(r.ctx)
		f = &flight{done: make(chan struct{}), cancel: cancel}
		r.flights[ref] = f
		r.work.Go(func() { r.fly(ctx, ref, f) })
	}
	f.waiters++
	return nil, f, nil
}

func (r *Reader) leave(ref Ref, f *flight) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f.waiters--
	if f.waiters > 0 {
		return
	}
	f.cancel()
	if r.flights[ref] == f {
		delete(r.flights, ref)
	}
}

// fly reads one chunk and hands it to all who joined.
func (r *Reader) fly(ctx context.Context, ref Ref, f *flight) {
	defer f.cancel()
	content, err := r.read(ctx, ref)
	if err != nil && r.ctx.Err() != nil {
		err = fmt.Errorf("reading chunk %s: %w", ref.ID, ErrReaderClosed)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.chunks.add(ref.ID, content)
	}
	if r.flights[ref] == f {
		delete(r.flights, ref)
	}
	f.content, f.err = content, err
	close(f.done)
}

// read loads and verifies a chunk, twice if need be: what is wrong may be wrong only here.
func (r *Reader) read(ctx context.Context, ref Ref) ([]byte, error) {
	content, err := r.attempt(ctx, ref)
	var damaged *DamagedError
	if !errors.As(err, &damaged) {
		return content, err
	}
	if !errors.Is(damaged.Cause, ErrNotExist) { // a pack that is not there does not come with the next request
		r.forget(ref)
		content, err = r.attempt(ctx, ref)
	}
	switch {
	case err == nil:
		r.count(func(s *ReaderStats) { s.Healed++ })
	case errors.As(err, &damaged):
		r.count(func(s *ReaderStats) { s.Damaged++ })
	}
	return content, err
}

func (r *Reader) count(f func(*ReaderStats)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.stats)
}

// attempt loads and verifies a chunk once. Whatever is wrong with the chunk itself becomes a DamagedError.
func (r *Reader) attempt(ctx context.Context, ref Ref) ([]byte, error) {
	stored, err := r.load(ctx, ref)
	if err == nil {
		var content []byte
		if content, err = verifyChunk(stored, ref); err == nil {
			return content, nil
		}
	} else if !errors.Is(err, ErrNotExist) && !errors.Is(err, errPack) {
		return nil, fmt.Errorf("reading chunk %s: %w", ref.ID, err)
	}
	return nil, &DamagedError{Ref: ref, Cause: err}
}

// forget drops every local copy of a chunk's bytes.
func (r *Reader) forget(ref Ref) {
	if r.cache != nil {
		r.cache.Drop(ref.Pack, int64(ref.Offset), int64(ref.Length))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for w := range r.windows(ref) {
		r.recent.remove(w)
	}
}
