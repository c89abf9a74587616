package metadata

import (
	"context"
	"slices"
	"strings"
	"syscall"
)

// dirents checks every entry and counts the links of its inode; they come directory by directory.
func (c *checker) dirents(ctx context.Context) error {
	at := -1 // mark of the directory of the entry before
	return c.scan(ctx, KeyDirent, func(key, value []byte) error {
		c.report.Counts.Entries++
		parent, hash, name, err := ParseDirentKey(key)
		if err != nil {
			c.problem(0, "%v", err)
			return nil
		}
		e, err := DecodeDirent(value)
		if err != nil {
			c.problemAt(parent, place{parent, name}, "entry %q: %v", name, err)
			return nil
		}
		here := place{parent, name}
		if err := checkName(name); err != "" {
			c.problemAt(e.Ino, here, "entry %q of directory %d: %s", name, parent, err)
		}
		if want := NameHash(name); hash != want {
			c.problemAt(e.Ino, here, "entry %q of directory %d: hash %x in its key, want %x", name, parent, hash, want)
		}
		if at < 0 || c.marks.at(at).ino != parent {
			at = c.index(parent)
		}
		c.dirent(at, here, e)
		return nil
	})
}

// checkName says what is wrong with a name in a directory, "" if nothing is.
func checkName(name string) string {
	switch {
	case len(name) == 0 || len(name) > 255:
		return "want a name of 1 to 255 bytes"
	case name == "." || name == "..":
		return "the name is reserved"
	case strings.ContainsAny(name, "/\x00"):
		return "the name has a slash or a NUL"
	}
	return ""
}

// dirent counts one entry; at is the index of its directory's mark, -1 if there is none.
func (c *checker) dirent(at int, here place, e Dirent) {
	var dir *dirMark
	switch {
	case at < 0:
		c.problem(here.dir, "entry %q (inode %d) lies in a directory that does not exist", here.name, e.Ino)
	case c.marks.at(at).is(markBad):
	case c.marks.at(at).typ != syscall.DT_DIR:
		c.problem(here.dir, "entry %q (inode %d) lies in something that is no directory", here.name, e.Ino)
	default:
		dir = c.dirs.at(int(c.marks.at(at).extra))
		dir.seenEntries++
	}
	m := c.find(e.Ino)
	switch {
	case m == nil:
		c.problemAt(e.Ino, here, "entry %q of directory %d names an inode that does not exist", here.name, here.dir)
		return
	case m.ino == RootIno:
		c.problemAt(e.Ino, here, "entry %q of directory %d names the root", here.name, here.dir)
		return
	case !m.is(markBad) && e.Type != m.typ:
		c.problemAt(e.Ino, here, "entry %q of directory %d has type %d, the inode %d", here.name, here.dir, e.Type, m.typ)
	}
	m.links++
	if dir != nil {
		m.home = uint32(at + 1)
	}
	if m.is(markBad) || m.typ != syscall.DT_DIR {
		return
	}
	if dir != nil {
		dir.subdirs++
	}
	if p := c.dirs.at(int(m.extra)).parent; p != here.dir {
		c.problemAt(e.Ino, here, "lies in directory %d but its parent is %d", here.dir, p)
	}
}

// links compares what the inodes say with what was counted.
func (c *checker) links() {
	for i := range c.marks.n {
		m := c.marks.at(i)
		if m.is(markBad) {
			continue
		}
		if off := int64(m.seenXattrs); off < 0 {
			c.problem(m.ino, "counts %d attributes too many", -off)
		} else if off > 0 {
			c.problem(m.ino, "counts %d attributes too few", off)
		}
		if m.typ == syscall.DT_DIR {
			c.dirLinks(m)
			continue
		}
		if m.kind == ContentExtents && m.typ == syscall.DT_REG {
			if f := c.files.at(int(m.extra)); f.alloc != f.sum {
				c.problem(m.ino, "alloc %d, but the extents have %d bytes", f.alloc, f.sum)
			}
		}
		if m.nlink != m.links {
			c.problem(m.ino, "link count %d, but %d entries", m.nlink, m.links)
		}
	}
}

