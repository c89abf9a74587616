package syncer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"

	"wsfs/blobs"
	"wsfs/metadata"
)

// How files are read while they may be written.
//
// A frozen state has, for every file the kernel may write to by itself (live), the stamp of its staging file. Such a
// file is first synced, which makes every later store through a mapping move the stamp again, then read. When all files
// are read, the stamps are compared with the frozen ones: where nothing moved, the content is what it was at the
// freeze, for all files at once. If something moved the state is dropped and frozen again; what was read of files that
// stay put is kept. In the last try the files that moved keep the content of the base tree, and stay dirty.
//
// The kernel may stamp two writes with the same time if they are less than a tick apart. So a file whose stamp is
// younger than that is not read before the stamp is old enough for a later write to show.
//
// A staged file that is not live should not change at all; if it does it was reopened, and the same rule is followed
// with the stamp from before it was read.

//
// A background commit does not even begin to read a large file that was written a moment ago: reading it would take long
// enough for the next write to undo the work, and take the disk and the processor from the writer. Such a busy file stays
// dirty until it has been quiet for WriterOptions.Quiet, or until somebody asks for a commit.

// busySize is the size from which a file that is being written is busy, bytes.
const busySize = 8 << 20

// commitRun is one try of a commit, from the freeze to the tree.
type commitRun struct {
	w       *Writer
	packer  *blobs.Packer
	patient bool // somebody waits for this commit: busy files are tried too

	frozen  Frozen
	plan    *plan
	before  map[metadata.Ino]fileState // files read in the round before, if there was one
	record  []byte                     // scratch
	tree    *metadata.Tree
	applied metadata.ApplyStats

	indexed bool  // the pool's chunk indexes were waited for
	files   int64 // files read
	read    atomic.Int64

	mu    sync.Mutex // guards fresh
	fresh map[blobs.ID]blobs.Ref
}

func (w *Writer) newRun(patient bool) *commitRun {
	r := &commitRun{w: w, patient: patient, fresh: make(map[blobs.ID]blobs.Ref)}
	r.packer = blobs.NewPacker(w.repo.store, blobs.PackerOptions{
		Target: w.o.PackTarget, Uploads: w.o.Uploads, Cache: w.o.Cache, OnUploaded: w.uploaded,
	})
	return r
}

// close ends the uploads of a run that failed, and gives the frozen state back. No call to the live side is under way
// when it returns.
func (r *commitRun) close() {
	r.packer.Close()
	r.thaw()
}

func (r *commitRun) thaw() {
	if r.frozen != nil {
		r.frozen.Close()
		r.frozen = nil
	}
}

// uploaded remembers the chunks of a durable pack.
func (w *Writer) uploaded(pack blobs.PackID, entries []blobs.PackEntry) {
	var refs []blobs.Ref
	for _, e := range entries {
		if e.Kind == blobs.KindData {
			refs = append(refs, blobs.Ref{ID: e.ID, Raw: e.Raw,
				Locator: blobs.Locator{Pack: pack, Offset: e.Offset, Length: e.Length}})
		}
	}
	if len(refs) == 0 {
		return
	}
	w.unindexed.Lock()
	for _, ref := range refs {
		w.unindexed.refs[ref.ID] = ref
	}
	w.unindexed.Unlock()
	if err := w.local.Remember(refs); err != nil { // costs an upload later, not this commit
		w.log.Warn("uploaded chunks could not be remembered", "workspace", w.name, "error", err)
	}
}

// prepare freezes the live side and reads its files, until all were at rest or the tries are used up.
func (r *commitRun) prepare(ctx context.Context) error {
	wait := r.w.o.StablePause
	for try := 1; ; try++ {
		if err := r.freeze(ctx); err != nil || r.plan.empty() {
			return err
		}
		if err := r.readFiles(ctx); err != nil {
			return fmt.Errorf("committing %q: %w", r.w.name, err)
		}
		moved, err := r.findMoved()
		if err != nil {
			return err
		}
		if moved == 0 {
			return r.keepMoved(ctx)
		}
		if try == r.w.o.StableTries {
			return r.keepMoved(ctx)
		}
		r.keepRead()
		r.thaw()
		if err := pause(ctx, r.w.o.Clock, wait); err != nil {
			return err
		}
		wait *= 2
	}
}

