package syncer

import (
	"context"
	"fmt"
	"slices"

	"wsfs/blobs"
	"wsfs/metadata"
)

// plan is what a commit has to do for one frozen state. It holds one small entry per inode that is gone or whose content
// is local; everything else is read from the frozen state again when the tree is written, so that memory does not grow
// with the number of keys.
type plan struct {
	seq     uint64
	keys    int       // dirty keys
	inodes  []touched // ascending
	files   []fileState
	bytes   int64 // of content to read
	live    bool  // there are files that may be written behind our back
	nextIno metadata.Ino

	// super becomes the new superblock: it begins as the base's without the dirty inodes, and each record that is
	// written is added. So it counts what the tree holds, which is not what the live side holds: orphans are left out
	// and allocation is by chunks.
	super metadata.Super

	unstable []metadata.Ino
}

func (p *plan) empty() bool { return p.keys == 0 }

// touched is a dirty inode whose other keys are not simply the dirty ones.
type touched struct {
	ino  metadata.Ino
	file int32 // index in plan.files, -1: it has no local content
	// gone: deleted, or an orphan. None of its keys is in the new tree.
	gone bool
	// dropXattrs, dropExtents: the base tree has some that the new one must not have (for a file: must not have
	// unless they are among its new ones).
	dropXattrs, dropExtents bool
}

// fileState is a file with local content on its way into the store.
type fileState struct {
	SettledFile
	reuse    bool   // the base tree's content is still right: nothing is read
	staging  uint64 // 0: the content is in the journal
	live     bool   // Stamp is that of the freeze, and decides
	busy     bool   // large and being written: not read at all
	moved    bool   // changed while it was read
	unstable bool   // keeps what the base tree has
	mtime    int64  // ns; of the commit's record, 0: as in the live record
}

// inode returns what is known of a dirty inode beyond its keys; nil if nothing is.
func (p *plan) inode(ino metadata.Ino) *touched {
	i, ok := slices.BinarySearchFunc(p.inodes, ino, func(t touched, ino metadata.Ino) int {
		switch {
		case t.ino < ino:
			return -1
		case t.ino > ino:
			return 1
		}
		return 0
	})
	if !ok {
		return nil
	}
	return &p.inodes[i]
}

// scan walks the dirty keys once and makes the plan.
func (r *commitRun) scan(ctx context.Context) error {
	p := &plan{seq: r.frozen.Seq()}
	r.plan = p
	v, ok, err := r.w.base.Get(ctx, metadata.SuperKey())
	if err != nil {
		return fmt.Errorf("reading the base superblock: %w", err)
	}
	if ok {
		if p.super, err = metadata.DecodeSuper(v); err != nil {
			return err
		}
	}
	p.nextIno = p.super.NextIno
	return r.frozen.Dirty(func(key []byte) error {
		p.keys++
		if !metadata.Committed(key) {
			return fmt.Errorf("dirty key %x is not in the committed key space", key)
		}
		switch key[0] {
		case metadata.KeyInode:
			return r.scanInode(ctx, key)
		case metadata.KeySuper:
			return r.scanSuper(key)
		}
		return nil
	})
}

func (r *commitRun) scanSuper(key []byte) error {
	v, ok, err := r.frozen.Get(key)
	if err != nil || !ok {
		return err
	}
	s, err := metadata.DecodeSuper(v)
	if err != nil {
		return err
	}
	// Inode numbers are never given out twice, whatever is undone.
	r.plan.nextIno = max(r.plan.nextIno, s.NextIno)
	return nil
}

