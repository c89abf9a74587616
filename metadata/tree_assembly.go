package metadata

import (
	"context"
	"fmt"

	"wsfs/blobs"
)

// assembly builds the new tree from entries and untouched subtrees given in key order.
//
// Each level has one run. A leaf's run takes entries; the run of level k+1 takes the pages of level k. A run is cut
// whenever it holds two pages, so what stays is never too little for a page. Before a subtree of level k can be
// taken over whole, the runs of levels 0 to k must end: each is flushed into one or two pages. If one is too short
// for a page, the subtree is read and its parts are added instead, which is the merge with the right neighbour (the
// parts of it that need no merge are again taken over whole). At the right edge finish merges with the left
// neighbour.
//
// Invariants: an entry of the run of level k+1 is the page left of everything in the run of level k, and everything
// in runs of higher levels is left of everything in lower ones. A branch page has at least two children: a run of
// one counts as too short, and a single child at the very top is itself the root.
type assembly struct {
	t *Tree
	w PageWriter

	levels [maxLevel + 2]run
	bound  []byte // lower bound of the next leaf begun: the upper bound of the subtree taken over last
	stats  *ApplyStats
}

// entry adds one key of a leaf.
func (o *assembly) entry(ctx context.Context, key, value []byte) error {
	r := &o.levels[0]
	if len(r.ents) == 0 {
		r.low = append(r.low[:0], o.bound...)
	}
	r.add(key, value)
	return o.cut(ctx, 0)
}

// child adds a page of level k, finished or taken over, to the run of its parent.
func (o *assembly) child(ctx context.Context, k int, lo []byte, ref blobs.Ref) error {
	if k >= maxLevel {
		return fmt.Errorf("tree higher than %d levels", maxLevel+1)
	}
	var enc [blobs.RefSize]byte
	o.levels[k+1].add(lo, blobs.AppendRef(enc[:0], ref))
	return o.cut(ctx, k+1)
}

// subtree adds an untouched page of level k, all of whose keys lie in [lo, hi), and everything below it.
func (o *assembly) subtree(ctx context.Context, k int, lo, hi []byte, ref blobs.Ref) error {
	for i := 0; i <= k; i++ {
		if len(o.levels[i].ents) == 0 {
			continue
		}
		if o.short(i) {
			return o.dissolve(ctx, k, lo, hi, ref)
		}
		if err := o.flush(ctx, i); err != nil {
			return err
		}
	}
	o.stats.PagesShared++
	o.bound = append(o.bound[:0], hi...)
	return o.child(ctx, k, lo, ref)
}