// freeze takes a frozen state and plans it. Before a big commit the pool's chunk indexes are loaded, and if that took
// time the state is taken again.
func (r *commitRun) freeze(ctx context.Context) error {
	for {
		r.thaw()
		frozen, err := r.w.local.Freeze(ctx)
		if err != nil {
			return fmt.Errorf("freezing %q: %w", r.w.name, err)
		}
		r.frozen = frozen
		if err := r.scan(ctx); err != nil {
			return fmt.Errorf("planning a commit of %q: %w", r.w.name, err)
		}
		r.w.total.Store(r.plan.bytes)
		r.w.done.Store(0)
		r.files = 0
		r.read.Store(0)
		if r.indexed || r.plan.bytes < r.w.o.BigCommit {
			return nil
		}
		r.indexed = true
		if !r.w.awaitIndexes(ctx) {
			return nil
		}
	}
}

// keepRead saves what was read of files that did not move, for the next round.
func (r *commitRun) keepRead() {
	r.before = make(map[metadata.Ino]fileState)
	for _, f := range r.plan.files {
		if !f.moved && !f.reuse && !f.busy {
			r.before[f.Ino] = f
		}
	}
}

// keepMoved gives the files that moved or are busy the content of the base tree.
func (r *commitRun) keepMoved(ctx context.Context) error {
	for i := range r.plan.files {
		f := &r.plan.files[i]
		if !f.moved && !f.busy {
			continue
		}
		old, err := r.baseInode(ctx, f.Ino)
		if err != nil {
			return err
		}
		f.unstable, f.mtime = true, 0
		if err := r.keepBase(ctx, f, old); err != nil {
			return err
		}
		r.plan.unstable = append(r.plan.unstable, f.Ino)
		if f.busy {
			continue
		}
		r.w.log.Warn("a file kept changing and stays as it was in the last commit", "workspace", r.w.name,
			"inode", uint64(f.Ino), "staging", f.staging)
	}
	return nil
}

// findMoved compares every staging file that counts with its stamp, whether it was read or its content reused, and
// counts those that moved.
func (r *commitRun) findMoved() (moved int, err error) {
	for i := range r.plan.files {
		f := &r.plan.files[i]
		if f.staging == 0 || f.busy || f.reuse && !f.live {
			continue
		}
		if !f.moved {
			if f.moved, err = r.isMoved(f); err != nil {
				return 0, err
			}
		}
		if f.moved {
			moved++
		}
	}
	return moved, nil
}

func (r *commitRun) isMoved(f *fileState) (bool, error) {
	s, err := r.w.local.OpenStaging(f.staging)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil // dropped since: the file was deleted or replaced
	}
	if err != nil {
		return false, fmt.Errorf("opening staging file %d of inode %d: %w", f.staging, f.Ino, err)
	}
	stamp, err := s.Stamp()
	if err := errors.Join(err, s.Close()); err != nil {
		return false, fmt.Errorf("staging file %d of inode %d: %w", f.staging, f.Ino, err)
	}
	return stamp != f.Stamp, nil
}

type readJob struct {
	file    *fileState
	content []byte // from the journal
}

// readFiles reads and chunks every file of the plan, in inode order, so that files written together lie together in
// the packs. Only this goroutine touches the frozen state.
func (r *commitRun) readFiles(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	jobs := make(chan readJob)
	var workers sync.WaitGroup
	for range min(r.w.o.Readers, len(r.plan.files)) {
		workers.Go(func() {
			c := &cutter{run: r, chunker: blobs.NewChunker(r.w.repo.format.Polynomial)}
			for j := range jobs {
				if err := c.read(ctx, j); err != nil && ctx.Err() == nil {
					cancel(fmt.Errorf("storing inode %d: %w", j.file.Ino, err))
				}
			}
		})
	}
	for i := range r.plan.files {
		if err := r.feed(ctx, jobs, &r.plan.files[i]); err != nil {
			cancel(err)
			break
		}
	}
	close(jobs)
	workers.Wait()
	return context.Cause(ctx)
}

func (r *commitRun) feed(ctx context.Context, jobs chan<- readJob, f *fileState) error {
	if f.reuse || f.busy {
		return nil
	}
	r.files++
	j := readJob{file: f}
	if f.staging == 0 && !r.readBefore(f) {
		content, err := r.frozen.Content(f.Ino)
		if err != nil {
			return fmt.Errorf("reading the content of inode %d: %w", f.Ino, err)
		}
		if int64(len(content)) != f.Size {
			return fmt.Errorf("inode %d: %d bytes of content, its record says %d", f.Ino, len(content), f.Size)
		}
		j.content = content
	} else if f.staging == 0 {
		return nil
	}
	select {
	case jobs <- j:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// readBefore takes over what the round before read of a file that is still the same.
func (r *commitRun) readBefore(f *fileState) bool {
	b, ok := r.before[f.Ino]
	if !ok || b.Version != f.Version || b.staging != f.staging || b.Stamp != f.Stamp || b.live != f.live {
		return false
	}
	*f = b
	return true
}
