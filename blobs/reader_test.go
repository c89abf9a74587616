package blobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// neighbours are many small files that do not compress, written together.
func neighbours(t testing.TB, store Store, n, size int) []content {
	r := newRand(t)
	chunks := make([][]byte, n)
	for i := range chunks {
		chunks[i] = noise(r, size)
	}
	return pack(t, store, PackerOptions{}, chunks...)
}

// Reading what was written together, in order, costs one request per window, with a cache and without.
func TestReaderCoalesces(t *testing.T) {
	store := newMapStore()
	all := neighbours(t, store, 1000, 4<<10)
	size := len(store.objects[all[0].ref.Pack.Key()])
	want := (size + 1<<20 - 1) >> 20
	for name, cache := range map[string]*PackCache{"none": nil, "disk": newCache(t, t.TempDir(), 100<<20)} {
		store.gets = 0
		r := newReader(t, store, ReaderOptions{Cache: cache, Memory: -1})
		for _, c := range all {
			mustRead(t, r, c)
		}
		if store.gets > want {
			t.Errorf("cache %s: %d requests for a pack of %d bytes, want at most %d", name, store.gets, size, want)
		}
		if s := r.Stats(); s.Requests != int64(store.gets) || s.Bytes > int64(size) || s.CacheHits+s.Misses != 1000 {
			t.Errorf("cache %s: %+v after %d requests", name, s, store.gets)
		}
		if cache == nil {
			continue
		}
		store.gets = 0
		again := newReader(t, store, ReaderOptions{Cache: cache, Memory: -1})
		for _, c := range all {
			mustRead(t, again, c)
		}
		if store.gets != 0 || again.Stats().CacheHits != 1000 {
			t.Errorf("second time: %d requests, %+v", store.gets, again.Stats())
		}
	}
}

// Chunks of all sizes, in any order, by several goroutines, over every arrangement.
func TestReaderAll(t *testing.T) {
	r := newRand(t)
	store := newMapStore()
	var chunks [][]byte
	for range 20 {
		chunks = append(chunks, noise(r, r.IntN(2<<20)), prose(r, r.IntN(1<<20)), prose(r, r.IntN(3000)))
	}
	chunks = append(chunks, nil, noise(r, MaxChunk), make([]byte, MaxChunk))
	all := pack(t, store, PackerOptions{}, chunks...)
	for name, o := range map[string]ReaderOptions{
		"plain":     {},
		"small":     {ReadAhead: 1, Memory: 1 << 20},
		"cache":     {Cache: newCache(t, t.TempDir(), 1<<30)},
		"tight":     {Cache: newCache(t, t.TempDir(), 5<<20), Memory: -1, ReadAhead: 3 << 20},
		"too small": {Cache: newCache(t, t.TempDir(), 10), Memory: -1},
	} {
		t.Run(name, func(t *testing.T) {
			reader := newReader(t, store, o)
			seed := r.Uint64()
			var wg sync.WaitGroup
			for w := range 3 {
				wg.Go(func() {
					for i, n := range rand.New(rand.NewPCG(seed, uint64(w))).Perm(len(all)) {
						got, err := reader.Chunk(t.Context(), all[n].ref)
						if err != nil || !bytes.Equal(got, all[n].want) {
							t.Errorf("chunk %d of %d bytes: %d bytes, %v", n, len(all[n].want), len(got), err)
						}
						if i%10 == 0 {
							reader.Prefetch(t.Context(), []Ref{all[(n+1)%len(all)].ref, all[(n+2)%len(all)].ref})
						}
					}
				})
			}
			wg.Wait()
			reader.Close()
			checkIdle(t, reader)
		})
	}
}

// checkIdle proves that a closed Reader forgot all work and keeps its memory bounds.
func checkIdle(t *testing.T, r *Reader) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.flights) != 0 || len(r.fetches) != 0 || len(r.jobs) != 0 {
		t.Errorf("%d flights, %d fetches, %d prefetches left", len(r.flights), len(r.fetches), len(r.jobs))
	}
	if r.chunks.used > max(r.chunks.limit, 0) || r.recent.used > r.recent.limit {
		t.Errorf("%d of %d bytes of chunks, %d of %d of windows", r.chunks.used, r.chunks.limit, r.recent.used, r.recent.limit)
	}
}

