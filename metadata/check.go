package metadata

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"wsfs/blobs"
)

// View is a readable state of the committed key space: a Tree, or the live overlay over one.
type View interface {
	Get(ctx context.Context, key []byte) (value []byte, ok bool, err error)
	Scan(ctx context.Context, from, to []byte, fn func(key, value []byte) error) error
}

// CheckOptions say what Check may meet and whom to ask about it.
type CheckOptions struct {
	// Local allows content that exists on this host only, as the live overlay has and a committed tree must not.
	Local bool
	// Uncommitted says that the view has ops over its committed tree: extents of inodes that are gone, or whose content
	// is elsewhere now, wait for the commit that removes them and are no problem.
	Uncommitted bool
	// StagingExists returns nil if the staging file of that number exists and is the inode's. It is asked for content
	// that is nowhere else, not for clean copies, which may go at any time. Nil: not asked.
	StagingExists func(number uint64, ino Ino) error
	// ContentExists returns nil if the inode's content is in the journal (ContentJournal). Nil: not asked.
	ContentExists func(ino Ino) error
	// Refs is called for every reference to a chunk of file content, in no order. Nil: not called.
	Refs func(ref blobs.Ref, ino Ino)
	// MaxProblems bounds Report.Problems (default 1000); further ones are only counted.
	MaxProblems int
}

// Counts is what Check counted.
type Counts struct {
	Inodes   uint64 // with at least one link
	Files    uint64 // regular files among them
	Dirs     uint64
	Symlinks uint64
	Other    uint64 // devices, fifos, sockets
	Orphans  uint64 // inodes without links, not among the above
	Bytes    uint64 // sum of Alloc over Inodes
	Entries  uint64
	Xattrs   uint64
	Extents  uint64
	Local    uint64 // inodes whose content is on this host only
	// Unreachable is the number of directories with no way up to the root. The topmost of them are Problems.
	Unreachable uint64
}

// Problem is one broken invariant.
type Problem struct {
	Ino  Ino    // 0 if it is about no inode
	Path string // from the root, starting with a slash; empty if it is not known
	What string
}

func (p Problem) String() string {
	switch {
	case p.Path != "":
		return fmt.Sprintf("%s (inode %d): %s", p.Path, p.Ino, p.What)
	case p.Ino != 0:
		return fmt.Sprintf("inode %d: %s", p.Ino, p.What)
	}
	return p.What
}

// Report is the outcome of a Check.
type Report struct {
	Counts   Counts
	Problems []Problem
	Unlisted uint64 // problems beyond CheckOptions.MaxProblems
}

// OK tells whether everything holds.
func (r *Report) OK() bool { return len(r.Problems) == 0 && r.Unlisted == 0 }

// The invariants Check proves:
//
//   - There is a superblock; Inodes counts the inodes with links, Bytes is the sum of their Alloc, NextIno is above
//     every inode number.
//   - The root is a directory, its own parent, and no entry names it. Every other inode with links is reached from it.
//   - An entry lies in a directory with links; its name has 1 to 255 bytes, no slash or NUL, and is not "." or "..";
//     its key has the name's hash; its inode exists and is of the entry's type.
//   - Nlink: of a directory 2 + its subdirectories, of anything else the number of entries that name it. One entry
//     names a directory, and it lies in the directory's Parent. Entries is the number of entries of a directory.
//     An orphan (Nlink 0) has neither.
//   - Xattrs is the number of attributes; no attribute or extent is without an inode.
//   - Only regular files and symlinks have content, and a symlink's is inline, 1 to 4095 bytes.
//   - Alloc is 0 for ContentNone, len(Inline) for ContentInline, Size for ContentOne, and the sum of the extents'
//     lengths for ContentExtents; for local kinds it is what the staging file says, not checked.
//   - Inline has Size bytes. ContentOne's chunk has Size bytes: the record holds the number once. Extents of a file are
//     in order, do not overlap and do not pass Size.
//   - Local kinds of content, staging files and Live are only where Local allows them; a staging file has one owner,
//     and content that is staged has one. Extents under
//     a local kind are those of the last commit, which the overlay shows through: only their form is checked.
//   - A tree holds no other keys.
//
// A record that cannot be decoded is one problem; what follows from it alone is not reported again.