func (c *checker) dirLinks(m *mark) {
	d := c.dirs.at(int(m.extra))
	if d.entries != d.seenEntries {
		c.problem(m.ino, "counts %d entries, there are %d", d.entries, d.seenEntries)
	}
	orphan := m.nlink == 0 && m.ino != RootIno
	switch {
	case orphan && d.seenEntries != 0:
		c.problem(m.ino, "has no links but %d entries", d.seenEntries)
	case orphan && m.links != 0:
		c.problem(m.ino, "link count 0, but %d entries name the directory", m.links)
	case orphan:
	case m.nlink != 2+d.subdirs:
		c.problem(m.ino, "link count %d, but %d subdirectories", m.nlink, d.subdirs)
	}
	if !orphan && m.ino != RootIno && m.links != 1 {
		c.problem(m.ino, "%d entries name the directory, want 1", m.links)
	}
}

// reachState says whether a directory has a way up to the root.
type reachState uint8

const (
	reachUnknown reachState = iota
	reachPending            // on the way now looked at
	reachYes
	reachNo
)

// reach follows every directory up to the root. Where the way up ends elsewhere the topmost directory was reported for
// its missing entry; where it runs in a circle that is reported here.
func (c *checker) reach() {
	var way []int
	for i := range c.marks.n {
		if m := c.marks.at(i); m.typ != syscall.DT_DIR || m.nlink == 0 && m.ino != RootIno {
			continue
		}
		way = way[:0]
		at, verdict := i, reachUnknown
		for verdict == reachUnknown {
			m := c.marks.at(at)
			switch {
			case m.state == reachPending:
				c.problem(m.ino, "is its own ancestor")
				verdict = reachNo
			case m.state != reachUnknown:
				verdict = m.state
			case m.ino == RootIno:
				m.state, verdict = reachYes, reachYes
			default:
				m.state = reachPending
				way = append(way, at)
				if at = int(m.home) - 1; at < 0 {
					verdict = reachNo
				}
			}
		}
		for _, w := range way {
			c.marks.at(w).state = verdict
		}
		if verdict == reachNo {
			c.report.Counts.Unreachable += uint64(len(way))
		}
	}
}

// Finding the path of a problem means searching the directories above it for its name; no more than this many
// problems and entries are looked at.
const (
	maxPaths       = 100
	maxPathEntries = 1 << 20
)

// paths fills in Problem.Path where that is cheap.
func (c *checker) paths(ctx context.Context) error {
	f := pathFinder{c: c, budget: maxPathEntries}
	for i := range c.report.Problems[:min(len(c.report.Problems), maxPaths)] {
		p, at := &c.report.Problems[i], c.places[i]
		ino := p.Ino
		if at.name != "" {
			ino = at.dir
		}
		if ino == 0 {
			continue
		}
		path, ok, err := f.path(ctx, c.index(ino))
		if err != nil {
			return err
		}
		if ok && at.name != "" {
			path = strings.TrimSuffix(path, "/") + "/" + at.name
		}
		p.Path = path
	}
	return nil
}

type pathFinder struct {
	c      *checker
	budget int // entries left to look at
}

// maxDepth ends the way up where directories without links, which reach does not look at, name each other.
const maxDepth = 10000

// path returns the path of the inode with that mark; false if it has none or it is not found within the budget.
func (f *pathFinder) path(ctx context.Context, at int) (string, bool, error) {
	var names []string
	for at >= 0 && len(names) < maxDepth {
		m := f.c.marks.at(at)
		if m.ino == RootIno {
			slices.Reverse(names)
			return "/" + strings.Join(names, "/"), true, nil
		}
		if m.home == 0 || m.state == reachNo || f.budget <= 0 {
			return "", false, nil
		}
		at = int(m.home) - 1
		name, err := f.name(ctx, f.c.marks.at(at).ino, m.ino)
		if err != nil || name == "" {
			return "", false, err
		}
		names = append(names, name)
	}
	return "", false, nil
}

// name finds the name of an inode in a directory.
func (f *pathFinder) name(ctx context.Context, dir, ino Ino) (name string, err error) {
	prefix := DirentPrefix(dir)
	err = f.c.v.Scan(ctx, prefix, PrefixEnd(prefix), func(key, value []byte) error {
		if f.budget--; f.budget < 0 {
			return ErrStop
		}
		e, err := DecodeDirent(value)
		if err != nil || e.Ino != ino {
			return nil // another entry; a damaged one is a problem of its own
		}
		if _, _, name, err = ParseDirentKey(key); err != nil {
			return err
		}
		return ErrStop
	})
	return name, err
}
