package metadata

import (
	"context"
	"encoding/binary"
	"sort"
	"syscall"
)

// mark is what Check keeps of an inode.
type mark struct {
	ino        Ino
	nlink      uint32
	links      uint32 // entries that name it
	home       uint32 // 1 + index of the mark of a directory with an entry that names it; 0: none
	extra      uint32 // index in dirs (directories) or files (ContentExtents)
	seenXattrs int32  // attributes found less attributes recorded
	typ        uint8  // DT_*
	kind       ContentKind
	state      reachState
	flags      uint8 // markBad, markExtents
}

const (
	markBad     = 1 << iota // the record could not be decoded: only that the inode exists is known
	markExtents             // reported: it has extents it should not have
)

func (m *mark) is(flag uint8) bool { return m.flags&flag != 0 }

// dirMark is what Check keeps of a directory besides.
type dirMark struct {
	parent      Ino
	entries     uint64 // recorded
	seenEntries uint64
	subdirs     uint32
}

// fileMark is what Check keeps of a file with extents besides.
type fileMark struct {
	size, alloc int64 // recorded
	sum         int64 // of the extents' lengths
}

type stagedMark struct {
	number uint64
	ino    Ino
}

// blocks is a list that grows without moving: a million entries take the memory of a million entries.
type blocks[T any] struct {
	b [][]T
	n int
}

const blockLen = 1 << 14

func (l *blocks[T]) add(v T) int {
	if l.n%blockLen == 0 {
		size := blockLen
		if l.n == 0 {
			size = 0 // a small list stays small
		}
		l.b = append(l.b, make([]T, 0, size))
	}
	last := &l.b[len(l.b)-1]
	*last = append(*last, v)
	l.n++
	return l.n - 1
}

func (l *blocks[T]) at(i int) *T { return &l.b[i/blockLen][i%blockLen] }

// index returns the position of an inode's mark, or -1.
func (c *checker) index(ino Ino) int {
	i := sort.Search(c.marks.n, func(i int) bool { return c.marks.at(i).ino >= ino })
	if i == c.marks.n || c.marks.at(i).ino != ino {
		return -1
	}
	return i
}

func (c *checker) find(ino Ino) *mark {
	if i := c.index(ino); i >= 0 {
		return c.marks.at(i)
	}
	return nil
}

// inodes marks every inode and checks what its record alone tells.
func (c *checker) inodes(ctx context.Context) error {
	err := c.scan(ctx, KeyInode, func(key, value []byte) error {
		if len(key) != 9 {
			c.problem(0, "inode key %x: malformed", key)
			return nil
		}
		ino := Ino(binary.BigEndian.Uint64(key[1:]))
		if ino == 0 {
			c.problem(0, "there is an inode 0")
		}
		n, err := DecodeInode(ino, value)
		if err != nil {
			c.problem(ino, "%v", err)
			c.damaged = true
			c.marks.add(mark{ino: ino, flags: markBad})
			return nil
		}
		c.inode(n)
		return nil
	})
	if err != nil {
		return err
	}
	switch root := c.find(RootIno); {
	case root == nil:
		c.problem(RootIno, "there is no root directory")
	case root.typ != syscall.DT_DIR && !root.is(markBad):
		c.problem(RootIno, "the root is not a directory")
	}
	return nil
}

func (c *checker) inode(n *Inode) {
	m := mark{ino: n.Ino, nlink: n.Nlink, typ: uint8(n.Mode & syscall.S_IFMT >> 12), kind: n.Content,
		seenXattrs: -int32(n.Xattrs)}
	c.count(n)
	c.content(n)
	switch {
	case n.IsDir():
		m.extra = uint32(c.dirs.add(dirMark{parent: n.Parent, entries: n.Entries}))
		m.kind = ContentNone // anything else was reported; extra is no index in files
		if n.Ino == RootIno && n.Parent != RootIno {
			c.problem(n.Ino, "the root's parent is %d, want the root itself", n.Parent)
		}
	case n.Content == ContentExtents:
		m.extra = uint32(c.files.add(fileMark{size: n.Size, alloc: n.Alloc}))
	}
	if !n.IsDir() && n.Entries != 0 {
		c.problem(n.Ino, "is no directory but has %d entries", n.Entries)
	}
	c.marks.add(m)
}

func (c *checker) count(n *Inode) {
	k := &c.report.Counts
	if n.Content.Local() {
		k.Local++
	}
	if n.Nlink == 0 {
		k.Orphans++
		return
	}
	k.Inodes++
	k.Bytes += uint64(n.Alloc)
	switch n.Mode & syscall.S_IFMT {
	case syscall.S_IFREG:
		k.Files++
	case syscall.S_IFDIR:
		k.Dirs++
	case syscall.S_IFLNK:
		k.Symlinks++
	case syscall.S_IFCHR, syscall.S_IFBLK, syscall.S_IFIFO, syscall.S_IFSOCK:
		k.Other++
	default:
		k.Other++
		c.problem(n.Ino, "mode %o has no file type", n.Mode)
	}
}

// content checks the kind of content against the file type, and the sizes against each other.
func (c *checker) content(n *Inode) {
	if local := n.Live || n.Staging != 0 || n.Content.Local(); local && !c.o.Local {
		c.problem(n.Ino, "content is on one host only (kind %d, staging file %d, live %v)", n.Content, n.Staging, n.Live)
		return
	}
	if n.Staging != 0 {
		c.staged = append(c.staged, stagedMark{n.Staging, n.Ino})
	}
	switch {
	case n.Live && n.Content != ContentStaged:
		c.problem(n.Ino, "is live but has no staging file (kind %d)", n.Content)
	case n.IsSymlink():
		if n.Content != ContentInline || len(n.Inline) == 0 || len(n.Inline) > 4095 {
			c.problem(n.Ino, "symlink with a target of %d bytes, kind %d: want 1 to 4095 inline", len(n.Inline), n.Content)
			return
		}
	case !n.IsRegular():
		if n.Content != ContentNone || n.Size != 0 || n.Alloc != 0 {
			c.problem(n.Ino, "has content (kind %d, size %d, alloc %d) but is no file", n.Content, n.Size, n.Alloc)
		}
		return
	}
	c.sizes(n)
}

// sizes checks Size and Alloc of a file or symlink against the content the record holds or names.
func (c *checker) sizes(n *Inode) {
	alloc := n.Alloc
	switch n.Content {
	case ContentNone:
		alloc = 0
	case ContentInline:
		alloc = int64(len(n.Inline))
		if alloc != n.Size {
			c.problem(n.Ino, "size %d but %d bytes inline", n.Size, alloc)
		}
	case ContentOne:
		alloc = n.Size // which is also the chunk's, by the encoding
		if c.o.Refs != nil {
			c.o.Refs(n.Ref, n.Ino)
		}
	case ContentJournal:
		if c.o.ContentExists != nil {
			if err := c.o.ContentExists(n.Ino); err != nil {
				c.problem(n.Ino, "content in the journal: %v", err)
			}
		}
	case ContentStaged:
		if n.Staging == 0 {
			c.problem(n.Ino, "content is in a staging file without a number")
		} else if c.o.StagingExists != nil {
			if err := c.o.StagingExists(n.Staging, n.Ino); err != nil {
				c.problem(n.Ino, "staging file %d: %v", n.Staging, err)
			}
		}
	}
	if n.Alloc != alloc {
		c.problem(n.Ino, "alloc %d, want %d", n.Alloc, alloc)
	}
}
