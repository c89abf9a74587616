package metadata

import (
	"bytes"
	"context"
	"fmt"
	"iter"

	"wsfs/blobs"
)

// Change is one edit of a tree: Value replaces what Key has; a nil Value removes the key (an empty one does not).
type Change struct{ Key, Value []byte }

// ApplyStats says what an Apply did.
type ApplyStats struct {
	Sets    int64 // keys added or given another value
	Deletes int64 // keys removed
	NoOps   int64 // changes that changed nothing

	PagesWritten int64
	BytesWritten int64 // of page content, before compression
	PagesShared  int64 // subtrees taken over whole from the old tree, each counted once whatever it holds
	Height       int   // levels of the new tree; 0 if it is empty or if nothing changed
}

// How Apply works.
//
// The changes are merged with the old tree in one pass in key order. The merge goes down only where the next change
// lies: everything else is passed on as whole subtrees. What the merge yields, entries and subtrees in key order, is
// put together again by an assembly (tree_assembly.go) with one open run of entries per level.
//
// Nothing is passed on before the first change that really changes something: a frame counts how many of its
// children were left as they are, and only when a leaf below it changes is the frame opened, from the top down, and
// these children passed on. So a no-op below a page leaves the page shared, and a batch of no-ops leaves the root.
//
// Memory: one old page per level, and per level of the new tree one run of at most two pages. It does not grow with
// the number of changes.

// Apply returns the tree with the changes made, writing its new pages through w. The changes must be sorted by
// strictly ascending key; they are taken one at a time and none is kept after the next is asked for. Subtrees without
// an effective change are shared: same Ref. If no change changes anything the result has the same root and nothing
// is written. After an error the pages written so far are garbage that nothing refers to.
//
// The new tree reads through the same PageReader and cache, so the reader must find what w wrote by the time the page
// has left the cache.
func (t *Tree) Apply(ctx context.Context, w PageWriter, changes iter.Seq2[Change, error]) (*Tree, ApplyStats, error) {
	next, stop := iter.Pull2(changes)
	defer stop()
	a := &applier{t: t, next: next}
	a.out = assembly{t: t, w: w, stats: &a.stats}
	root, err := a.run(ctx)
	if err != nil {
		return nil, a.stats, fmt.Errorf("apply changes to tree: %w", err)
	}
	return &Tree{r: t.r, cache: t.cache, root: root, sizes: t.sizes}, a.stats, nil
}

type applier struct {
	t    *Tree
	next func() (Change, error, bool)

	cur   Change // the next change to make, if have
	have  bool
	prev  []byte // key of the change before
	out   assembly
	stats ApplyStats
}

// frame is a page of the old tree on the way down to the next change.
type frame struct {
	parent *frame
	page   *page
	lo, hi []byte // its keys k: lo <= k, and k < hi unless hi is nil
	i      int    // children or entries before this one are dealt with: passed on if open, else left as they are
	open   bool   // something in here changed
}

func (a *applier) run(ctx context.Context) (blobs.Ref, error) {
	if err := a.advance(); err != nil {
		return blobs.Ref{}, err
	}
	top := &frame{page: emptyPage}
	if !a.t.empty() {
		p, err := a.t.page(ctx, a.t.root, anyLevel)
		if err != nil {
			return blobs.Ref{}, err
		}
		top.page = p
	}
	if err := a.visit(ctx, top); err != nil {
		return blobs.Ref{}, err
	}
	if !top.open {
		return a.t.root, nil
	}
	return a.out.finish(ctx)
}

// advance takes the next change.
func (a *applier) advance() error {
	if a.have {
		a.prev = append(a.prev[:0], a.cur.Key...)
	}
	c, err, ok := a.next()
	if err != nil {
		return fmt.Errorf("read changes: %w", err)
	}
	a.cur, a.have = c, ok
	if !ok {
		return nil
	}
	if len(c.Key) == 0 || len(c.Key) > MaxTreeKey {
		return fmt.Errorf("key %x: %d bytes, want 1 to %d", c.Key[:min(len(c.Key), 32)], len(c.Key), MaxTreeKey)
	}
	if len(c.Value) > MaxTreeValue {
		return fmt.Errorf("key %x: value of %d bytes, at most %d", c.Key, len(c.Value), MaxTreeValue)
	}
	if a.prev != nil && bytes.Compare(a.prev, c.Key) >= 0 {
		return fmt.Errorf("key %x: changes are not in ascending order, it comes after %x", c.Key, a.prev)
	}
	return nil
}

