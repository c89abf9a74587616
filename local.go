package wsfs

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"wsfs/blobs"
	"wsfs/metadata"
	"wsfs/syncer"
)

// local is the workspace as its syncer sees it.
type local struct{ w *Workspace }

var _ syncer.Local = local{}

// Freeze fixes the state to be committed. Files that a kernel may be writing are looked at first, so that the records in
// the snapshot say what the staging files were at that moment.
func (l local) Freeze(ctx context.Context) (syncer.Frozen, error) {
	w := l.w
	fr := &frozen{w: w, stamps: map[uint64]syncer.Stamp{}, settled: map[Ino]uint64{}}
	w.mu.Lock()
	for f := range w.liveFiles {
		if w.refresh(f.n) {
			o := w.begin()
			o.save(f.n)
			if err := o.commit(); err != nil {
				w.mu.Unlock()
				return nil, err
			}
		}
		fr.stamps[f.number] = syncer.Stamp{Size: f.stamp.size, Mtime: f.stamp.mtime, Ctime: f.stamp.ctime}
		if s := f.settled; s != nil && s.Version == f.n.rec.Version {
			fr.settled[f.n.rec.Ino] = f.number
		}
	}
	wait := w.live.BeginSnapshot()
	w.frozen++
	w.mu.Unlock()
	snap, err := wait()
	if err != nil {
		w.thaw()
		return nil, err
	}
	fr.Snapshot = snap
	return fr, nil
}

func (w *Workspace) thaw() {
	w.mu.Lock()
	w.frozen--
	w.mu.Unlock()
	w.wakeHousekeeper()
}

// frozen is a snapshot of the overlay with what the live files were at that moment.
type frozen struct {
	*metadata.Snapshot
	w       *Workspace
	stamps  map[uint64]syncer.Stamp
	settled map[Ino]uint64
}

func (f *frozen) Stamp(number uint64) (syncer.Stamp, bool) {
	s, ok := f.stamps[number]
	return s, ok
}

func (f *frozen) Settled(ino metadata.Ino, number uint64) bool {
	n, ok := f.settled[ino]
	return ok && n == number
}

func (f *frozen) Close() {
	f.Snapshot.Close()
	f.w.thaw()
}

// OpenStaging opens a staging file for the syncer.
func (l local) OpenStaging(number uint64) (syncer.Staging, error) {
	f, err := os.Open(l.w.staging.path(number))
	if err != nil {
		return nil, fmt.Errorf("open staging file %016x: %w", number, err)
	}
	return stagedReader{f}, nil
}

type stagedReader struct{ *os.File }

func (s stagedReader) Stamp() (syncer.Stamp, error) {
	st, err := stampOf(s.File)
	return syncer.Stamp{Size: st.size, Mtime: st.mtime, Ctime: st.ctime}, err
}

func (s stagedReader) Data(off int64) (int64, int64, error) { return nextData(s.File, off) }

// Sync writes mapped pages back, which also write-protects them: the next store through a mapping moves the stamp.
func (s stagedReader) Sync() error {
	var err error
	if cerr := control(s.File, func(fd int) { err = unix.Fdatasync(fd) }); cerr != nil {
		err = cerr
	}
	return err
}

// settleBatch is how many files are settled in one hold of the lock.
const settleBatch = 256

// Settle makes what a durable commit contains clean, unless it changed since it was frozen.
func (l local) Settle(ctx context.Context, s syncer.Settlement) error {
	w := l.w
	w.live.SetBase(s.Tree)
	for i := 0; i < len(s.Files); i += settleBatch {
		if err := w.settleFiles(s.Files[i:min(i+settleBatch, len(s.Files))]); err != nil {
			return err
		}
	}
	if err := w.redirty(s.Unstable); err != nil {
		return err
	}
	if err := w.setPosition(&s.Commit); err != nil {
		return err
	}
	if err := w.live.Settle(s.Seq); err != nil {
		return fmt.Errorf("settle commit %d: %w", s.Commit.Number, err)
	}
	w.notifyCommit(&s.Commit)
	w.wakeHousekeeper()
	return nil
}

