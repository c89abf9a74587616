package metadata

import (
	"context"
	"errors"
	"fmt"

	"wsfs/blobs"
)

// ErrStop, returned by the function given to Scan, ends the scan without an error.
var ErrStop = errors.New("stop")

// PageReader fetches tree pages. It is safe for concurrent use.
type PageReader interface {
	// ReadPage returns the content of the chunk, verified against its ID. The tree keeps the slice: it must not
	// change afterwards.
	ReadPage(ctx context.Context, ref blobs.Ref) ([]byte, error)
}

// PageWriter stores tree pages.
type PageWriter interface {
	// WritePage takes content as a chunk and returns its reference, which is final: the page's parent is built
	// from it. Content never changes after the call, so the writer may keep it but not change it.
	WritePage(ctx context.Context, content []byte) (blobs.Ref, error)
}

// Tree is one state of the committed key space: a copy-on-write B+tree of byte keys and values, ordered by
// bytes.Compare, over immutable pages that are chunks. It is immutable and safe for concurrent use; Apply makes the
// next state and shares every subtree it did not have to touch.
//
// Two subtrees are the same if their pages have the same chunk ID. The locators may differ (a repacked chunk lies
// elsewhere), so nothing but the ID is ever compared.
type Tree struct {
	r     PageReader
	cache *PageCache

	root  blobs.Ref
	sizes pageSizes
}

// OpenTree returns the tree with the given root page; the zero Ref is the empty tree. It reads nothing. Cache may be
// nil and may be shared.
func OpenTree(root blobs.Ref, r PageReader, cache *PageCache) *Tree {
	return &Tree{r: r, cache: cache, root: root, sizes: defaultSizes}
}

// Root is the reference of the root page, zero if the tree is empty.
func (t *Tree) Root() blobs.Ref { return t.root }

func (t *Tree) empty() bool { return t.root.ID == blobs.ID{} }

// anyLevel is given to page for the root, whose level only the page itself knows.
const anyLevel = -1

// page returns a decoded page, checking that it has the level its parent demands. Because levels fall strictly, a
// walk always ends, whatever the pages hold.
func (t *Tree) page(ctx context.Context, ref blobs.Ref, level int) (*page, error) {
	p := t.cache.get(ref.ID)
	if p == nil {
		content, err := t.r.ReadPage(ctx, ref)
		if err != nil {
			return nil, fmt.Errorf("read tree page %v: %w", ref.ID, err)
		}
		if p, err = decodePage(content); err != nil {
			return nil, fmt.Errorf("tree page %v: %w", ref.ID, err)
		}
		t.cache.put(ref.ID, p)
	}
	if level != anyLevel && int(p.level) != level {
		return nil, fmt.Errorf("tree page %v: %w: level %d where its parent needs %d", ref.ID, ErrPage, p.level, level)
	}
	return p, nil
}

// Get returns the value of key. The value aliases a shared page: it must not be modified, and keeping it keeps the
// page in memory.
func (t *Tree) Get(ctx context.Context, key []byte) (value []byte, ok bool, err error) {
	if t.empty() {
		return nil, false, nil
	}
	p, err := t.page(ctx, t.root, anyLevel)
	for err == nil && p.level > 0 {
		p, err = t.page(ctx, p.ref(p.child(key)), int(p.level)-1)
	}
	if err != nil {
		return nil, false, err
	}
	i, found := p.find(key)
	if !found {
		return nil, false, nil
	}
	_, value = p.entry(i)
	return value, true, nil
}

// Cached tells whether Get of key would need no ReadPage right now, so that it may be done under a lock. It is a
// hint: another goroutine may push a page out meanwhile.
func (t *Tree) Cached(key []byte) bool {
	if t.empty() {
		return true
	}
	p := t.cache.get(t.root.ID)
	for p != nil && p.level > 0 {
		p = t.cache.get(p.id(p.child(key)))
	}
	return p != nil
}

// Scan calls fn for every key from <= key < to in order; a nil from is the first key and a nil to means to the end.
// Key and value are valid only during the call and must not be modified. An error of fn ends the scan and is
// returned as it is, except ErrStop, which ends it without error.
func (t *Tree) Scan(ctx context.Context, from, to []byte, fn func(key, value []byte) error) error {
	if t.empty() {
		return nil
	}
	s := scan{t: t, from: from, to: to, fn: fn}
	if err := s.walk(ctx, t.root, anyLevel); err != nil && !errors.Is(err, ErrStop) {
		return err
	}
	return nil
}

type scan struct {
	t        *Tree
	from, to []byte
	fn       func(key, value []byte) error

	key []byte // scratch
}

func (s *scan) walk(ctx context.Context, ref blobs.Ref, level int) error {
	p, err := s.t.page(ctx, ref, level)
	if err != nil {
		return err
	}
	if p.level == 0 {
		return s.leaf(ctx, p)
	}
	first, last := p.child(s.from), p.children()-1
	if s.to != nil {
		last = p.child(s.to)
	}
	for i := first; i <= last; i++ {
		if err := s.walk(ctx, p.ref(i), int(p.level)-1); err != nil {
			return err
		}
	}
	return nil
}

func (s *scan) leaf(ctx context.Context, p *page) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	i, _ := p.find(s.from)
	end := p.children()
	if s.to != nil {
		end, _ = p.find(s.to)
	}
	for ; i < end; i++ {
		suffix, value := p.entry(i)
		s.key = append(append(s.key[:0], p.prefix...), suffix...)
		if err := s.fn(s.key, value); err != nil {
			return err
		}
	}
	return nil
}

// Pages calls fn for every page of the tree, a parent before its children, level 0 being the leaves. It reads the
// branches only (and the root): a leaf's reference is known from its parent.
func (t *Tree) Pages(ctx context.Context, fn func(ref blobs.Ref, level int) error) error {
	if t.empty() {
		return nil
	}
	p, err := t.page(ctx, t.root, anyLevel)
	if err != nil {
		return err
	}
	return t.pages(ctx, t.root, int(p.level), fn)
}

func (t *Tree) pages(ctx context.Context, ref blobs.Ref, level int, fn func(blobs.Ref, int) error) error {
	if err := fn(ref, level); err != nil || level == 0 {
		return err
	}
	p, err := t.page(ctx, ref, level)
	if err != nil {
		return err
	}
	for i := range p.children() {
		if err := t.pages(ctx, p.ref(i), level-1, fn); err != nil {
			return err
		}
	}
	return nil
}
