package metadata

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"wsfs/blobs"
)

// memPages is a page store in memory. Every page gets another locator, also one written twice.
type memPages struct {
	mu      sync.Mutex
	pages   map[blobs.ID][]byte
	written []blobs.Ref
	reads   int
	bytes   int64
	fail    error // what every call returns, if set
}

func newMemPages() *memPages { return &memPages{pages: make(map[blobs.ID][]byte)} }

func (m *memPages) ReadPage(_ context.Context, ref blobs.Ref) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	if m.fail != nil {
		return nil, m.fail
	}
	b, ok := m.pages[ref.ID]
	if !ok {
		return nil, fmt.Errorf("page %v: %w", ref.ID, blobs.ErrNotExist)
	}
	return b, nil
}

func (m *memPages) WritePage(_ context.Context, content []byte) (blobs.Ref, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return blobs.Ref{}, m.fail
	}
	ref := blobs.Ref{ID: blobs.IDOf(content), Raw: uint32(len(content))}
	ref.Offset = uint32(m.bytes)
	ref.Length = ref.Raw + 1
	m.bytes += int64(len(content))
	m.written = append(m.written, ref)
	m.pages[ref.ID] = content
	return ref, nil
}

// lateReader finds only what was written before the last call of settle, as a store does whose packs are uploaded
// after a commit's pages are all written.
type lateReader struct {
	*memPages
	mu      sync.Mutex
	settled map[blobs.ID]bool
}

func (l *lateReader) settle() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settled = make(map[blobs.ID]bool)
	for id := range l.pages {
		l.settled[id] = true
	}
}

func (l *lateReader) ReadPage(ctx context.Context, ref blobs.Ref) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.settled[ref.ID] {
		return nil, fmt.Errorf("page %v read before it was stored", ref.ID)
	}
	return l.memPages.ReadPage(ctx, ref)
}

func openSized(root blobs.Ref, r PageReader, cache *PageCache, target int) *Tree {
	t := OpenTree(root, r, cache)
	t.sizes = sizesFor(target)
	return t
}

func changesOf(list []Change) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		for _, c := range list {
			if !yield(c, nil) {
				return
			}
		}
	}
}

func mustApply(t testing.TB, tr *Tree, w PageWriter, list ...Change) (*Tree, ApplyStats) {
	t.Helper()
	nt, stats, err := tr.Apply(context.Background(), w, changesOf(list))
	if err != nil {
		t.Fatal(err)
	}
	return nt, stats
}

func newRand(t testing.TB) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 1))
}

// verifyTree proves what the code relies on: levels fall by one, every key lies within the bounds its page's parent
// gives, branches have two children, and no page but the lone root is too small (unless a giant entry is near).
func verifyTree(t testing.TB, tr *Tree) (height int) {
	t.Helper()
	if tr.empty() {
		return 0
	}
	ctx := context.Background()
	root, err := tr.page(ctx, tr.root, anyLevel)
	if err != nil {
		t.Fatal(err)
	}
	var walk func(ref blobs.Ref, level int, lo, hi []byte)
	walk = func(ref blobs.Ref, level int, lo, hi []byte) {
		content, err := tr.r.ReadPage(ctx, ref)
		if err != nil {
			t.Fatal(err)
		}
		p, err := decodePage(content)
		if err != nil {
			t.Fatal(err)
		}
		if int(p.level) != level {
			t.Fatalf("page of level %d where %d is due", p.level, level)
		}
		for i := range p.offs {
			k := p.appendKey(nil, i)
			if bytes.Compare(k, lo) < 0 || hi != nil && bytes.Compare(k, hi) >= 0 {
				t.Fatalf("level %d: key %x outside [%x, %x)", level, k, lo, hi)
			}
		}
		if level == 0 {
			return
		}
		for i := range p.children() {
			walk(p.ref(i), level-1, bound(nil, p, i, lo, hi), bound(nil, p, i+1, lo, hi))
		}
	}
	walk(tr.root, int(root.level), nil, nil)
	return int(root.level) + 1
}

