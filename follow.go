package wsfs

import (
	"context"
	"errors"

	"wsfs/metadata"
	"wsfs/syncer"
)

// startFollowing opens head and follows newer commits in the background.
func (w *Workspace) startFollowing(run context.Context, head *syncer.Commit) error {
	w.live.SetBase(w.tree(head))
	w.following.Store(head)
	super, err := w.readSuper(run)
	if err != nil {
		return err
	}
	w.super = super
	w.running.Go(func() {
		err := syncer.Follow(run, w.repo, w.name, syncer.DefaultFollow, func(c *syncer.Commit) error { return w.moveTo(run, c) })
		if err != nil && !errors.Is(err, context.Canceled) {
			w.log.Error("following ended; the tree stays as it is", "err", err)
		}
	})
	return nil
}

// moveTo shows a newer commit. What differs is found by comparing the trees, and only that is forgotten, here and in the
// kernel.
func (w *Workspace) moveTo(ctx context.Context, c *syncer.Commit) error {
	old := w.live.Base()
	if c.Number <= w.following.Load().Number {
		return nil
	}
	next := w.tree(c)
	var inos []Ino
	type name struct {
		parent Ino
		name   string
	}
	var names []name
	err := metadata.Diff(ctx, old, next, func(key, _, _ []byte) error {
		switch key[0] {
		case metadata.KeyDirent:
			parent, _, s, err := metadata.ParseDirentKey(key)
			names = append(names, name{parent, s})
			return err
		case metadata.KeyInode, metadata.KeyExtent, metadata.KeyXattr:
			ino, err := metadata.ParseInoKey(key)
			if len(inos) == 0 || inos[len(inos)-1] != ino {
				inos = append(inos, ino)
			}
			return err
		}
		return nil
	})
	if err != nil {
		w.log.Warn("compare commits", "from", w.following.Load().Number, "to", c.Number, "err", err)
		return nil // tried again with the next commit
	}
	if err := w.switchTo(ctx, next, inos); err != nil {
		return err
	}
	w.following.Store(c)
	if k := w.kernel.Load(); k != nil {
		for _, ino := range inos {
			(*k).InvalidateInode(ino, 0, 0)
		}
		for _, n := range names {
			(*k).InvalidateEntry(n.parent, n.name)
		}
	}
	w.notifyCommit(c)
	return nil
}

func (w *Workspace) switchTo(ctx context.Context, next *metadata.Tree, changed []Ino) error {
	v, ok, err := next.Get(ctx, metadata.SuperKey())
	if err != nil || !ok {
		return errors.Join(err, metadata.ErrDamaged)
	}
	super, err := metadata.DecodeSuper(v)
	if err != nil {
		return err
	}
	var open []*file
	w.mu.Lock()
	w.live.SetBase(next)
	w.super = super
	for _, ino := range changed {
		n := w.inodes[ino]
		if n == nil {
			continue
		}
		delete(w.inodes, ino)
		if n.file != nil {
			open = append(open, n.file)
		}
	}
	w.mu.Unlock()
	for _, f := range open {
		if err := w.reopen(ctx, f); err != nil {
			w.log.Warn("reopen a file that changed", "ino", f.n.rec.Ino, "err", err)
		}
	}
	return nil
}

// reopen lets an open file show what the new commit has; a file that is gone keeps showing what it was.
func (w *Workspace) reopen(ctx context.Context, f *file) error {
	v, ok, err := w.live.Get(ctx, metadata.InodeKey(f.n.rec.Ino))
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if ok {
		rec, err := metadata.DecodeInode(f.n.rec.Ino, v)
		if err != nil {
			return err
		}
		f.n.rec = *rec
		f.form, f.data, f.chunks = formUnknown, nil, nil
	} else {
		f.n.rec.Nlink = 0
	}
	if w.inodes[f.n.rec.Ino] == nil {
		w.keep(f.n)
	}
	return nil
}