// Any number of callers who want one chunk cost one request, and one who gives up harms nobody.
func TestReaderSingleFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMapStore()
		all := neighbours(t, store, 3, 100)
		open := make(chan struct{})
		store.beforeGet = func(ctx context.Context, _ string, _, _ int64) error {
			select {
			case <-open:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		r := NewReader(store, ReaderOptions{})
		defer r.Close()
		first, cancel := context.WithCancel(t.Context())
		gaveUp := make(chan error)
		go func() {
			_, err := r.Chunk(first, all[0].ref)
			gaveUp <- err
		}()
		synctest.Wait()
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() { mustRead(t, r, all[i%3]) }) // three chunks of one window
		}
		synctest.Wait()
		cancel()
		if err := <-gaveUp; !errors.Is(err, context.Canceled) {
			t.Errorf("the caller who gave up got %v", err)
		}
		close(open)
		wg.Wait()
		if store.gets != 1 {
			t.Errorf("%d requests, want 1", store.gets)
		}
	})
}

// When the last caller gave up, the request ends, and the next caller starts afresh.
func TestReaderAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMapStore()
		all := neighbours(t, store, 1, 100)
		var ended atomic.Int32
		store.beforeGet = func(ctx context.Context, _ string, _, _ int64) error {
			<-ctx.Done()
			ended.Add(1)
			return ctx.Err()
		}
		r := NewReader(store, ReaderOptions{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.Chunk(ctx, all[0].ref); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		synctest.Wait()
		if ended.Load() != 1 {
			t.Error("the request of nobody goes on")
		}
		store.beforeGet = nil
		mustRead(t, r, all[0])
		r.Close()
		checkIdle(t, r)
		if _, err := r.Chunk(t.Context(), all[0].ref); !errors.Is(err, ErrReaderClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// Close does not wait for a store that does not answer, and says why the read failed.
func TestReaderCloseWhileReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMapStore()
		all := neighbours(t, store, 1, 100)
		store.beforeGet = func(ctx context.Context, _ string, _, _ int64) error {
			<-ctx.Done()
			return ctx.Err()
		}
		r := NewReader(store, ReaderOptions{})
		failed := make(chan error)
		go func() {
			_, err := r.Chunk(t.Context(), all[0].ref)
			failed <- err
		}()
		synctest.Wait()
		go r.Close()
		if err := <-failed; !errors.Is(err, ErrReaderClosed) {
			t.Errorf("%v", err)
		}
	})
}

// Damage on the local disk is healed from the store, once.
func TestReaderHealsCache(t *testing.T) {
	store := newMapStore()
	cache := newCache(t, t.TempDir(), 100<<20)
	all := neighbours(t, store, 1000, 4<<10)
	read := func() (ReaderStats, int) {
		t.Helper()
		store.gets = 0
		r := newReader(t, store, ReaderOptions{Cache: cache, Memory: -1})
		for _, c := range all {
			mustRead(t, r, c)
		}
		return r.Stats(), store.gets
	}
	read()
	p := all[0].ref.Pack
	damage := make([]byte, 5000)
	if err := cache.write(openFile(t, cache.path(p)), damage, 2<<20+100<<10); err != nil {
		t.Fatal(err)
	}
	if s, gets := read(); s.Healed != 1 || gets != 1 {
		t.Errorf("%d requests, %+v; want one chunk healed with one", gets, s)
	}
	if s, gets := read(); s.CacheHits != 1000 || gets != 0 {
		t.Errorf("afterwards: %d requests, %+v", gets, s)
	}
}