// Check proves the invariants of the committed key space and reports what is broken, not stopping at the first. The
// view must not change meanwhile. It reads every key once and takes about 40 bytes of memory per inode. The error is
// of the reading only; the report then holds what was found before it.
func Check(ctx context.Context, v View, o CheckOptions) (*Report, error) {
	if o.MaxProblems <= 0 {
		o.MaxProblems = 1000
	}
	c := &checker{v: v, o: o, report: &Report{}}
	err := c.run(ctx)
	return c.report, err
}

type checker struct {
	v View
	o CheckOptions

	marks   blocks[mark]     // every inode, ascending
	dirs    blocks[dirMark]  // mark.extra of directories
	files   blocks[fileMark] // mark.extra of files with extents
	staged  []stagedMark
	damaged bool // an inode record could not be decoded, so sums will not be right

	report *Report
	places []place // where the problems are, as far as not told by their inode
}

// place is the entry a problem is about, if it is about one.
type place struct {
	dir  Ino
	name string
}

func (c *checker) run(ctx context.Context) error {
	steps := []struct {
		what string
		do   func(context.Context) error
	}{
		{"inodes", c.inodes},
		{"extents", c.extents},
		{"attributes", c.xattrs},
		{"entries", c.dirents},
		{"other keys", c.strays},
		{"superblock", c.super},
	}
	for _, s := range steps {
		if err := s.do(ctx); err != nil {
			return fmt.Errorf("check %s: %w", s.what, err)
		}
	}
	c.stagingOwners()
	c.links()
	c.reach()
	if err := c.paths(ctx); err != nil {
		return fmt.Errorf("check: find paths: %w", err)
	}
	return nil
}

// problem reports a broken invariant of an inode, 0 if it is about none.
func (c *checker) problem(ino Ino, format string, args ...any) {
	c.problemAt(ino, place{}, format, args...)
}

func (c *checker) problemAt(ino Ino, at place, format string, args ...any) {
	if len(c.report.Problems) >= c.o.MaxProblems {
		c.report.Unlisted++
		return
	}
	c.report.Problems = append(c.report.Problems, Problem{Ino: ino, What: fmt.Sprintf(format, args...)})
	c.places = append(c.places, at)
}

// scan walks all keys of one kind.
func (c *checker) scan(ctx context.Context, kind byte, fn func(key, value []byte) error) error {
	return c.v.Scan(ctx, []byte{kind}, []byte{kind + 1}, fn)
}

// super compares the superblock with what was counted.
func (c *checker) super(ctx context.Context) error {
	value, ok, err := c.v.Get(ctx, SuperKey())
	if err != nil {
		return err
	}
	if !ok {
		c.problem(0, "there is no superblock")
		return nil
	}
	s, err := DecodeSuper(value)
	if err != nil {
		c.problem(0, "%v", err)
		return nil
	}
	n := &c.report.Counts
	if s.Inodes != n.Inodes && !c.damaged {
		c.problem(0, "the superblock counts %d inodes, there are %d", s.Inodes, n.Inodes)
	}
	if s.Bytes != n.Bytes && !c.damaged {
		c.problem(0, "the superblock counts %d bytes, there are %d", s.Bytes, n.Bytes)
	}
	if c.marks.n > 0 {
		if last := c.marks.at(c.marks.n - 1).ino; s.NextIno <= last {
			c.problem(last, "the superblock would give out inode %d next, which is not above it", s.NextIno)
		}
	}
	return nil
}