func (r *commitRun) scanInode(ctx context.Context, key []byte) error {
	p := r.plan
	ino, err := metadata.ParseInoKey(key)
	if err != nil {
		return err
	}
	old, err := r.baseInode(ctx, ino)
	if err != nil {
		return err
	}
	if old != nil && old.Nlink > 0 {
		p.super.Inodes--
		p.super.Bytes -= uint64(old.Alloc)
	}
	n, err := r.liveInode(key, ino)
	if err != nil {
		return err
	}
	hasExtents := old != nil && old.Content == metadata.ContentExtents
	t := touched{ino: ino, file: -1, dropExtents: hasExtents}
	switch {
	case n == nil || n.Nlink == 0:
		t.gone, t.dropXattrs = true, old != nil && old.Xattrs > 0
	case n.Content.Local():
		t.file = int32(len(p.files))
		p.files = append(p.files, r.planFile(n, old))
		f := &p.files[t.file]
		if f.live {
			p.live = true
		}
		if !f.reuse {
			if !f.busy {
				p.bytes += f.Size
			}
		} else if err := r.keepBase(ctx, f, old); err != nil {
			return err
		}
	case hasExtents && n.Content != metadata.ContentExtents:
	default:
		return nil
	}
	p.inodes = append(p.inodes, t)
	return nil
}

// baseInode returns the inode's record in the base tree, nil if it has none.
func (r *commitRun) baseInode(ctx context.Context, ino metadata.Ino) (*metadata.Inode, error) {
	if ino >= r.plan.super.NextIno {
		return nil, nil // numbers only grow: it cannot be there
	}
	v, ok, err := r.w.base.Get(ctx, metadata.InodeKey(ino))
	if err != nil {
		return nil, fmt.Errorf("reading inode %d of the base tree: %w", ino, err)
	}
	if !ok {
		return nil, nil
	}
	return metadata.DecodeInode(ino, v)
}

// liveInode returns the frozen record, nil if the inode is deleted.
func (r *commitRun) liveInode(key []byte, ino metadata.Ino) (*metadata.Inode, error) {
	v, ok, err := r.frozen.Get(key)
	if err != nil || !ok {
		return nil, err
	}
	return metadata.DecodeInode(ino, v)
}

// planFile says what is to be read of a file with local content.
func (r *commitRun) planFile(n, old *metadata.Inode) fileState {
	f := fileState{SettledFile: SettledFile{Ino: n.Ino, Version: n.Version, Size: n.Size}}
	if n.Content == metadata.ContentJournal {
		return f
	}
	f.staging = n.Staging
	if f.Stamp, f.live = r.frozen.Stamp(n.Staging); f.live {
		// The kernel writes to the file by itself: the file knows better than the record.
		f.Size, f.mtime = f.Stamp.Size, f.Stamp.Mtime
	}
	f.reuse = old != nil && r.frozen.Settled(n.Ino, n.Staging)
	f.busy = f.live && !f.reuse && !r.patient && f.Size >= busySize &&
		r.w.o.Clock.Now().UnixNano()-f.Stamp.Mtime < int64(r.w.o.Quiet)
	return f
}

// keepBase gives a file the content it has in the base tree: none if it is not there.
func (r *commitRun) keepBase(ctx context.Context, f *fileState, old *metadata.Inode) error {
	f.Size, f.Alloc, f.Content, f.Inline, f.Ref, f.Extents = 0, 0, metadata.ContentNone, nil, blobs.Ref{}, nil
	if old == nil {
		return nil
	}
	f.Size, f.Alloc, f.Content, f.Inline, f.Ref = old.Size, old.Alloc, old.Content, old.Inline, old.Ref
	if f.unstable {
		f.mtime = old.Mtime
		return nil
	}
	if f.Content != metadata.ContentExtents {
		return nil
	}
	var err error
	f.Extents, err = r.baseExtents(ctx, f.Ino)
	return err
}

// baseExtents returns the extents a file has in the base tree.
func (r *commitRun) baseExtents(ctx context.Context, ino metadata.Ino) ([]metadata.Extent, error) {
	var extents []metadata.Extent
	prefix := metadata.ExtentPrefix(ino)
	err := r.w.base.Scan(ctx, prefix, metadata.PrefixEnd(prefix), func(key, value []byte) error {
		_, off, err := metadata.ParseExtentKey(key)
		if err != nil {
			return err
		}
		e, err := metadata.DecodeExtent(off, value)
		extents = append(extents, e)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading extents of inode %d of the base tree: %w", ino, err)
	}
	return extents, nil
}
