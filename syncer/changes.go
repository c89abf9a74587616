package syncer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"

	"wsfs/metadata"
)

// apply writes the new tree's pages into the packer.
func (r *commitRun) apply(ctx context.Context) error {
	changes := func(yield func(metadata.Change, error) bool) {
		err := r.changes(ctx, func(c metadata.Change) error {
			if !yield(c, nil) {
				return errStopped
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStopped) {
			yield(metadata.Change{}, err)
		}
	}
	tree, stats, err := r.w.base.Apply(ctx, pageWriter{r.packer}, changes)
	if err != nil {
		return fmt.Errorf("committing %q: %w", r.w.name, err)
	}
	r.tree, r.applied = tree, stats
	r.thaw()
	return nil
}

// errStopped: whoever takes the changes wants no more.
var errStopped = errors.New("stopped")

// changes sends every change of the commit in ascending key order: the dirty keys in their frozen values, with the keys
// the plan speaks for (see extras) put in and taken out, and at the end the superblock, whose key is the greatest.
func (r *commitRun) changes(ctx context.Context, send func(metadata.Change) error) error {
	next, stop := iter.Pull2(r.extras(ctx))
	defer stop()
	extra, err, have := next()
	flush := func(below []byte) error {
		for have && err == nil && (below == nil || bytes.Compare(extra.Key, below) < 0) {
			if err := send(extra); err != nil {
				return err
			}
			extra, err, have = next()
		}
		return err
	}
	if err := r.frozen.Dirty(func(key []byte) error {
		if err := flush(key); err != nil {
			return err
		}
		return r.change(key, send)
	}); err != nil {
		return err
	}
	if err := flush(nil); err != nil {
		return err
	}
	r.plan.super.NextIno = r.plan.nextIno
	return send(metadata.Change{Key: metadata.SuperKey(), Value: metadata.AppendSuper(nil, r.plan.super)})
}

// change sends the change of one dirty key, if it is one.
func (r *commitRun) change(key []byte, send func(metadata.Change) error) error {
	switch key[0] {
	case metadata.KeySuper:
		return nil
	case metadata.KeyInode:
		return r.changeInode(key, send)
	case metadata.KeyXattr, metadata.KeyExtent:
		ino, err := metadata.ParseInoKey(key)
		if err != nil {
			return err
		}
		t := r.plan.inode(ino)
		if t != nil && (t.gone || key[0] == metadata.KeyExtent) {
			return nil // extras speaks for it
		}
	}
	value, ok, err := r.frozen.Get(key)
	if err != nil {
		return err
	}
	if !ok {
		value = nil
	} else if value == nil {
		value = []byte{} // an empty attribute is no deletion
	}
	return send(metadata.Change{Key: key, Value: value})
}

func (r *commitRun) changeInode(key []byte, send func(metadata.Change) error) error {
	ino, err := metadata.ParseInoKey(key)
	if err != nil {
		return err
	}
	t := r.plan.inode(ino)
	if t != nil && t.gone {
		return send(metadata.Change{Key: key})
	}
	n, err := r.liveInode(key, ino)
	if err != nil {
		return err
	}
	if n == nil {
		return fmt.Errorf("inode %d vanished from a frozen state", ino)
	}
	n.Staging, n.Live, n.Version = 0, false, 0 // local facts
	if t != nil && t.file >= 0 {
		f := &r.plan.files[t.file]
		n.Size, n.Alloc, n.Content, n.Inline, n.Ref = f.Size, f.Alloc, f.Content, f.Inline, f.Ref
		if f.mtime != 0 {
			n.Mtime, n.Ctime = f.mtime, max(n.Ctime, f.mtime)
		}
	}
	if n.Content.Local() {
		return fmt.Errorf("inode %d: its content is still local (kind %d)", ino, n.Content)
	}
	r.plan.super.Inodes++
	r.plan.super.Bytes += uint64(n.Alloc)
	r.record = metadata.AppendInode(r.record[:0], n)
	return send(metadata.Change{Key: key, Value: r.record})
}

// extras yields, in key order, the changes the plan demands whether or not their keys are dirty: the attributes and
// extents of inodes that are gone, and the extents of files whose content was cut anew, where they differ.
func (r *commitRun) extras(ctx context.Context) iter.Seq2[metadata.Change, error] {
	return func(yield func(metadata.Change, error) bool) {
		send := func(c metadata.Change) error {
			if !yield(c, nil) {
				return errStopped
			}
			return nil
		}
		err := r.dropXattrs(ctx, send)
		for i := 0; err == nil && i < len(r.plan.inodes); i++ {
			err = r.extents(ctx, &r.plan.inodes[i], send)
		}
		if err != nil && !errors.Is(err, errStopped) {
			yield(metadata.Change{}, err)
		}
	}
}

func (r *commitRun) dropXattrs(ctx context.Context, send func(metadata.Change) error) error {
	for _, t := range r.plan.inodes {
		if !t.dropXattrs {
			continue
		}
		prefix := metadata.XattrKey(t.ino, "")
		err := r.w.base.Scan(ctx, prefix, metadata.PrefixEnd(prefix), func(key, _ []byte) error {
			return send(metadata.Change{Key: key})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// extents sends what changes among the extents of one inode.
func (r *commitRun) extents(ctx context.Context, t *touched, send func(metadata.Change) error) error {
	var fresh []metadata.Extent
	if t.file >= 0 {
		f := &r.plan.files[t.file]
		if f.reuse || f.unstable {
			return nil
		}
		fresh = f.Extents
	}
	set := func(e metadata.Extent) error {
		return send(metadata.Change{Key: metadata.ExtentKey(t.ino, e.Off), Value: metadata.AppendExtent(nil, e)})
	}
	if t.dropExtents {
		prefix := metadata.ExtentPrefix(t.ino)
		err := r.w.base.Scan(ctx, prefix, metadata.PrefixEnd(prefix), func(key, _ []byte) error {
			_, off, err := metadata.ParseExtentKey(key)
			if err != nil {
				return err
			}
			for len(fresh) > 0 && fresh[0].Off < off {
				if err := set(fresh[0]); err != nil {
					return err
				}
				fresh = fresh[1:]
			}
			if len(fresh) > 0 && fresh[0].Off == off { // Apply finds out whether it differs
				e := fresh[0]
				fresh = fresh[1:]
				return set(e)
			}
			return send(metadata.Change{Key: key})
		})
		if err != nil {
			return err
		}
	}
	for _, e := range fresh {
		if err := set(e); err != nil {
			return err
		}
	}
	return nil
}
