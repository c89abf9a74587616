package fusefs

import (
	"context"

	"github.com/hanwen/go-fuse/v2/fuse"

	"wsfs"
)

// OpenDir answers OPENDIR with ENOSYS: the kernel then opens directories without asking and caches their listings, until
// it changes the directory itself or is told of a change.
func (f *fileSystem) OpenDir(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	f.requests.count(in.Opcode)
	return fuse.ENOSYS
}

// ReleaseDir answers RELEASEDIR, which is not sent where OPENDIR is not.
func (f *fileSystem) ReleaseDir(in *fuse.ReleaseIn) { f.requests.count(in.Opcode) }

// FsyncDir answers FSYNCDIR: names are made durable together.
func (f *fileSystem) FsyncDir(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return f.do(cancel, &in.InHeader, func(ctx context.Context) error { return f.core.SyncLocal(ctx) })
}

// ReadDir answers READDIR.
func (f *fileSystem) ReadDir(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return f.list(cancel, in, func(_ context.Context, e wsfs.DirEntry) bool {
		return out.AddDirEntry(dirEntry(e))
	})
}

// ReadDirPlus answers READDIRPLUS: entries with attributes. An entry whose attributes cannot be had (deleted since), and
// "." and "..", carry node id 0: a name only, and no reference.
func (f *fileSystem) ReadDirPlus(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return f.list(cancel, in, func(ctx context.Context, e wsfs.DirEntry) bool {
		entry := out.AddDirLookupEntry(dirEntry(e))
		if entry == nil {
			return false
		}
		if e.Name == "." || e.Name == ".." {
			return true
		}
		f.core.Retain(e.Ino, 1) // before looking, so that it cannot vanish in between
		a, err := f.core.GetAttr(ctx, e.Ino)
		if err != nil {
			f.core.Forget(e.Ino, 1)
			return true
		}
		f.fillEntry(entry, &a)
		return true
	})
}

// list reads a directory from the cookie the kernel gives. Where some entries were given, an error waits for the next
// request, which starts after them and meets it again.
func (f *fileSystem) list(cancel <-chan struct{}, in *fuse.ReadIn, add func(context.Context, wsfs.DirEntry) bool) fuse.Status {
	return f.do(cancel, &in.InHeader, func(ctx context.Context) error {
		given := 0
		err := f.core.ReadDir(ctx, wsfs.Ino(in.NodeId), in.Offset, func(e wsfs.DirEntry) bool {
			if !add(ctx, e) {
				return false
			}
			given++
			return true
		})
		if given > 0 {
			return nil
		}
		return err
	})
}

func dirEntry(e wsfs.DirEntry) fuse.DirEntry {
	return fuse.DirEntry{Name: e.Name, Ino: uint64(e.Ino), Mode: uint32(e.Type) << 12, Off: e.Cookie}
}
