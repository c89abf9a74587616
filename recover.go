package wsfs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"wsfs/metadata"
)

// recover brings records and staging files together after whatever ended the last process: it takes size and times of
// staged files from the files, deletes orphans, and removes staging files that no record names.
func (w *Workspace) recover(ctx context.Context) error {
	super, err := w.readSuper(ctx)
	if err != nil {
		return err
	}
	w.super = super
	owned, err := w.recoverStaged()
	if err != nil {
		return err
	}
	if err := w.recoverJournaled(); err != nil {
		return err
	}
	if err := w.recoverOrphans(ctx); err != nil {
		return err
	}
	numbers, err := w.staging.numbers()
	if err != nil {
		return fmt.Errorf("staging directory: %w", err)
	}
	for _, n := range numbers {
		if !owned[n] {
			if err := os.Remove(w.staging.path(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("staging directory: %w", err)
			}
		}
	}
	return nil
}

// recoverStaged looks at every staging file that a record names and returns their numbers.
func (w *Workspace) recoverStaged() (map[uint64]bool, error) {
	type owner struct {
		number uint64
		ino    Ino
	}
	var owners []owner
	err := w.live.ScanLocal([]byte{metadata.KeyStaging}, func(key, value []byte) error {
		ino, err := decodeIno(value)
		owners = append(owners, owner{binary.BigEndian.Uint64(key[1:]), ino})
		return err
	})
	if err != nil {
		return nil, err
	}
	owned := make(map[uint64]bool, len(owners))
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, own := range owners {
		n, err := w.localInode(own.ino)
		if err != nil {
			return nil, err
		}
		if n == nil || n.rec.Staging != own.number {
			o := w.begin()
			o.clean = true
			o.del(metadata.StagingKey(own.number))
			if err := o.commit(); err != nil {
				return nil, err
			}
			continue
		}
		owned[own.number] = true
		if err := w.recoverFile(n); err != nil {
			return nil, err
		}
	}
	return owned, nil
}

// recoverFile brings one record and its staging file together.
func (w *Workspace) recoverFile(n *inode) error {
	o := w.begin()
	f, err := w.staging.open(n.rec.Staging)
	if errors.Is(err, fs.ErrNotExist) && n.rec.Content != metadata.ContentStaged {
		o.clean = true // a lost local copy of clean content
		o.del(metadata.StagingKey(n.rec.Staging))
		n.rec.Staging = 0
		o.save(n)
		return o.commit()
	}
	if err != nil {
		return fmt.Errorf("inode %d: its content was in a staging file that cannot be opened: %w: %w", n.rec.Ino, ErrDamaged, err)
	}
	defer f.Close()
	st, err := stampOf(f)
	if err != nil {
		return fmt.Errorf("staging file %016x: %w", n.rec.Staging, err)
	}
	w.cleanCopies.Add(n.savedCopy)
	if n.rec.Content != metadata.ContentStaged {
		return nil
	}
	w.dirtyBytes.Add(n.savedDirty)
	if !n.rec.Live && st.size == n.rec.Size {
		return nil
	}
	if n.rec.Live && st.mtime != n.rec.Mtime {
		n.rec.Mtime, n.rec.Ctime = st.mtime, max(n.rec.Ctime, st.mtime)
	}
	n.rec.Live, n.rec.Size, n.rec.Alloc, n.rec.Version = false, st.size, st.blocks, w.nextVersion()
	o.save(n)
	return o.commit()
}

// recoverJournaled counts small content that waits for a commit. What was written and never synced before a power loss may
// be lost: such a file keeps its name and is empty.
func (w *Workspace) recoverJournaled() error {
	w.dirtyBytes.Add(w.live.ContentBytes())
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ino := range w.live.Lost() {
		n, err := w.localInode(ino)
		if err != nil {
			return err
		}
		o := w.begin()
		o.del(metadata.ContentKey(ino))
		if n != nil && n.rec.Content == metadata.ContentJournal {
			n.rec.Content, n.rec.Size, n.rec.Alloc, n.rec.Version = metadata.ContentNone, 0, 0, w.nextVersion()
			o.save(n)
		}
		if err := o.commit(); err != nil {
			return err
		}
	}
	return nil
}

func (w *Workspace) recoverOrphans(ctx context.Context) error {
	var orphans []Ino
	err := w.live.ScanLocal([]byte{metadata.KeyOrphan}, func(key, _ []byte) error {
		ino, err := metadata.ParseInoKey(key)
		orphans = append(orphans, ino)
		return err
	})
	if err != nil {
		return err
	}
	for _, ino := range orphans {
		if err := w.reap(ctx, ino); err != nil {
			return fmt.Errorf("delete orphan %d: %w", ino, err)
		}
	}
	return nil
}