func contents(t testing.TB, tr *Tree) map[string]string {
	t.Helper()
	m := make(map[string]string)
	var prev []byte
	err := tr.Scan(context.Background(), nil, nil, func(k, v []byte) error {
		if prev != nil && bytes.Compare(prev, k) >= 0 {
			t.Fatalf("scan: key %x after %x", k, prev)
		}
		prev = append(prev[:0], k...)
		m[string(k)] = string(v)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// randomBatch makes a sorted batch against the model and applies it to the model.
func randomBatch(rng *rand.Rand, model map[string]string) []Change {
	batch := make(map[string][]byte)
	space := 1 + rng.IntN(3000)
	deletes := rng.IntN(101) // percent
	start := rng.IntN(3000)
	for range 1 + rng.IntN(1<<rng.IntN(11)) {
		key := fmt.Sprintf("k%04d%s", start+rng.IntN(space), "suffix"[:rng.IntN(7)])
		if len(model) > 0 && rng.IntN(3) == 0 { // one that is there, or near
			for k := range model {
				key = k
				break
			}
		}
		switch {
		case rng.IntN(100) < deletes:
			batch[key] = nil
		case rng.IntN(50) == 0:
			batch[key] = []byte{}
		case rng.IntN(300) == 0:
			batch[key] = bytes.Repeat([]byte{byte(rng.Uint32())}, rng.IntN(2000))
		case rng.IntN(5) == 0 && model[key] != "":
			batch[key] = []byte(model[key])
		default:
			batch[key] = fmt.Appendf(nil, "%d", rng.IntN(1000000))
		}
	}
	if keys := slices.Sorted(maps.Keys(model)); len(keys) > 0 && rng.IntN(3) == 0 { // a whole range goes
		lo := rng.IntN(len(keys))
		for _, k := range keys[lo : lo+rng.IntN(len(keys)-lo)+1] {
			batch[k] = nil
		}
	}
	var list []Change
	for _, k := range slices.Sorted(maps.Keys(batch)) {
		list = append(list, Change{[]byte(k), batch[k]})
		if batch[k] == nil {
			delete(model, k)
		} else {
			model[k] = string(batch[k])
		}
	}
	return list
}

// reuse yields the changes from one buffer that is overwritten for each, as a streaming producer may do.
func reuse(list []Change) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		var key, value []byte
		for _, c := range list {
			key, value = append(key[:0], c.Key...), append(value[:0], c.Value...)
			d := Change{Key: key}
			if c.Value != nil {
				d.Value = value[:len(value):len(value)]
				if d.Value == nil {
					d.Value = []byte{}
				}
			}
			if !yield(d, nil) {
				return
			}
			for i := range key {
				key[i] = 0xee
			}
			for i := range value {
				value[i] = 0xee
			}
		}
	}
}

func TestTreeAgainstModel(t *testing.T) {
	for _, target := range []int{64, 256, 900, 4096} {
		t.Run(fmt.Sprint(target), func(t *testing.T) {
			rng := newRand(t)
			deepest := 0
			for range 12 {
				deepest = max(deepest, modelRun(t, rng, target))
			}
			if target <= 256 && deepest < 4 {
				t.Errorf("the trees were only %d levels high: the test proves too little", deepest)
			}
		})
	}
}

func modelRun(t *testing.T, rng *rand.Rand, target int) (deepest int) {
	pages := &lateReader{memPages: newMemPages()}
	pages.settle()
	var cache *PageCache
	if rng.IntN(2) == 0 {
		cache = NewPageCache(int64(rng.IntN(100000)))
	}
	tr := openSized(blobs.Ref{}, pages, cache, target)
	model := make(map[string]string)
	for round := range 20 {
		before := maps.Clone(model)
		list := randomBatch(rng, model)
		if round == 15 { // and down to nothing
			list = nil
			for _, k := range slices.Sorted(maps.Keys(before)) {
				list = append(list, Change{[]byte(k), nil})
			}
			clear(model)
		}
		next, stats, err := tr.Apply(context.Background(), pages, reuse(list))
		if err != nil {
			t.Fatal(err)
		}
		pages.settle()
		if got := int64(len(list)); stats.Sets+stats.Deletes+stats.NoOps != got {
			t.Fatalf("stats %+v of %d changes", stats, got)
		}
		if stats.Sets+stats.Deletes == 0 && (next.Root() != tr.Root() || stats.PagesWritten != 0) {
			t.Fatalf("a no-op batch changed the root: %+v", stats)
		}
		h := verifyTree(t, next)
		deepest = max(deepest, h)
		if next.Root() != tr.Root() && stats.Height != h {
			t.Fatalf("height %d, stats say %d", h, stats.Height)
		}
		if got := contents(t, next); !maps.Equal(got, model) {
			t.Fatalf("round %d: %d keys, want %d", round, len(got), len(model))
		}
		if next.empty() != (len(model) == 0) {
			t.Fatal("an empty tree must have the zero root")
		}
		checkGets(t, rng, next, model)
		checkRange(t, rng, next, model)
		checkDiff(t, tr, next, before, model)
		tr = next
	}
	return deepest
}

func checkGets(t *testing.T, rng *rand.Rand, tr *Tree, model map[string]string) {
	t.Helper()
	ctx := context.Background()
	for range 50 {
		k := fmt.Sprintf("k%04d%s", rng.IntN(6000), "suffix"[:rng.IntN(7)])
		v, ok, err := tr.Get(ctx, []byte(k))
		want, wantOK := model[k]
		if err != nil || ok != wantOK || string(v) != want {
			t.Fatalf("get %s: %q %v %v, want %q %v", k, v, ok, err, want, wantOK)
		}
		if ok && v == nil {
			t.Fatal("a value that is there is nil")
		}
	}
	n := 0
	for k, want := range model {
		if v, ok, err := tr.Get(ctx, []byte(k)); err != nil || !ok || string(v) != want {
			t.Fatalf("get %s: %q %v %v, want %q", k, v, ok, err, want)
		}
		if n++; n == 100 {
			break
		}
	}
}

func checkRange(t *testing.T, rng *rand.Rand, tr *Tree, model map[string]string) {
	t.Helper()
	from, to := fmt.Sprintf("k%04d", rng.IntN(6000)), fmt.Sprintf("k%04d", rng.IntN(6000))
	limit := rng.IntN(1000)
	var want, got []string
	for _, k := range slices.Sorted(maps.Keys(model)) {
		if from <= k && k < to && len(want) <= limit {
			want = append(want, k)
		}
	}
	err := tr.Scan(context.Background(), []byte(from), []byte(to), func(k, _ []byte) error {
		if got = append(got, string(k)); len(got) > limit {
			return ErrStop
		}
		return nil
	})
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("scan [%s, %s): %d keys, want %d: %v", from, to, len(got), len(want), err)
	}
}

