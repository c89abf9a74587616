package metadata

import (
	"bytes"
	"context"
	"errors"

	"wsfs/blobs"
)

// Diff calls fn for every key whose value differs between two trees, in order; a nil value means the key is absent
// there (a present value is never nil). Subtrees with the same chunk ID are skipped unread, so the cost goes with the
// size of the change. Key and values are valid only during the call and must not be modified. An error of fn ends
// the walk and is returned as it is, except ErrStop, which ends it without error.
func Diff(ctx context.Context, old, new *Tree, fn func(key, oldValue, newValue []byte) error) error {
	d := differ{fn: fn}
	for i, t := range []*Tree{old, new} {
		c := &d.side[i]
		c.t = t
		if t.empty() {
			continue
		}
		if old.root.ID == new.root.ID {
			return nil
		}
		p, err := t.page(ctx, t.root, anyLevel)
		if err != nil {
			return err
		}
		c.level, c.ref, c.subtree = int(p.level), t.root, true
	}
	if err := d.run(ctx); err != nil && !errors.Is(err, ErrStop) {
		return err
	}
	return nil
}

// differ walks two trees side by side. Each side stands before an item: a subtree not opened, an entry, or the end.
//
//   - Two subtrees of the same ID hold the same keys, and whatever lay before them has been dealt with on both sides:
//     both are passed over.
//   - An entry below the lower bound of the other side's subtree has no counterpart in it: it is reported and the
//     subtree stays closed.
//   - Otherwise a subtree is opened: the higher one; of two of a level the one with the smaller lower bound, because
//     its later children may meet the other one; both if these are equal too.
type differ struct {
	side [2]diffCursor // old, new
	fn   func(key, oldValue, newValue []byte) error
}

// diffCursor stands before one item of a tree.
type diffCursor struct {
	t    *Tree
	path []diffFrame

	subtree    bool // the item is a page not opened: ref, level and its lower bound key
	entry      bool // the item is an entry: key and value
	ref        blobs.Ref
	level      int
	key, value []byte // key is nil for the first page of a tree
}

type diffFrame struct {
	page *page
	next int // the next child or entry
	lo   []byte
}

func (c *diffCursor) end() bool { return !c.subtree && !c.entry }

// next moves to the item after this one.
func (c *diffCursor) next() {
	c.subtree, c.entry = false, false
	for len(c.path) > 0 {
		f := &c.path[len(c.path)-1]
		if f.next == f.page.children() {
			c.path = c.path[:len(c.path)-1]
			continue
		}
		if f.page.level == 0 {
			c.entry = true
			_, c.value = f.page.entry(f.next)
			c.key = f.page.appendKey(c.key[:0], f.next)
		} else {
			c.subtree = true
			c.ref, c.level = f.page.ref(f.next), int(f.page.level)-1
			c.key = bound(c.key, f.page, f.next, f.lo, nil)
		}
		f.next++
		return
	}
}

// open replaces the subtree by its first part.
func (c *diffCursor) open(ctx context.Context) error {
	p, err := c.t.page(ctx, c.ref, c.level)
	if err != nil {
		return err
	}
	c.path = append(c.path, diffFrame{page: p, lo: bytes.Clone(c.key)})
	c.next()
	return nil
}

func (d *differ) run(ctx context.Context) error {
	a, b := &d.side[0], &d.side[1]
	for !a.end() || !b.end() {
		var err error
		switch {
		case a.subtree && b.subtree:
			err = d.subtrees(ctx)
		case a.subtree:
			err = d.mixed(ctx, a, b)
		case b.subtree:
			err = d.mixed(ctx, b, a)
		default:
			err = d.entries()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *differ) subtrees(ctx context.Context) error {
	a, b := &d.side[0], &d.side[1]
	if a.ref.ID == b.ref.ID {
		a.next()
		b.next()
		return nil
	}
	order := b.level - a.level // negative: a is higher
	if order == 0 {
		order = bytes.Compare(a.key, b.key)
	}
	if order <= 0 {
		if err := a.open(ctx); err != nil {
			return err
		}
	}
	if order >= 0 {
		return b.open(ctx)
	}
	return nil
}

// mixed takes one step where only s stands before a subtree.
func (d *differ) mixed(ctx context.Context, s, other *diffCursor) error {
	if other.entry && bytes.Compare(other.key, s.key) < 0 {
		return d.only(other)
	}
	return s.open(ctx)
}

// only reports the entry c stands before as absent on the other side.
func (d *differ) only(c *diffCursor) error {
	var err error
	if c == &d.side[0] {
		err = d.fn(c.key, c.value, nil)
	} else {
		err = d.fn(c.key, nil, c.value)
	}
	c.next()
	return err
}

// entries takes one step where neither side stands before a subtree and at least one stands before an entry.
func (d *differ) entries() error {
	a, b := &d.side[0], &d.side[1]
	order := 0
	switch {
	case a.end():
		order = 1
	case b.end():
		order = -1
	default:
		order = bytes.Compare(a.key, b.key)
	}
	if order < 0 {
		return d.only(a)
	}
	if order > 0 {
		return d.only(b)
	}
	var err error
	if !bytes.Equal(a.value, b.value) {
		err = d.fn(a.key, a.value, b.value)
	}
	a.next()
	b.next()
	return err
}
