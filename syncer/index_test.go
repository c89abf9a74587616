package syncer

import (
	"context"
	"fmt"
	"testing"
	"time"

	"wsfs/blobs"
	"wsfs/blobs/count"
	"wsfs/blobs/fault"
	"wsfs/metadata"
)

func TestSecondWorkspaceDedups(t *testing.T) {
	e := newEnv(t)
	store := func(name, writer string) (up int64) {
		h := e.open(name, writer, WriterOptions{})
		for i := range 200 {
			h.create(metadata.RootIno, fmt.Sprintf("f%d", i), randomBytes(uint64(i), 20000))
		}
		h.create(metadata.RootIno, "large", randomBytes(1, 20<<20))
		before := e.count.Snapshot()
		h.commit(t)
		return e.count.Snapshot().Sub(before).Total().Up
	}
	first, second := store("one", "a"), store("two", "b")
	if second*50 > first {
		t.Errorf("the second workspace uploaded %d bytes, the first %d", second, first)
	}
	t.Logf("first %d bytes, second %d (%.2f %%)", first, second, 100*float64(second)/float64(first))
	head, err := e.repo.Head(context.Background(), "two")
	if err != nil {
		t.Fatal(err)
	}
	if got := filesOf(t, e.repo, head); got["large"] != string(randomBytes(1, 20<<20)) || len(got) != 201 {
		t.Error("the second workspace is not what was stored")
	}
}

func TestLoadIndexes(t *testing.T) {
	e, ctx := newEnv(t), context.Background()
	put := func(at time.Time, id byte) string {
		key := indexKey(at)
		ref := blobs.Ref{ID: blobs.ID{id}, Locator: blobs.Locator{Offset: 64, Length: 50}, Raw: 99}
		if err := e.inner.Put(ctx, key, blobs.EncodeIndex([]blobs.Ref{ref})); err != nil {
			t.Fatal(err)
		}
		return key
	}
	head, err := e.repo.Create(ctx, "w")
	if err != nil {
		t.Fatal(err)
	}
	r := e.repo.Reader(blobs.ReaderOptions{})
	t.Cleanup(r.Close)
	l := newFakeLocal(t, OpenTree(head, r, nil), head)
	expect := func(what string, loaded, known int) {
		t.Helper()
		n, err := e.repo.LoadIndexes(ctx, l)
		if err != nil || n != loaded || len(l.known) != known {
			t.Errorf("%s: %d loaded, %d known, %v; want %d, %d", what, n, len(l.known), err, loaded, known)
		}
	}
	expect("none", 0, 0)
	now := e.clock.Now()
	put(now.Add(-time.Hour), 1)
	put(now, 2)
	expect("two", 2, 2)
	put(now.Add(-10*time.Minute), 3) // by a host whose clock is behind
	put(now.Add(time.Minute), 4)
	expect("two more, one behind the mark", 3, 4)
	if err := e.inner.Put(ctx, indexKey(now.Add(2*time.Minute)), []byte("damaged")); err != nil {
		t.Fatal(err)
	}
	put(now.Add(3*time.Minute), 5)
	e.fault.Plan(fault.Plan{Op: fault.Get, Prefix: indexPrefix, Nth: 2})
	if _, err := e.repo.LoadIndexes(ctx, l); err == nil {
		t.Error("an index that cannot be read was passed over")
	}
	e.fault.MustHaveFired(t)
	expect("a damaged one", 5, 5)
	for i := range 1100 { // more than one page
		put(now.Add(time.Hour+time.Duration(i)*time.Second), byte(i))
	}
	expect("many, and those of the last quarter of an hour again", 1105, 256)
}

// An index that does not answer delays a big commit, but does not stop it.
func TestIndexDoesNotAnswer(t *testing.T) {
	e := newEnv(t)
	a := e.open("one", "a", WriterOptions{})
	a.create(metadata.RootIno, "f", randomBytes(1, 5<<20))
	a.commit(t)
	b := e.open("two", "b", WriterOptions{IndexWait: 50 * time.Millisecond})
	b.create(metadata.RootIno, "f", randomBytes(1, 5<<20))
	hang := e.fault.Plan(fault.Plan{Op: fault.Get, Prefix: indexPrefix, Times: -1, Kind: fault.Hang})
	before := e.count.Snapshot()
	c := b.commit(t)
	hang.MustHaveFired(t)
	s := e.count.Snapshot().Sub(before)
	if s[count.Put].Up < 5<<20 {
		t.Errorf("%d bytes uploaded without an index", s[count.Put].Up)
	}
	expectFiles(t, e.repo, c, map[string]string{"f": string(randomBytes(1, 5<<20))})
	if s[count.Get].Errors == 0 {
		t.Error("the index was not asked for")
	}
}