// strays looks for keys that are of no kind. Only a tree is searched: the overlay has other keys beside these.
func (c *checker) strays(ctx context.Context) error {
	if _, ok := c.v.(*Tree); !ok {
		return nil
	}
	kinds := []byte{KeySuper, KeyDirent, KeyExtent, KeyInode, KeyXattr}
	slices.Sort(kinds)
	var from []byte
	for _, k := range append(kinds, 0) {
		to := []byte{k}
		if k == 0 {
			to = nil
		}
		err := c.v.Scan(ctx, from, to, func(key, _ []byte) error {
			c.problem(0, "key %x is of no kind", key)
			return nil
		})
		if err != nil {
			return err
		}
		from = []byte{k + 1}
	}
	return c.scan(ctx, KeySuper, func(key, _ []byte) error {
		if len(key) != 1 {
			c.problem(0, "key %x is of no kind", key)
		}
		return nil
	})
}

// extents checks the extents of every file, which come in order of inode and offset.
func (c *checker) extents(ctx context.Context) error {
	var cur *mark // of the extent before
	var end int64 // where that extent ends
	var lost Ino  // the last inode reported missing
	return c.scan(ctx, KeyExtent, func(key, value []byte) error {
		c.report.Counts.Extents++
		ino, off, err := ParseExtentKey(key)
		if err != nil {
			c.problem(0, "%v", err)
			return nil
		}
		if cur == nil || cur.ino != ino {
			cur, end = c.find(ino), 0
		}
		if cur == nil {
			if ino != lost && !c.o.Uncommitted {
				c.problem(ino, "an extent at %d belongs to no inode", off)
			}
			lost = ino
			return nil
		}
		e, err := DecodeExtent(off, value)
		if err != nil {
			c.problem(ino, "%v", err)
			return nil
		}
		if c.o.Refs != nil {
			c.o.Refs(e.Ref, ino)
		}
		c.extent(cur, e, &end)
		return nil
	})
}

// extent checks one extent; end is where the one before ends and moves on.
func (c *checker) extent(m *mark, e Extent, end *int64) {
	if e.Off < 0 || e.Off > math.MaxInt64-e.Len {
		c.problem(m.ino, "extent at %d: offset out of range", uint64(e.Off))
		return
	}
	if e.Off < *end {
		c.problem(m.ino, "extent at %d overlaps the one before, which ends at %d", e.Off, *end)
	}
	*end = max(*end, e.Off+e.Len)
	if m.is(markBad) || m.kind.Local() {
		return
	}
	if m.kind != ContentExtents {
		if !m.is(markExtents) && !c.o.Uncommitted {
			c.problem(m.ino, "has extents but content of kind %d", m.kind)
		}
		m.flags |= markExtents
		return
	}
	f := c.files.at(int(m.extra))
	f.sum += e.Len
	if e.Off+e.Len > f.size {
		c.problem(m.ino, "extent at %d ends at %d, past the size of %d", e.Off, e.Off+e.Len, f.size)
	}
}

// xattrs counts the attributes of every inode.
func (c *checker) xattrs(ctx context.Context) error {
	var cur *mark
	var lost Ino // the last inode reported missing
	return c.scan(ctx, KeyXattr, func(key, _ []byte) error {
		c.report.Counts.Xattrs++
		ino, err := ParseInoKey(key)
		if err != nil {
			c.problem(0, "attribute %v", err)
			return nil
		}
		if name := key[9:]; len(name) == 0 || len(name) > 255 || slices.Contains(name, 0) {
			c.problem(ino, "attribute name %q: want 1 to 255 bytes without NUL", name)
		}
		if cur == nil || cur.ino != ino {
			cur = c.find(ino)
		}
		switch {
		case cur != nil:
			cur.seenXattrs++
		case ino != lost:
			c.problem(ino, "attribute %q belongs to no inode", key[9:])
			lost = ino
		}
		return nil
	})
}

// stagingOwners reports staging files with more than one owner.
func (c *checker) stagingOwners() {
	slices.SortFunc(c.staged, func(a, b stagedMark) int {
		return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.ino, b.ino))
	})
	for i := 1; i < len(c.staged); i++ {
		if a, b := c.staged[i-1], c.staged[i]; a.number == b.number {
			c.problem(b.ino, "staging file %d is also inode %d's", b.number, a.ino)
		}
	}
}
