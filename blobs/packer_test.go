package blobs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Every chunk added from many goroutines, some several times, is in the store once, where its reference says.
func TestPackerConcurrent(t *testing.T) {
	r := newRand(t)
	const workers, each = 8, 300
	chunks := make([][]byte, workers*each)
	for i := range chunks {
		chunks[i] = prose(r, 20+r.IntN(5000))
		if i%3 == 0 {
			chunks[i] = noise(r, r.IntN(9000))
		}
	}
	store := newMapStore()
	reported := make(map[PackID][]PackEntry)
	var inside atomic.Int32
	p := NewPacker(store, PackerOptions{Target: 256 << 10, Uploads: 3, OnUploaded: func(id PackID, es []PackEntry) {
		if inside.Add(1) != 1 {
			t.Error("two reports at once")
		}
		if store.body(id.Key()) == nil {
			t.Errorf("pack %s reported before it was stored", id)
		}
		if reported[id] != nil {
			t.Errorf("pack %s reported twice", id)
		}
		reported[id] = es
		inside.Add(-1)
	}})
	defer p.Close()
	got := make([]Ref, len(chunks))
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				n := w*each + i
				ref, err := p.Add(t.Context(), KindData, IDOf(chunks[n]), chunks[n])
				if err != nil {
					t.Error(err)
				}
				got[n] = ref
				again, err := p.Add(t.Context(), KindData, IDOf(chunks[i]), chunks[i]) // everybody adds the first ones
				if err != nil || again.ID != IDOf(chunks[i]) {
					t.Errorf("added again: %v, %v", again, err)
				}
			}
		})
	}
	wg.Wait()
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkPacked(t, store, p, reported, chunks, got)
}

// checkPacked compares references, reports, counters and what is in the store.
func checkPacked(t *testing.T, store *mapStore, p *Packer, reported map[PackID][]PackEntry, chunks [][]byte, got []Ref) {
	t.Helper()
	reader := newReader(t, store, ReaderOptions{})
	distinct := make(map[ID]Ref)
	for i, c := range chunks {
		if first, ok := distinct[got[i].ID]; ok && first != got[i] {
			t.Errorf("chunk %s is at %v and %v", got[i].ID, first, got[i])
		}
		distinct[got[i].ID] = got[i]
		mustRead(t, reader, content{got[i], c})
	}
	listed := 0
	for id, es := range reported {
		listed += len(es)
		for _, e := range es {
			if distinct[e.ID] != e.Ref(id) {
				t.Errorf("report lists %v, Add returned %v", e.Ref(id), distinct[e.ID])
			}
		}
		if n := len(store.objects[id.Key()]); n > p.target {
			t.Errorf("pack of %d bytes, target %d", n, p.target)
		}
	}
	s := p.Stats()
	if listed != len(distinct) || int(s.Chunks) != len(distinct) || int(s.Packs) != len(reported) || store.puts != len(reported) {
		t.Errorf("%d distinct chunks, %d listed, %d packs reported, %d puts, counted %+v", len(distinct), listed, len(reported), store.puts, s)
	}
}

// A small commit costs one PUT, and an empty one none.
func TestPackerFlush(t *testing.T) {
	store := newMapStore()
	p := NewPacker(store, PackerOptions{})
	defer p.Close()
	for range 2 {
		if err := p.Flush(t.Context()); err != nil || store.puts != 0 {
			t.Fatalf("empty flush: %v, %d puts", err, store.puts)
		}
	}
	for i := range 2000 {
		b := fmt.Appendf(nil, "chunk %d", i)
		if _, err := p.Add(t.Context(), KindPage, IDOf(b), b); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := p.Flush(t.Context()); err != nil || store.puts != 1 {
			t.Fatalf("flush: %v, %d puts, want 1", err, store.puts)
		}
	}
}

// The number of entries bounds a pack too, or a million empty files would make a footer nobody wants to read.
func TestPackerBoundsEntries(t *testing.T) {
	store := newMapStore()
	p := NewPacker(store, PackerOptions{})
	defer p.Close()
	for i := range maxEntries + 10 {
		b := fmt.Appendf(nil, "%d", i)
		if _, err := p.Add(t.Context(), KindData, IDOf(b), b); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(t.Context()); err != nil || store.puts != 2 {
		t.Errorf("%v, %d puts, want 2", err, store.puts)
	}
}

// While all slots are busy Add blocks, gives up with its context, and works again when one is free.
func TestPackerBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRand(t)
		store := newMapStore()
		free := make(chan struct{})
		var most, now atomic.Int32
		store.beforePut = func(ctx context.Context, _ string, _ []byte) error {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer now.Add(-1)
			<-free
			return nil
		}
		p := NewPacker(store, PackerOptions{Target: 10 << 10, Uploads: 2})
		defer p.Close()
		add := func(ctx context.Context) error {
			b := noise(r, 9<<10)
			_, err := p.Add(ctx, KindData, IDOf(b), b)
			return err
		}
		for range 3 { // two in flight and a full open one
			if err := add(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := add(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("fourth pack with two slots: %v", err)
		}
		if err := p.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("flush with a context that ended: %v", err)
		}
		close(free)
		if err := add(t.Context()); err != nil {
			t.Error(err)
		}
		if err := p.Flush(t.Context()); err != nil {
			t.Error(err)
		}
		if s := p.Stats(); s.Packs != 4 || s.Chunks != 4 || most.Load() != 2 {
			t.Errorf("%+v, %d uploads at once; want 4 packs, 4 chunks, 2", s, most.Load())
		}
	})
}