func (w *Workspace) settleFiles(files []syncer.SettledFile) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.begin()
	o.clean = true
	for i := range files {
		if err := w.settleFile(&o, &files[i]); err != nil {
			return err
		}
	}
	return o.commit()
}

// settleFile makes one file clean. w.mu is held.
func (w *Workspace) settleFile(o *op, s *syncer.SettledFile) error {
	n, err := w.localInode(s.Ino)
	if err != nil || n == nil || n.rec.Version != s.Version || !n.rec.Content.Local() {
		return err
	}
	if f := n.file; f != nil && f.writers > 0 {
		f.settled = s // it stays in its staging file; see Settled and writerGone
		return nil
	}
	if n.rec.Content == metadata.ContentJournal {
		o.del(metadata.ContentKey(s.Ino))
	}
	if n.rec.Staging != 0 && n.file == nil && n.rec.Size <= smallMax {
		o.del(metadata.StagingKey(n.rec.Staging))
		w.staging.doom(n.rec.Staging)
		n.rec.Staging = 0
	}
	settleRecord(&n.rec, s)
	o.save(n)
	return nil
}

// settleRecord makes a record that of committed content; a staging file it names is a clean local copy from here on.
func settleRecord(r *metadata.Inode, s *syncer.SettledFile) {
	r.Content, r.Inline, r.Ref, r.Size, r.Alloc, r.Live = s.Content, s.Inline, s.Ref, s.Size, s.Alloc, false
}

// localInode is inode without the committed tree: nil if the overlay does not have it. w.mu is held.
func (w *Workspace) localInode(ino Ino) (*inode, error) {
	if n := w.inodes[ino]; n != nil {
		return n, nil
	}
	v, _, err := w.live.GetLocal(metadata.InodeKey(ino))
	if err != nil || v == nil {
		return nil, err
	}
	rec, err := metadata.DecodeInode(ino, v)
	if err != nil {
		return nil, err
	}
	n := newInode(*rec)
	w.keep(n)
	return n, nil
}

// redirty keeps inodes whose content could not be committed in the journal.
func (w *Workspace) redirty(inos []Ino) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ino := range inos {
		n, err := w.localInode(ino)
		if err != nil {
			return err
		}
		if n == nil {
			continue
		}
		o := w.begin()
		o.save(n)
		if err := o.commit(); err != nil {
			return err
		}
	}
	return nil
}

// Locate finds a chunk that is known to be in the store.
func (l local) Locate(id blobs.ID) (blobs.Ref, bool, error) {
	v, _, err := l.w.live.GetLocal(metadata.IndexKey(id))
	if err != nil || v == nil {
		return blobs.Ref{}, false, err
	}
	ref, _, err := blobs.DecodeRef(v)
	return ref, err == nil, err
}

// Remember records chunks that are in the store.
func (l local) Remember(refs []blobs.Ref) error {
	muts := make([]metadata.Mutation, len(refs))
	for i, r := range refs {
		muts[i] = metadata.Mutation{Key: metadata.IndexKey(r.ID), Value: blobs.AppendRef(nil, r)}
	}
	return l.w.live.AppendClean(muts)
}

// Mark reads a small fact of the syncer.
func (l local) Mark(name string) (string, error) {
	v, _, err := l.w.live.GetLocal(metadata.LocalKey("mark." + name))
	return string(v), err
}

// SetMark keeps a small fact of the syncer.
func (l local) SetMark(name, value string) error {
	return l.w.live.AppendClean([]metadata.Mutation{{Key: metadata.LocalKey("mark." + name), Value: []byte(value)}})
}

// setPosition keeps the commit the overlay lies over.
func (w *Workspace) setPosition(c *syncer.Commit) error {
	b, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("encode position: %w", err)
	}
	return w.live.AppendClean([]metadata.Mutation{{Key: metadata.LocalKey("base"), Value: b}})
}

// position reads it; nil if there is none.
func (w *Workspace) position() (*syncer.Commit, error) {
	v, _, err := w.live.GetLocal(metadata.LocalKey("base"))
	if err != nil || v == nil {
		return nil, err
	}
	c := new(syncer.Commit)
	if err := json.Unmarshal(v, c); err != nil {
		return nil, fmt.Errorf("%w: base commit: %w", metadata.ErrDamaged, err)
	}
	return c, nil
}