func checkDiff(t *testing.T, old, new *Tree, before, after map[string]string) {
	t.Helper()
	merged := maps.Clone(before)
	last := ""
	err := Diff(context.Background(), old, new, func(k, ov, nv []byte) error {
		if string(k) <= last {
			t.Fatalf("diff: key %s after %s", k, last)
		}
		last = string(k)
		ow, had := before[last]
		nw, has := after[last]
		if (ov != nil) != had || (nv != nil) != has || string(ov) != ow || string(nv) != nw || had == has && ow == nw {
			t.Fatalf("diff of %s: %q -> %q, want %q %v -> %q %v", k, ov, nv, ow, had, nw, has)
		}
		if nv == nil {
			delete(merged, last)
		} else {
			merged[last] = string(nv)
		}
		return nil
	})
	if err != nil || !maps.Equal(merged, after) {
		t.Fatalf("diff does not lead from one state to the other: %v", err)
	}
}

func numbered(n int) []Change {
	list := make([]Change, n)
	for i := range list {
		list[i] = Change{fmt.Appendf(nil, "key%08d", i), fmt.Appendf(nil, "value of %d", i)}
	}
	return list
}

func pageSet(t *testing.T, tr *Tree) map[blobs.ID]int {
	t.Helper()
	set := make(map[blobs.ID]int)
	err := tr.Pages(context.Background(), func(ref blobs.Ref, level int) error {
		set[ref.ID] = level
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestApplySharesStructure(t *testing.T) {
	pages := newMemPages()
	tr, _ := mustApply(t, openSized(blobs.Ref{}, pages, nil, 300), pages, numbered(5000)...)
	height := verifyTree(t, tr)
	if height < 4 {
		t.Fatalf("height %d", height)
	}
	rng := newRand(t)
	for range 200 {
		i := rng.IntN(5000)
		key := fmt.Appendf(nil, "key%08d", i)
		pages.written, pages.reads = nil, 0
		next, stats := mustApply(t, tr, pages, Change{key, fmt.Appendf(nil, "VALUE OF %d", i)})
		if len(pages.written) != height || stats.PagesWritten != int64(height) {
			t.Fatalf("change of key %d wrote %d pages of a tree %d high", i, len(pages.written), height)
		}
		if pages.reads != height {
			t.Fatalf("change of key %d read %d pages of a tree %d high", i, pages.reads, height)
		}
		before, fresh := pageSet(t, tr), 0
		for id := range pageSet(t, next) {
			if _, ok := before[id]; !ok {
				fresh++
			}
		}
		if fresh != height {
			t.Fatalf("%d pages are not shared, want %d", fresh, height)
		}
		pages.reads = 0
		n := 0
		err := Diff(context.Background(), tr, next, func(_, _, _ []byte) error { n++; return nil })
		if err != nil || n != 1 || pages.reads > 2*height+2 {
			t.Fatalf("diff of one change: %d changes, %d reads, %v", n, pages.reads, err)
		}
	}
}

// TestApplyOfNoOps: equal values and deletes of absent keys write nothing, also where a page would be merged or split
// if it were written again, and next to a real change.
func TestApplyOfNoOps(t *testing.T) {
	pages := newMemPages()
	all := numbered(2000)
	tr, _ := mustApply(t, openSized(blobs.Ref{}, pages, nil, 300), pages, all...)
	pages.written = nil
	same := slices.Clone(all)
	for i := range 100 {
		same = append(same, Change{fmt.Appendf(nil, "zzz%08d", i), nil})
	}
	next, stats := mustApply(t, tr, pages, same...)
	if next.Root() != tr.Root() || len(pages.written) != 0 || stats.NoOps != int64(len(same)) {
		t.Fatalf("no-ops wrote %d pages, stats %+v", len(pages.written), stats)
	}
	if next, _ := mustApply(t, tr, pages); next.Root() != tr.Root() {
		t.Fatal("an empty batch changed the root")
	}
	height := verifyTree(t, tr)
	same[777].Value = []byte("VALUE OF 777")
	_, stats = mustApply(t, tr, pages, same...)
	if stats.Sets != 1 || stats.PagesWritten != int64(height) {
		t.Fatalf("one change among no-ops: %+v, height %d", stats, height)
	}
}