// The first failed upload ends everything, uploads in flight and callers who wait included.
func TestPackerUploadFails(t *testing.T) {
	boom := errors.New("boom")
	synctest.Test(t, func(t *testing.T) {
		r := newRand(t)
		store := newMapStore()
		var puts atomic.Int32
		store.beforePut = func(ctx context.Context, _ string, _ []byte) error {
			if puts.Add(1) == 1 {
				time.Sleep(time.Minute)
				return boom
			}
			<-ctx.Done() // ended by the failure of the other one
			return ctx.Err()
		}
		p := NewPacker(store, PackerOptions{Target: 10 << 10, Uploads: 2, OnUploaded: func(PackID, []PackEntry) {
			t.Error("a failed pack was reported")
		}})
		defer p.Close()
		var err error
		for n := 0; err == nil; n++ {
			if n > 3 {
				t.Fatal("chunks are taken although the upload failed")
			}
			b := noise(r, 9<<10)
			_, err = p.Add(t.Context(), KindData, IDOf(b), b)
		}
		if !errors.Is(err, boom) {
			t.Errorf("waiting Add: %v", err)
		}
		if err := p.Flush(t.Context()); !errors.Is(err, boom) {
			t.Errorf("Flush: %v", err)
		}
		if _, err := p.Add(t.Context(), KindData, IDOf(nil), nil); !errors.Is(err, boom) {
			t.Errorf("later Add: %v", err)
		}
		if len(store.objects) != 0 || p.Stats().Packs != 0 {
			t.Errorf("%d objects, %+v", len(store.objects), p.Stats())
		}
	})
}

// Content under a wrong name never reaches the store.
func TestPackerVerifies(t *testing.T) {
	for _, body := range [][]byte{[]byte("short"), prose(newRand(t), 5000)} {
		store := newMapStore()
		p := NewPacker(store, PackerOptions{})
		if _, err := p.Add(t.Context(), KindData, IDOf([]byte("other")), body); err != nil {
			t.Fatal(err)
		}
		if err := p.Flush(t.Context()); !errors.Is(err, errPack) || store.puts != 0 {
			t.Errorf("wrong name: %v, %d puts", err, store.puts)
		}
		p.Close()
	}
}

func TestPackerRefuses(t *testing.T) {
	p := NewPacker(newMapStore(), PackerOptions{})
	if _, err := p.Add(t.Context(), KindData, ID{}, make([]byte, MaxChunk+1)); err == nil {
		t.Error("a chunk over the maximum was taken")
	}
	if _, err := p.Add(t.Context(), 0, ID{}, nil); err == nil {
		t.Error("a chunk of no kind was taken")
	}
	p.Close()
	p.Close()
	if _, err := p.Add(t.Context(), KindData, IDOf(nil), nil); !errors.Is(err, ErrPackerClosed) {
		t.Errorf("Add after Close: %v", err)
	}
	if err := p.Flush(t.Context()); !errors.Is(err, ErrPackerClosed) {
		t.Errorf("Flush after Close: %v", err)
	}
}

// A chunk larger than the target gets a pack of its own, and what fits exactly joins.
func TestPackerLargeChunks(t *testing.T) {
	r := newRand(t)
	store := newMapStore()
	all := pack(t, store, PackerOptions{Target: 1 << 20}, noise(r, MaxChunk), noise(r, 100), noise(r, MaxChunk), noise(r, 100), noise(r, 200))
	if store.puts != 4 {
		t.Errorf("%d packs, want 4", store.puts)
	}
	reader := newReader(t, store, ReaderOptions{})
	for _, c := range all {
		mustRead(t, reader, c)
	}
}

func TestPackerFillsCache(t *testing.T) {
	r := newRand(t)
	store := newMapStore()
	cache := newCache(t, t.TempDir(), 64<<20)
	all := pack(t, store, PackerOptions{Target: 3 << 20, Cache: cache}, noise(r, 2<<20), noise(r, 900<<10), noise(r, 2<<20))
	reader := newReader(t, store, ReaderOptions{Cache: cache})
	for _, c := range all {
		mustRead(t, reader, c)
	}
	if gets, _ := store.counts(); gets != 0 {
		t.Errorf("%d requests for what was just written", gets)
	}
}

// BenchmarkPacker is everything between a file and the store: cutting, naming, compressing, verifying, storing, on two
// goroutines. Bytes are content.
func BenchmarkPacker(b *testing.B) {
	r := newRand(b)
	for _, kind := range []struct {
		name    string
		content []byte
	}{{"text", prose(r, 64<<20)}, {"noise", noise(r, 64<<20)}} {
		b.Run(kind.name, func(b *testing.B) {
			b.SetBytes(int64(len(kind.content)))
			for b.Loop() {
				packHalves(b, kind.content)
			}
		})
	}
}

func packHalves(b *testing.B, all []byte) {
	p := NewPacker(newMapStore(), PackerOptions{})
	defer p.Close()
	var wg sync.WaitGroup
	for _, half := range [][]byte{all[:len(all)/2], all[len(all)/2:]} {
		wg.Go(func() {
			if err := splitInto(half, func(c []byte) error {
				_, err := p.Add(b.Context(), KindData, IDOf(c), c)
				return err
			}); err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
	if err := p.Flush(b.Context()); err != nil {
		b.Error(err)
	}
}
