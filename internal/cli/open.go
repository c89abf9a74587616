package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"wsfs"
	"wsfs/blobs"
	"wsfs/syncer"
)

// Opened is a workspace open in this process.
type Opened struct {
	*wsfs.Workspace
	dir string
}

// OpenOptions says how OpenWorkspace opens.
type OpenOptions struct {
	Workspace wsfs.Options  // CacheDir "": where Target says
	LockWait  time.Duration // how long to wait for another process to leave the cache directory
	Reader    bool          // only reads: what somebody else writes is opened read-only
}

// OpenWorkspace opens a workspace and makes what may be made: the default store and workspaces in it, and a workspace
// in any initialised store if Workspace.Create is set. A store that does not answer is given up after a short time,
// unless there is local work to go on with.
func OpenWorkspace(ctx context.Context, t Target, o OpenOptions) (*Opened, error) {
	if o.Workspace.CacheDir == "" {
		dir, err := t.CacheDir()
		if err != nil {
			return nil, err
		}
		o.Workspace.CacheDir = dir
	}
	if fi, err := os.Stat(o.Workspace.CacheDir); err == nil && !fi.IsDir() {
		return nil, Usagef("cache directory %s is not a directory", o.Workspace.CacheDir)
	}
	makes := t.Default && !o.Reader && !o.Workspace.ReadOnly
	store, err := openStore(ctx, t.Store, makes)
	if err != nil {
		return nil, err
	}
	o.Workspace.Create = o.Workspace.Create || makes
	if o.Reader && !hasLocal(o.Workspace.CacheDir) {
		o.Workspace.ReadOnly = true
	}
	w, err := openWaiting(ctx, store, t, o)
	if errors.Is(err, syncer.ErrNotInitialised) && makes {
		if err = initDefault(ctx, store); err == nil {
			w, err = openWaiting(ctx, store, t, o)
		}
	}
	if o.Reader && !o.Workspace.ReadOnly && (errors.Is(err, syncer.ErrHeld) || errors.Is(err, wsfs.ErrInUse)) {
		o.Workspace.ReadOnly = true
		w, err = openWaiting(ctx, store, t, o)
	}
	if err != nil {
		return nil, explain(t, o.Workspace.CacheDir, err)
	}
	store.settle()
	return &Opened{Workspace: w, dir: o.Workspace.CacheDir}, nil
}

// RescueWorkspace makes the unsynced work of a fenced workspace a workspace of its own; see wsfs.Rescue.
func RescueWorkspace(ctx context.Context, t Target, name string) (*syncer.Commit, error) {
	dir, err := t.CacheDir()
	if err != nil {
		return nil, err
	}
	if !hasLocal(dir) {
		return nil, NotFoundf("this host has no state of workspace %s (cache directory %s)", t, dir)
	}
	store, err := openStore(ctx, t.Store, false)
	if err != nil {
		return nil, err
	}
	store.settle()
	commit, err := wsfs.Rescue(ctx, store, t.Name, name, wsfs.Options{CacheDir: dir})
	if err != nil {
		return nil, explain(t, dir, err)
	}
	return commit, nil
}

// hasLocal tells whether this host has state of the workspace, perhaps with work that is not in the store yet.
func hasLocal(cacheDir string) bool {
	_, err := os.Stat(filepath.Join(cacheDir, "meta"))
	return err == nil
}

// openWaiting opens, and waits for another process that is about to leave the cache directory.
func openWaiting(ctx context.Context, store blobs.Store, t Target, o OpenOptions) (*wsfs.Workspace, error) {
	for deadline := time.Now().Add(o.LockWait); ; {
		w, err := wsfs.Open(ctx, store, t.Name, o.Workspace)
		if !errors.Is(err, wsfs.ErrInUse) || time.Now().After(deadline) {
			return w, err
		}
		if o.Reader && daemonOf(o.Workspace.CacheDir) != nil {
			return w, err // it will not leave
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// initDefault makes the embedded store; another command may do so at the same moment.
func initDefault(ctx context.Context, store blobs.Store) error {
	if _, err := syncer.Init(ctx, store, syncer.InitOptions{}); err != nil && !errors.Is(err, blobs.ErrExist) {
		return fmt.Errorf("making the default store: %w", err)
	}
	return nil
}

// explain adds to an error what the user can do.
func explain(t Target, cacheDir string, err error) error {
	switch {
	case errors.Is(err, syncer.ErrNotInitialised):
		return NotFoundf("store %s is not initialised; do that with: wsctl init '%s'", t.Store, t.Store)
	case errors.Is(err, blobs.ErrNoStore):
		return NotFoundf("%v; create it with: wsctl init '%s'", err, t.Store)
	case errors.Is(err, syncer.ErrNoWorkspace):
		return NotFoundf("store %s has no workspace %q; create it with: wsctl init '%s', or mount with --create", t.Store, t.Name, t)
	case errors.Is(err, wsfs.ErrNothingToRescue):
		return NotFoundf("workspace %s: no work on this host that another writer has overtaken: %v", t, err)
	case errors.Is(err, wsfs.ErrInUse):
		who := "another process"
		if l := daemonOf(cacheDir); l != nil {
			who = "process " + strconv.Itoa(l.PID)
			if l.Mount != "" {
				who += ", mounted on " + l.Mount
			}
		}
		return InUsef("workspace %s is in use on this host by %s (cache directory %s)", t, who, cacheDir)
	case errors.Is(err, syncer.ErrHeld):
		return fmt.Errorf("%w; choose: --read-only to follow it, --takeover to take it, or wait until it is unmounted there", err)
	case errors.Is(err, syncer.ErrFenced):
		return fmt.Errorf("%w; unsynced work of this host is kept in %s and is not dropped: move that directory aside (or use another --cache-dir) to go on from the other writer's commit, or use --read-only to follow it", err, cacheDir)
	case errors.Is(err, wsfs.ErrDamaged):
		return fmt.Errorf("workspace %s: %w; the damaged state is kept in %s: move it away to go on from the last commit", t, err, cacheDir)
	}
	if t.Name == "" {
		return fmt.Errorf("store %s: %w", t.Store, err)
	}
	return fmt.Errorf("workspace %s: %w", t, err)
}

func daemonOf(cacheDir string) *Live {
	all, err := ListLive()
	if err != nil {
		return nil // only a message gets poorer
	}
	for i, l := range all {
		if l.CacheDir == cacheDir && !l.ReadOnly {
			return &all[i]
		}
	}
	return nil
}

// Close commits and closes. Work that could not be committed before ctx ended stays in the cache directory, and the
// error is wsfs.ErrUnsynced.
func (o *Opened) Close(ctx context.Context) error {
	err := o.Workspace.Close(ctx)
	switch {
	case errors.Is(err, wsfs.ErrUnsynced) && errors.Is(err, syncer.ErrFenced):
		err = fmt.Errorf("%w; `wsctl rescue %s NEW-NAME` makes it a workspace of its own", err, o.Name())
	case errors.Is(err, wsfs.ErrUnsynced):
		err = fmt.Errorf("%w; the next mount or command on this host goes on with it", err)
	}
	return err
}

// Socket is the control socket of a daemon: "sock" in its cache directory, which a reader shares with others.
func Socket(cacheDir string, readOnly bool) string {
	name := "sock"
	if readOnly {
		name = "sock-" + strconv.Itoa(os.Getpid())
	}
	return filepath.Join(cacheDir, name)
}

// ExplainStore is what a command that needs no workspace says about a store that cannot be opened; nil stays nil.
func ExplainStore(store string, err error) error {
	if err == nil {
		return nil
	}
	return explain(Target{Store: store}, "", err)
}
