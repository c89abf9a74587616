package wsfs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"wsfs/blobs"
	"wsfs/metadata"
	"wsfs/syncer"
)

// Open opens a workspace of the pool in store. Errors match syncer.ErrNotInitialised, ErrNewerFormat, ErrNoWorkspace,
// ErrHeld, ErrFenced, the sentinels of package blobs, ErrInUse and ErrDamaged. With local state and an unreachable store
// it opens what is on this host and catches up later.
func Open(ctx context.Context, store blobs.Store, name string, o Options) (*Workspace, error) {
	w, err := newWorkspace(name, o)
	if err != nil {
		return nil, err
	}
	if err := w.open(ctx, store); err != nil {
		return nil, errors.Join(err, w.release())
	}
	return w, nil
}

func newWorkspace(name string, o Options) (*Workspace, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	if err := syncer.ValidName(name); err != nil {
		return nil, err
	}
	return &Workspace{name: name, o: o, log: o.Log, readOnly: o.ReadOnly, inodeLimit: inodeCacheLimit,
		inodes: map[Ino]*inode{}, holds: map[Ino]uint64{}, liveFiles: map[*file]struct{}{}, watchers: map[*Watcher]struct{}{},
		housework: make(chan struct{}, 1), version: uint64(time.Now().UnixNano())}, nil
}

func (w *Workspace) open(ctx context.Context, store blobs.Store) error {
	if err := w.openDirs(); err != nil {
		return err
	}
	// The local database and the store are opened at the same time.
	local := make(chan error, 1)
	go func() { local <- w.openLocal() }()
	head, err := w.openStore(ctx, store)
	if lerr := <-local; lerr != nil {
		return lerr
	}
	if err != nil && !errors.Is(err, blobs.ErrUnavailable) {
		return err
	}
	if err != nil || head == nil {
		if head, err = w.openOffline(store, err); err != nil {
			return err
		}
	}
	if err := w.openReader(store); err != nil {
		return err
	}
	run, stop := context.WithCancel(context.Background())
	w.stop = stop
	if w.readOnly {
		return w.startFollowing(run, head)
	}
	if err := w.adopt(ctx, head); err != nil {
		return err
	}
	return w.startWriting(ctx, run, head)
}

func (w *Workspace) openDirs() error {
	if w.readOnly {
		if err := os.MkdirAll(w.o.CacheDir, 0o700); err != nil {
			return fmt.Errorf("cache directory: %w", err)
		}
		dir, err := os.MkdirTemp(w.o.CacheDir, "reader-")
		if err != nil {
			return fmt.Errorf("cache directory: %w", err)
		}
		w.tempDir = dir
		return nil
	}
	if err := os.MkdirAll(w.o.CacheDir, 0o700); err != nil {
		return fmt.Errorf("cache directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(w.o.CacheDir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("cache directory: %w", err)
	}
	w.lock = f
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("%s: %w", w.o.CacheDir, ErrInUse)
	}
	return nil
}

// openLocal opens the live metadata and the staging files.
func (w *Workspace) openLocal() error {
	if w.readOnly {
		w.live = metadata.NewReadOnlyLive()
		return nil
	}
	live, err := metadata.OpenLive(filepath.Join(w.o.CacheDir, "meta"), metadata.LiveOptions{Log: w.log})
	if err != nil {
		return err
	}
	w.live = live
	if w.staging, err = openStaging(filepath.Join(w.o.CacheDir, "staging")); err != nil {
		return fmt.Errorf("staging directory: %w", err)
	}
	id, _, err := live.GetLocal(metadata.LocalKey("writer"))
	if err != nil {
		return err
	}
	if id == nil {
		id = []byte(rand.Text())
		if err := live.AppendClean([]metadata.Mutation{{Key: metadata.LocalKey("writer"), Value: id}}); err != nil {
			return err
		}
	}
	w.writerID = string(id)
	return nil
}

// openStore opens the pool and returns the workspace's head.
func (w *Workspace) openStore(ctx context.Context, store blobs.Store) (*syncer.Commit, error) {
	repo, err := syncer.OpenRepo(ctx, store, syncer.RepoOptions{Log: w.log})
	if err != nil {
		return nil, err
	}
	w.repo = repo
	head, err := repo.Head(ctx, w.name)
	if errors.Is(err, syncer.ErrNoWorkspace) && w.o.Create && !w.readOnly {
		head, err = repo.Create(ctx, w.name)
		if errors.Is(err, blobs.ErrExist) {
			head, err = repo.Head(ctx, w.name)
		}
	}
	return head, err
}

// openOffline goes on with what is on this host while the store cannot be reached.
func (w *Workspace) openOffline(store blobs.Store, cause error) (*syncer.Commit, error) {
	if w.readOnly {
		return nil, cause
	}
	pos, err := w.position()
	if err != nil {
		return nil, err
	}
	format, _, err := w.live.GetLocal(metadata.LocalKey("format"))
	if err != nil {
		return nil, err
	}
	if pos == nil || format == nil {
		return nil, cause
	}
	if w.repo, err = syncer.OfflineRepo(store, format, syncer.RepoOptions{Log: w.log}); err != nil {
		return nil, err
	}
	w.log.Warn("the store cannot be reached; working on what is on this host", "store", store.URL(), "err", cause)
	return pos, nil
}

