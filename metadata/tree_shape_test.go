package metadata

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"runtime"
	"sync"
	"testing"

	"wsfs/blobs"
)

// TestDeletesMergePages: a tree that was thinned out is not left with pages that are nearly empty.
func TestDeletesMergePages(t *testing.T) {
	rng := newRand(t)
	pages := newMemPages()
	all := numbered(5000)
	tr, _ := mustApply(t, openSized(blobs.Ref{}, pages, nil, 512), pages, all...)
	full := len(pageSet(t, tr))
	for _, i := range rng.Perm(5000)[:4750] { // one key per batch: each must merge on its own
		tr, _ = mustApply(t, tr, pages, Change{all[i].Key, nil})
	}
	verifyTree(t, tr)
	n := 0
	for id, level := range pageSet(t, tr) {
		n++
		if id != tr.root.ID && level == 0 && len(pages.pages[id]) < 512/8 {
			t.Errorf("a leaf of %d bytes is left", len(pages.pages[id]))
		}
	}
	if n > full/5 {
		t.Errorf("%d pages for a twentieth of the keys, %d for all", n, full)
	}
	for k := range contents(t, tr) {
		tr, _ = mustApply(t, tr, pages, Change{[]byte(k), nil})
	}
	if tr.Root() != (blobs.Ref{}) {
		t.Error("the tree is empty but its root is not zero")
	}
}

func TestPagesAreFilled(t *testing.T) {
	pages := newMemPages()
	tr, stats := mustApply(t, OpenTree(blobs.Ref{}, pages, nil), pages, numbered(100000)...)
	verifyTree(t, tr)
	over := 0
	for _, ref := range pages.written {
		if int(ref.Raw) > defaultSizes.most {
			t.Errorf("page of %d bytes", ref.Raw)
		}
		if ref.Raw < 24<<10 {
			over++
		}
	}
	if over > 4 {
		t.Errorf("%d of %d pages of a bulk build are not filled", over, len(pages.written))
	}
	t.Logf("%+v", stats)
}

// TestGiantValues: values larger than a page, alone and among small ones.
func TestGiantValues(t *testing.T) {
	rng := newRand(t)
	pages := newMemPages()
	tr := OpenTree(blobs.Ref{}, pages, NewPageCache(1<<20))
	model := make(map[string]string)
	for range 30 {
		var list []Change
		for i := range 60 {
			if rng.IntN(3) > 0 {
				continue
			}
			key := fmt.Sprintf("a%04d", i)
			value := bytes.Repeat([]byte{byte(i)}, rng.IntN(100))
			if rng.IntN(3) == 0 {
				value = bytes.Repeat([]byte{byte(i)}, 64<<10)
			}
			if rng.IntN(4) == 0 {
				value = nil
				delete(model, key)
			} else {
				model[key] = string(value)
			}
			list = append(list, Change{[]byte(key), value})
		}
		tr, _ = mustApply(t, tr, pages, list...)
		verifyTree(t, tr)
		if !maps.Equal(contents(t, tr), model) {
			t.Fatal("contents differ from the model")
		}
	}
	tr, _ = mustApply(t, tr, pages, Change{[]byte("max"), make([]byte, MaxTreeValue)})
	if v, ok, err := tr.Get(context.Background(), []byte("max")); err != nil || !ok || len(v) != MaxTreeValue {
		t.Fatalf("largest value: %d bytes, %v, %v", len(v), ok, err)
	}
}

func TestApplyRefusesBadChanges(t *testing.T) {
	pages := newMemPages()
	tr, _ := mustApply(t, OpenTree(blobs.Ref{}, pages, nil), pages, numbered(10)...)
	boom := errors.New("boom")
	for name, seq := range map[string]iter.Seq2[Change, error]{
		"descending": changesOf([]Change{{[]byte("b"), []byte("1")}, {[]byte("a"), []byte("1")}}),
		"repeated":   changesOf([]Change{{[]byte("b"), []byte("1")}, {[]byte("b"), []byte("1")}}),
		"empty key":  changesOf([]Change{{nil, []byte("1")}}),
		"long key":   changesOf([]Change{{make([]byte, MaxTreeKey+1), []byte("1")}}),
		"long value": changesOf([]Change{{[]byte("a"), make([]byte, MaxTreeValue+1)}}),
		"failing":    func(yield func(Change, error) bool) { yield(Change{}, boom) },
	} {
		next, _, err := tr.Apply(context.Background(), pages, seq)
		if err == nil || next != nil {
			t.Errorf("%s: no error", name)
		}
		if name == "failing" && !errors.Is(err, boom) {
			t.Errorf("%s: %v does not wrap the cause", name, err)
		}
	}
}