// dissolve adds the parts of an untouched page instead of the page.
func (o *assembly) dissolve(ctx context.Context, k int, lo, hi []byte, ref blobs.Ref) error {
	p, err := o.t.page(ctx, ref, k)
	if err != nil {
		return err
	}
	var from, to []byte
	for i := range p.children() {
		if k == 0 {
			_, value := p.entry(i)
			from = p.appendKey(from[:0], i)
			err = o.entry(ctx, from, value)
		} else {
			from, to = bound(from, p, i, lo, hi), bound(to, p, i+1, lo, hi)
			err = o.subtree(ctx, k-1, from, to, p.ref(i))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// leastEntries is how many entries a page of level k must have.
func leastEntries(k int) int {
	if k > 0 {
		return 2
	}
	return 1
}

// short tells whether the run of level k is too little for a page of its own.
func (o *assembly) short(k int) bool {
	r := &o.levels[k]
	return len(r.ents) < leastEntries(k) || r.size(len(r.ents)) < o.t.sizes.least
}

// cut writes full pages off the front of the run while it holds two.
func (o *assembly) cut(ctx context.Context, k int) error {
	r, least := &o.levels[k], leastEntries(k)
	for len(r.ents) >= 2*least && r.size(len(r.ents)) >= 2*o.t.sizes.target {
		if err := o.write(ctx, k, r.fit(o.t.sizes.target, least, len(r.ents)-least)); err != nil {
			return err
		}
	}
	return nil
}

// flush ends the run of level k: one page, or two halves if it is too large for one.
func (o *assembly) flush(ctx context.Context, k int) error {
	r, least := &o.levels[k], leastEntries(k)
	if size := r.size(len(r.ents)); size > o.t.sizes.most && len(r.ents) >= 2*least {
		if err := o.write(ctx, k, r.fit(size/2, least, len(r.ents)-least)); err != nil {
			return err
		}
	}
	return o.write(ctx, k, len(r.ents))
}

// write makes a page of the first n entries of the run of level k and adds it to the run above.
func (o *assembly) write(ctx context.Context, k, n int) error {
	r := &o.levels[k]
	lo := r.key(0)
	if k == 0 {
		lo = r.low
	}
	ref, err := o.store(ctx, k, n)
	if err != nil {
		return err
	}
	if err := o.child(ctx, k, lo, ref); err != nil {
		return err
	}
	if k == 0 && n < len(r.ents) {
		r.low = shortest(r.key(n-1), r.key(n))
	}
	r.drop(n)
	return nil
}

// store writes the first n entries of the run of level k as a page.
func (o *assembly) store(ctx context.Context, k, n int) (blobs.Ref, error) {
	if err := ctx.Err(); err != nil {
		return blobs.Ref{}, err
	}
	p := o.levels[k].encode(k, n)
	ref, err := o.w.WritePage(ctx, p.content)
	if err != nil {
		return blobs.Ref{}, fmt.Errorf("write tree page: %w", err)
	}
	o.stats.PagesWritten++
	o.stats.BytesWritten += int64(len(p.content))
	o.levels[k].last, o.levels[k].id = p, ref.ID
	o.t.cache.put(ref.ID, p)
	return ref, nil
}

// finish ends every run, from the leaves up, and returns the root.
func (o *assembly) finish(ctx context.Context) (blobs.Ref, error) {
	for k := range o.levels {
		top := o.top(k)
		if !top && len(o.levels[k].ents) > 0 && o.short(k) {
			if err := o.takeLeft(ctx, k); err != nil {
				return blobs.Ref{}, err
			}
			top = o.top(k)
		}
		r := &o.levels[k]
		n := len(r.ents)
		switch {
		case top && n == 0:
			return blobs.Ref{}, nil
		case top && k > 0 && n == 1:
			o.stats.Height = k
			ref, _, err := blobs.DecodeRef(r.value(0))
			return ref, err
		case top && (r.size(n) <= o.t.sizes.most || n < 2*leastEntries(k)):
			o.stats.Height = k + 1
			return o.store(ctx, k, n)
		case n > 0:
			if err := o.flush(ctx, k); err != nil {
				return blobs.Ref{}, err
			}
		}
	}
	return blobs.Ref{}, fmt.Errorf("tree higher than %d levels", maxLevel+1)
}

// top tells whether no run above level k has anything.
func (o *assembly) top(k int) bool {
	for i := k + 1; i < len(o.levels); i++ {
		if len(o.levels[i].ents) > 0 {
			return false
		}
	}
	return true
}

// takeLeft puts the parts of the page left of the run of level k in front of the run. There must be one, that is
// top(k) must be false.
func (o *assembly) takeLeft(ctx context.Context, k int) error {
	if len(o.levels[k+1].ents) == 0 {
		if err := o.takeLeft(ctx, k+1); err != nil {
			return err
		}
	}
	lo, enc := o.levels[k+1].pop()
	ref, _, err := blobs.DecodeRef(enc)
	if err != nil {
		return err
	}
	r := &o.levels[k]
	p := r.last // perhaps written a moment ago, and not to be read back yet
	if p == nil || r.id != ref.ID {
		if p, err = o.t.page(ctx, ref, k); err != nil {
			return err
		}
	}
	joined := run{low: lo, last: r.last, id: r.id}
	var key []byte
	for i := range p.children() {
		if k == 0 {
			_, value := p.entry(i)
			key = p.appendKey(key[:0], i)
			joined.add(key, value)
			continue
		}
		key = bound(key, p, i, lo, nil)
		off := int(p.refs) + i*blobs.RefSize
		joined.add(key, p.content[off:off+blobs.RefSize])
	}
	for i := range r.ents {
		joined.add(r.key(i), r.value(i))
	}
	o.levels[k] = joined
	return nil
}