// Damage in the store is reported for the chunk it hits and no other, after one more look, however often it is read.
func TestReaderDamagedPack(t *testing.T) {
	for name, cached := range map[string]bool{"none": false, "disk": true} {
		t.Run(name, func(t *testing.T) {
			var cache *PackCache
			if cached {
				cache = newCache(t, t.TempDir(), 100<<20)
			}
			store := newMapStore()
			all := neighbours(t, store, 10, 4<<10)
			key := all[0].ref.Pack.Key()
			store.change(key, func(b []byte) []byte { b[all[3].ref.Offset+50] ^= 1; return b })
			r := newReader(t, store, ReaderOptions{Cache: cache})
			for _, want := range []int{2, 1} { // the window and a second look; then the local copy and a second look
				store.gets = 0
				mustBeDamaged(t, r, all[3].ref)
				if store.gets != want {
					t.Errorf("%d requests, want %d", store.gets, want)
				}
			}
			for i, c := range all {
				if i != 3 {
					mustRead(t, r, c)
				}
			}
			// The store's copy was cut: what is behind the end is damaged, the rest is not.
			store.change(key, func(b []byte) []byte { b[all[3].ref.Offset+50] ^= 1; return b[:all[8].ref.Offset] })
			r = newReader(t, store, ReaderOptions{})
			mustRead(t, r, all[3])
			mustBeDamaged(t, r, all[8].ref)
			store.change(key, func(b []byte) []byte { return b[:all[8].ref.Offset+10] })
			mustBeDamaged(t, newReader(t, store, ReaderOptions{}), all[8].ref)
		})
	}
}

func mustBeDamaged(t *testing.T, r *Reader, ref Ref) {
	t.Helper()
	got, err := r.Chunk(t.Context(), ref)
	var damaged *DamagedError
	if !errors.As(err, &damaged) || damaged.Ref != ref || damaged.Cause == nil || got != nil {
		t.Fatalf("%d bytes, %v; want a DamagedError", len(got), err)
	}
	if !errors.Is(err, ErrDamaged) || !errors.Is(err, syscall.EIO) || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v matches the wrong errors", err)
	}
}

func TestReaderMissingPack(t *testing.T) {
	store := newMapStore()
	all := neighbours(t, store, 2, 100)
	if err := store.Delete(t.Context(), all[0].ref.Pack.Key()); err != nil {
		t.Fatal(err)
	}
	r := newReader(t, store, ReaderOptions{})
	mustBeDamaged(t, r, all[0].ref)
	if store.gets != 1 || r.Stats().Damaged != 1 {
		t.Errorf("%d requests, %+v", store.gets, r.Stats())
	}
}

// A store that cannot be reached says nothing about the chunk, and the next read tries again.
func TestReaderStoreUnavailable(t *testing.T) {
	store := newMapStore()
	all := neighbours(t, store, 2, 100)
	store.beforeGet = func(context.Context, string, int64, int64) error { return fmt.Errorf("get: %w", ErrUnavailable) }
	r := newReader(t, store, ReaderOptions{})
	if _, err := r.Chunk(t.Context(), all[0].ref); !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrDamaged) {
		t.Errorf("%v", err)
	}
	store.beforeGet = nil
	mustRead(t, r, all[0])
}

// A reference from a damaged record is refused before anything is allocated or requested for it.
func TestReaderRefusesNonsense(t *testing.T) {
	store := newMapStore()
	all := neighbours(t, store, 2, 100)
	r := newReader(t, store, ReaderOptions{})
	for name, change := range map[string]func(*Ref){
		"huge":       func(f *Ref) { f.Raw = 1<<32 - 1; f.Length = 1<<32 - 1 },
		"no length":  func(f *Ref) { f.Length = 0 },
		"header":     func(f *Ref) { f.Offset = 3 },
		"far":        func(f *Ref) { f.Offset = 1<<32 - 1 },
		"longer raw": func(f *Ref) { f.Raw = f.Length - 2 },
	} {
		ref := all[0].ref
		change(&ref)
		store.gets = 0
		mustBeDamaged(t, r, ref)
		if store.gets != 0 {
			t.Errorf("%s: %d requests", name, store.gets)
		}
	}
	// The right chunk under a wrong length, also when the right one is in memory.
	mustRead(t, r, all[0])
	ref := all[0].ref
	ref.Raw++
	mustBeDamaged(t, r, ref)
}