func TestTreeReportsFaults(t *testing.T) {
	ctx := context.Background()
	pages := newMemPages()
	tr, _ := mustApply(t, openSized(blobs.Ref{}, pages, nil, 300), pages, numbered(1000)...)
	boom := errors.New("boom")
	pages.fail = boom
	_, _, err := tr.Get(ctx, []byte("key00000001"))
	scanErr := tr.Scan(ctx, nil, nil, func(_, _ []byte) error { return nil })
	pagesErr := tr.Pages(ctx, func(blobs.Ref, int) error { return nil })
	_, _, applyErr := tr.Apply(ctx, pages, changesOf([]Change{{[]byte("a"), []byte("b")}}))
	_, _, buildErr := OpenTree(blobs.Ref{}, pages, nil).Apply(ctx, pages, changesOf([]Change{{[]byte("a"), []byte("b")}}))
	diffErr := Diff(ctx, tr, OpenTree(blobs.Ref{}, pages, nil), func(_, _, _ []byte) error { return nil })
	for i, err := range []error{err, scanErr, pagesErr, applyErr, buildErr, diffErr} {
		if !errors.Is(err, boom) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	pages.fail = nil
	if err := tr.Scan(ctx, nil, nil, func(_, _ []byte) error { return boom }); !errors.Is(err, boom) {
		t.Errorf("scan does not return the error of fn: %v", err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if err := tr.Scan(cancelled, nil, nil, func(_, _ []byte) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("scan with a cancelled context: %v", err)
	}
	if _, _, err := tr.Apply(cancelled, pages, changesOf([]Change{{[]byte("a"), []byte("b")}})); !errors.Is(err, context.Canceled) {
		t.Errorf("apply with a cancelled context: %v", err)
	}
	// A page of another level in a child's place must not be followed.
	for id, b := range pages.pages {
		if p, err := decodePage(b); err == nil && p.level == 0 {
			pages.pages[id] = pages.pages[tr.root.ID]
		}
	}
	if _, _, err := tr.Get(ctx, []byte("key00000001")); !errors.Is(err, ErrPage) {
		t.Errorf("a branch in the place of a leaf: %v", err)
	}
}

func TestCached(t *testing.T) {
	pages := newMemPages()
	built, _ := mustApply(t, openSized(blobs.Ref{}, pages, nil, 300), pages, numbered(1000)...)
	tr := openSized(built.root, pages, NewPageCache(1<<20), 300)
	key, far := []byte("key00000500"), []byte("key00000900")
	if tr.Cached(key) {
		t.Fatal("nothing was read yet")
	}
	if _, _, err := tr.Get(context.Background(), key); err != nil {
		t.Fatal(err)
	}
	if !tr.Cached(key) || tr.Cached(far) {
		t.Fatal("exactly the pages read are cached")
	}
	n := pages.reads
	if _, ok, err := tr.Get(context.Background(), key); !ok || err != nil || pages.reads != n {
		t.Fatal("a cached key was read again")
	}
	if !OpenTree(blobs.Ref{}, pages, nil).Cached(key) {
		t.Fatal("the empty tree needs no page")
	}
}

func TestPageCacheIsBounded(t *testing.T) {
	pages := newMemPages()
	cache := NewPageCache(20000)
	tr, _ := mustApply(t, openSized(blobs.Ref{}, pages, cache, 300), pages, numbered(3000)...)
	if used := cache.Used(); used > 20000 || used < 15000 {
		t.Fatalf("cache of 20000 bytes holds %d", used)
	}
	hot := []byte("key00000001")
	for i := range 3000 {
		for _, k := range [][]byte{hot, fmt.Appendf(nil, "key%08d", i)} {
			if _, ok, err := tr.Get(context.Background(), k); err != nil || !ok {
				t.Fatal(ok, err)
			}
		}
		if cache.Used() > 20000 {
			t.Fatal("over the limit")
		}
		if !tr.Cached(hot) {
			t.Fatal("the page in constant use was pushed out")
		}
	}
	if n := NewPageCache(1 << 30); len(n.shards) != 16 {
		t.Fatalf("%d shards", len(n.shards))
	}
}

// TestTreeConcurrently reads one tree and makes others from it at the same time through a small cache.
func TestTreeConcurrently(t *testing.T) {
	pages := newMemPages()
	tr, _ := mustApply(t, openSized(blobs.Ref{}, pages, NewPageCache(50000), 300), pages, numbered(3000)...)
	want := contents(t, tr)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 40 {
				k := fmt.Appendf(nil, "key%08d", (g*997+i*61)%3000)
				next, _, err := tr.Apply(context.Background(), pages, changesOf([]Change{{k, []byte("new")}}))
				if err != nil {
					t.Error(err)
					return
				}
				if v, ok, err := next.Get(context.Background(), k); err != nil || !ok || string(v) != "new" {
					t.Errorf("%q %v %v", v, ok, err)
				}
				if v, ok, err := tr.Get(context.Background(), k); err != nil || !ok || string(v) != want[string(k)] {
					t.Errorf("%q %v %v", v, ok, err)
				}
			}
		})
	}
	wg.Wait()
	if !maps.Equal(contents(t, tr), want) {
		t.Error("the old tree changed")
	}
}

// TestApplyMemory: the memory of an Apply does not grow with the number of changes.
func TestApplyMemory(t *testing.T) {
	const n = 160000
	var first, peak uint64
	changes := func(yield func(Change, error) bool) {
		var key, value []byte
		for i := range n {
			if i%20000 == 15000 {
				var m runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&m)
				if first == 0 {
					first = m.HeapAlloc
				}
				peak = max(peak, m.HeapAlloc)
			}
			key, value = fmt.Appendf(key[:0], "key%09d", i), fmt.Appendf(value[:0], "some value of some length, number %d", i)
			if !yield(Change{key, value}, nil) {
				return
			}
		}
	}
	_, stats, err := OpenTree(blobs.Ref{}, &nullPages{}, nil).Apply(context.Background(), &nullPages{}, changes)
	if err != nil || stats.Sets != n {
		t.Fatal(stats, err)
	}
	if grown := int64(peak) - int64(first); grown > 1<<20 {
		t.Errorf("memory grew by %d bytes", grown)
	}
}
