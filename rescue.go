package wsfs

import (
	"context"
	"errors"
	"fmt"

	"wsfs/blobs"
	"wsfs/syncer"
)

// StrandedError says that a cache directory holds work that is not in the store, while another writer reigns over the
// workspace. Rescue makes a fork of it.
type StrandedError struct {
	CacheDir string
	Fenced   *syncer.FencedError
}

func (e *StrandedError) Error() string {
	return fmt.Sprintf("%v; unsynced work of this host is kept in %s: `wsctl rescue %s NEW-NAME` makes it a workspace of its own, "+
		"--read-only shows the workspace without it", e.Fenced, e.CacheDir, e.Fenced.Workspace)
}

// Unwrap gives the *syncer.FencedError, which matches syncer.ErrFenced.
func (e *StrandedError) Unwrap() error { return e.Fenced }

// ErrNothingToRescue: the cache directory holds no work that another writer has overtaken.
var ErrNothingToRescue = errors.New("nothing to rescue")

// Rescue makes the unsynced work of a fenced workspace a new workspace: a fork of the commit the work was done on, with
// the work as its second commit. Afterwards the cache directory is empty and the old workspace can be opened again.
// ErrNothingToRescue if nothing is unsynced or nobody else has written meanwhile.
func Rescue(ctx context.Context, store blobs.Store, name, newName string, o Options) (*syncer.Commit, error) {
	if err := syncer.ValidName(newName); err != nil {
		return nil, err
	}
	w, err := newWorkspace(name, o)
	if err != nil {
		return nil, err
	}
	c, err := w.rescue(ctx, store, newName)
	return c, errors.Join(err, w.release())
}

func (w *Workspace) rescue(ctx context.Context, store blobs.Store, newName string) (*syncer.Commit, error) {
	if err := w.openDirs(); err != nil {
		return nil, err
	}
	if err := w.openLocal(); err != nil {
		return nil, err
	}
	head, err := w.openStore(ctx, store)
	if err != nil {
		return nil, err
	}
	if err := w.openReader(store); err != nil {
		return nil, err
	}
	base, what, err := w.standing(head)
	if err != nil {
		return nil, err
	}
	if what != syncer.AdoptFenced {
		return nil, fmt.Errorf("%s: %w", w.o.CacheDir, ErrNothingToRescue)
	}
	fork, err := w.repo.Fork(ctx, base, newName)
	if err != nil {
		return nil, err
	}
	w.live.SetBase(w.tree(base))
	if err := w.recover(ctx); err != nil {
		return nil, err
	}
	w.writer = syncer.NewWriter(w.repo, newName, fork, w.live.Base(), local{w}, nil, w.writerOptions())
	c, err := w.writer.Commit(ctx, "rescued from "+w.name)
	if err != nil {
		return nil, err
	}
	if err := w.resetLocal(head); err != nil {
		return nil, err
	}
	return c, w.setPosition(head)
}