// A prefetch brings a whole pack with few requests; reading it afterwards costs none.
func TestReaderPrefetch(t *testing.T) {
	store := newMapStore()
	cache := newCache(t, t.TempDir(), 100<<20)
	all := neighbours(t, store, 3000, 4<<10)
	r := newReader(t, store, ReaderOptions{Cache: cache})
	refs := make([]Ref, len(all))
	for i, c := range all {
		refs[i] = c.ref
	}
	store.gets = 0
	r.Prefetch(t.Context(), refs)
	waitPrefetch(r)
	if store.gets != 2 { // 12 MiB in steps of 8
		t.Errorf("%d requests to prefetch, want 2", store.gets)
	}
	r.Prefetch(t.Context(), refs)
	waitPrefetch(r)
	for _, c := range all {
		mustRead(t, r, c)
	}
	if store.gets != 2 {
		t.Errorf("%d requests after the prefetch", store.gets-2)
	}
	// Without a cache, only as much as can be kept, and that is of use.
	plain := newReader(t, store, ReaderOptions{})
	store.gets = 0
	plain.Prefetch(t.Context(), refs)
	waitPrefetch(plain)
	for _, c := range all[:900] {
		mustRead(t, plain, c)
	}
	if store.gets != 1 || plain.Stats().Bytes > 4<<20 {
		t.Errorf("without a cache: %d requests, %+v", store.gets, plain.Stats())
	}
}

// waitPrefetch returns when all prefetches ended: their tokens are free again.
func waitPrefetch(r *Reader) {
	for range cap(r.jobs) {
		r.jobs <- struct{}{}
	}
	for range cap(r.jobs) {
		<-r.jobs
	}
}

// A prefetch ends with its context and with the Reader, and a read that needs what it was fetching goes on.
func TestReaderPrefetchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMapStore()
		all := neighbours(t, store, 3000, 4<<10)
		open := make(chan struct{})
		store.beforeGet = func(ctx context.Context, _ string, _, _ int64) error {
			select {
			case <-open:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		r := NewReader(store, ReaderOptions{})
		ctx, cancel := context.WithCancel(t.Context())
		r.Prefetch(ctx, []Ref{all[0].ref, all[2999].ref})
		synctest.Wait()
		done := make(chan struct{})
		go func() {
			mustRead(t, r, all[1]) // joins the first of two fetches
			close(done)
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
		if len(r.jobs) != 0 {
			t.Error("the prefetch goes on without its context")
		}
		close(open)
		<-done
		if store.gets != 2 {
			t.Errorf("%d requests, want the two of the prefetch", store.gets)
		}
		r.Close()
		r.Prefetch(t.Context(), []Ref{all[5].ref})
		checkIdle(t, r)
	})
}

func TestByteLRU(t *testing.T) {
	l := newByteLRU[int](10 * (100 + itemCost))
	for i := range 20 {
		l.add(i, make([]byte, 100))
		l.get(3)
	}
	if _, ok := l.get(3); !ok || len(l.items) != 10 || l.used != l.limit {
		t.Errorf("%d items, %d of %d bytes", len(l.items), l.used, l.limit)
	}
	l.add(3, make([]byte, int(l.limit)))
	if _, ok := l.get(3); ok {
		t.Error("an item over the limit replaced its predecessor and was kept")
	}
}

func BenchmarkReader(b *testing.B) {
	store := newMapStore()
	all := neighbours(b, store, 4000, 4<<10)
	cache := newCache(b, b.TempDir(), 100<<20)
	for _, c := range []struct {
		name string
		o    ReaderOptions
	}{{"memory", ReaderOptions{Memory: 100 << 20}}, {"disk", ReaderOptions{Cache: cache, Memory: -1}}, {"windows", ReaderOptions{Memory: -1}}} {
		b.Run(c.name, func(b *testing.B) {
			r := newReader(b, store, c.o)
			i := 0
			for b.Loop() {
				if _, err := r.Chunk(b.Context(), all[i%len(all)].ref); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}