func (w *Workspace) openReader(store blobs.Store) error {
	dir := w.o.CacheDir
	if w.tempDir != "" {
		dir = w.tempDir
	}
	if !blobs.OnThisHost(store) {
		packs, err := blobs.OpenPackCache(filepath.Join(dir, "packs"), w.o.CacheSize)
		if err != nil {
			return fmt.Errorf("pack cache: %w", err)
		}
		w.packs = packs
	}
	w.reader = w.repo.Reader(blobs.ReaderOptions{Cache: w.packs, Memory: chunkMemory})
	w.pages = metadata.NewPageCache(pageCacheBytes)
	return nil
}

func (w *Workspace) tree(c *syncer.Commit) *metadata.Tree {
	return syncer.OpenTree(c, w.reader, w.pages)
}

// adopt brings the live side onto the head found in the store.
func (w *Workspace) adopt(ctx context.Context, head *syncer.Commit) error {
	pos, what, err := w.standing(head)
	if err != nil {
		return err
	}
	switch what {
	case syncer.AdoptFenced:
		return &StrandedError{w.o.CacheDir, &syncer.FencedError{Workspace: w.name, Ours: pos.Number, Theirs: *head}}
	case syncer.AdoptReset, syncer.AdoptForeign:
		if pos != nil {
			if err := w.resetLocal(head); err != nil {
				return err
			}
		}
	}
	w.live.SetBase(w.tree(head))
	if err := w.keepFormat(head); err != nil {
		return err
	}
	return w.recover(ctx)
}

// standing tells which commit the live side lies over, nil if none, and what that means beside the head.
func (w *Workspace) standing(head *syncer.Commit) (*syncer.Commit, syncer.Adoption, error) {
	pos, err := w.position()
	if err != nil || pos == nil {
		return nil, syncer.AdoptForeign, err
	}
	dirty, err := w.live.Dirty()
	if err != nil {
		return nil, 0, err
	}
	return pos, syncer.Resume(head, syncer.Position{Number: pos.Number, Epoch: pos.Epoch, Nonce: pos.Nonce,
		Writer: w.writerID, Seq: w.live.LastSeq(), Dirty: dirty}), nil
}

func (w *Workspace) resetLocal(head *syncer.Commit) error {
	if err := w.live.Reset(head.Seq); err != nil {
		return err
	}
	numbers, err := w.staging.numbers()
	if err != nil {
		return fmt.Errorf("staging directory: %w", err)
	}
	for _, n := range numbers {
		if err := os.Remove(w.staging.path(n)); err != nil {
			return fmt.Errorf("staging directory: %w", err)
		}
	}
	return nil
}

// keepFormat records what the overlay lies over, and what it takes to open it without the store.
func (w *Workspace) keepFormat(head *syncer.Commit) error {
	if err := w.setPosition(head); err != nil {
		return err
	}
	b, err := w.repo.FormatBody()
	if err != nil {
		return err
	}
	return w.live.AppendClean([]metadata.Mutation{{Key: metadata.LocalKey("format"), Value: b}})
}

// startWriting takes the lease and starts the background work.
func (w *Workspace) startWriting(ctx, run context.Context, head *syncer.Commit) error {
	lease, err := w.repo.Acquire(ctx, w.name, syncer.LeaseOptions{Writer: w.writerID, Holder: w.holder(), PID: os.Getpid(),
		Takeover: w.o.Takeover, OnLost: func(by syncer.Holder) {
			w.log.Warn("the lease is in other hands", "holder", by.Holder, "host", by.Host, "pid", by.PID)
		}})
	if err != nil && !errors.Is(err, blobs.ErrUnavailable) {
		return err
	}
	if err == nil {
		w.lease = lease
	}
	v, err := w.readSuper(ctx)
	if err != nil {
		return err
	}
	w.super = v
	if err := w.staging.refill(); err != nil {
		return fmt.Errorf("staging directory: %w", err)
	}
	w.writer = syncer.NewWriter(w.repo, w.name, head, w.live.Base(), local{w}, w.lease, w.writerOptions())
	w.writer.OnFence(w.freezeFor)
	if w.o.Takeover {
		if err := w.writer.Takeover(ctx); err != nil {
			return err
		}
	}
	if dirty, err := w.live.Dirty(); err != nil {
		return err
	} else if dirty {
		w.writer.Touch()
	}
	w.running.Go(func() { w.writer.Run(run) })
	w.running.Go(func() { w.housekeep(run) })
	w.running.Go(func() { w.probeStore(run) })
	return nil
}

func (w *Workspace) writerOptions() syncer.WriterOptions {
	return syncer.WriterOptions{Writer: w.writerID, Quiet: w.o.CommitQuiet, Latest: w.o.CommitMax, Cache: w.packs,
		InlineMax: inlineMax, Log: w.log}
}

func (w *Workspace) readSuper(ctx context.Context) (metadata.Super, error) {
	v, ok, err := w.live.Get(ctx, metadata.SuperKey())
	if err != nil {
		return metadata.Super{}, fmt.Errorf("read superblock: %w", err)
	}
	if !ok {
		return metadata.Super{}, fmt.Errorf("no superblock: %w", metadata.ErrDamaged)
	}
	return metadata.DecodeSuper(v)
}