// due tells whether the next change lies below hi.
func (a *applier) due(hi []byte) bool {
	return a.have && (hi == nil || bytes.Compare(a.cur.Key, hi) < 0)
}

func (a *applier) visit(ctx context.Context, f *frame) error {
	if f.page.level == 0 {
		return a.leaf(ctx, f)
	}
	for n := f.page.children(); f.i < n; f.i++ {
		at := n
		if a.due(f.hi) {
			at = f.page.child(a.cur.Key)
		}
		if err := a.pass(ctx, f, at); err != nil || at == n {
			return err
		}
		p, err := a.t.page(ctx, f.page.ref(at), int(f.page.level)-1)
		if err != nil {
			return err
		}
		c := &frame{parent: f, page: p, lo: f.bound(nil, at), hi: f.bound(nil, at+1)}
		if err := a.visit(ctx, c); err != nil {
			return err
		}
		if f.open && !c.open {
			if err := a.out.subtree(ctx, int(p.level), c.lo, c.hi, f.page.ref(at)); err != nil {
				return err
			}
		}
	}
	return nil
}

// leaf merges the changes due in a leaf with its entries.
func (a *applier) leaf(ctx context.Context, f *frame) error {
	for a.due(f.hi) {
		i, found := f.page.find(a.cur.Key)
		var old []byte
		if found {
			_, old = f.page.entry(i)
		}
		if found == (a.cur.Value != nil) && bytes.Equal(old, a.cur.Value) {
			a.stats.NoOps++
		} else {
			if err := a.openFrame(ctx, f); err != nil {
				return err
			}
			if err := a.pass(ctx, f, i); err != nil {
				return err
			}
			if err := a.edit(ctx); err != nil {
				return err
			}
			if found {
				f.i++
			}
		}
		if err := a.advance(); err != nil {
			return err
		}
	}
	return a.pass(ctx, f, f.page.children())
}

// edit makes the current change.
func (a *applier) edit(ctx context.Context) error {
	if a.cur.Value == nil {
		a.stats.Deletes++
		return nil
	}
	a.stats.Sets++
	return a.out.entry(ctx, a.cur.Key, a.cur.Value)
}

// openFrame marks f and everything above it as changed and passes on what they had left as it is.
func (a *applier) openFrame(ctx context.Context, f *frame) error {
	if f == nil || f.open {
		return nil
	}
	if err := a.openFrame(ctx, f.parent); err != nil {
		return err
	}
	f.open = true
	end := f.i
	f.i = 0
	return a.pass(ctx, f, end)
}

// pass moves f on to child or entry end; what it goes over stays as it is. If f is open it is passed to the assembly.
func (a *applier) pass(ctx context.Context, f *frame, end int) error {
	if !f.open {
		f.i = end
		return nil
	}
	var lo, hi []byte
	for ; f.i < end; f.i++ {
		if f.page.level == 0 {
			suffix, value := f.page.entry(f.i)
			lo = append(append(lo[:0], f.page.prefix...), suffix...)
			if err := a.out.entry(ctx, lo, value); err != nil {
				return err
			}
			continue
		}
		if hi == nil {
			lo = f.bound(lo, f.i)
		} else {
			lo, hi = hi, lo // the upper bound of the child before
		}
		hi = f.bound(hi, f.i+1)
		if err := a.out.subtree(ctx, int(f.page.level)-1, lo, hi, f.page.ref(f.i)); err != nil {
			return err
		}
	}
	return nil
}

// bound returns the lower bound of child i of a branch, or the upper bound of the last child; in buf if it fits. The
// result is nil only for the upper end of the tree.
func (f *frame) bound(buf []byte, i int) []byte { return bound(buf, f.page, i, f.lo, f.hi) }

func bound(buf []byte, p *page, i int, lo, hi []byte) []byte {
	switch {
	case i == 0:
		return append(buf[:0], lo...)
	case i < p.children():
		return p.appendKey(buf[:0], i-1)
	case hi == nil:
		return nil
	}
	return append(buf[:0], hi...)
}
