package fusefs

import (
	"context"
	"log/slog"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"wsfs"
)

const (
	maxName   = 255
	blockSize = 64 << 10 // st_blksize: programs that buffer then send requests of this size
)

// fileSystem answers requests; it is the fuse.RawFileSystem of a mount. It embeds go-fuse's defaults for what it leaves to
// the kernel: ACCESS (default_permissions) and file locks (local to the kernel) are ENOSYS.
type fileSystem struct {
	fuse.RawFileSystem

	core   core
	log    *slog.Logger
	kernel transport // set before the first request is served

	passthrough         bool
	writeback           bool
	readOnly            bool
	entrySec, attrSec   uint64 // timeouts, split as the protocol wants them
	entryNsec, attrNsec uint32
	onUnmount           func()

	requests                      requestCounts
	passthroughOpens, cachedOpens atomic.Uint64
	files                         fileTable
	inodes                        inodeTable
	sizes                         predictor
}

// newFileSystem makes a file system whose kernel (transport) the caller sets before serving.
func newFileSystem(c core, o Options, passthrough bool) *fileSystem {
	f := &fileSystem{
		RawFileSystem: fuse.NewDefaultRawFileSystem(),
		core:          c,
		log:           o.Log,
		passthrough:   passthrough,
		writeback:     !passthrough && !o.ReadOnly,
		readOnly:      o.ReadOnly,
	}
	f.entrySec, f.entryNsec = split(o.EntryTimeout)
	f.attrSec, f.attrNsec = split(o.AttrTimeout)
	return f
}

func split(d time.Duration) (sec uint64, nsec uint32) {
	return uint64(d / time.Second), uint32(d % time.Second)
}

// String names the file system in go-fuse's messages.
func (f *fileSystem) String() string { return "wsfs" }

// OnUnmount closes what the kernel never released: after an abort no RELEASE comes.
func (f *fileSystem) OnUnmount() {
	for _, file := range f.files.drain() {
		f.unsettle(file)
		if err := file.h.Close(); err != nil {
			f.log.Error("close a file left open at unmount", "inode", file.ino, "err", err)
		}
	}
	if f.onUnmount != nil {
		f.onUnmount()
	}
}

// entry fills in an answer that gives the kernel one reference to the inode of a, and takes it in the core.
func (f *fileSystem) entry(out *fuse.EntryOut, a *wsfs.Attr) {
	f.core.Retain(a.Ino, 1)
	f.fillEntry(out, a)
}

func (f *fileSystem) fillEntry(out *fuse.EntryOut, a *wsfs.Attr) {
	out.NodeId, out.Generation = uint64(a.Ino), 1
	out.EntryValid, out.EntryValidNsec = f.entrySec, f.entryNsec
	out.AttrValid, out.AttrValidNsec = f.attrSec, f.attrNsec
	f.tell(a)
	fillAttr(&out.Attr, a)
}

func (f *fileSystem) fillAttrOut(out *fuse.AttrOut, a *wsfs.Attr) {
	out.AttrValid, out.AttrValidNsec = f.attrSec, f.attrNsec
	f.tell(a)
	fillAttr(&out.Attr, a)
}

// tell remembers what the kernel is being told of an inode it may write behind our back; it returns whether that is one.
func (f *fileSystem) tell(a *wsfs.Attr) (live bool) {
	if !f.passthrough || !a.IsRegular() {
		return false
	}
	oi := f.inodes.look(a.Ino)
	if oi != nil {
		oi.told.Store(a.Mtime)
	}
	return oi != nil
}

func fillAttr(out *fuse.Attr, a *wsfs.Attr) {
	out.Ino, out.Size, out.Blocks = uint64(a.Ino), uint64(a.Size), uint64(a.Blocks)
	out.Atime, out.Atimensec = seconds(a.Atime)
	out.Mtime, out.Mtimensec = seconds(a.Mtime)
	out.Ctime, out.Ctimensec = seconds(a.Ctime)
	out.Mode, out.Nlink, out.Rdev, out.Blksize = a.Mode, a.Nlink, a.Rdev, blockSize
	out.Uid, out.Gid = a.UID, a.GID
}

// seconds splits nanoseconds since 1970, which may be negative, into whole seconds and a rest in [0, 1e9).
func seconds(ns int64) (sec uint64, nsec uint32) {
	s, r := ns/1e9, ns%1e9
	if r < 0 {
		s, r = s-1, r+1e9
	}
	return uint64(s), uint32(r)
}

func nanoseconds(sec uint64, nsec uint32) int64 { return int64(sec)*1e9 + int64(nsec) }

func owner(h *fuse.InHeader) wsfs.Owner { return wsfs.Owner{UID: h.Uid, GID: h.Gid} }

func checkName(name string) error {
	if len(name) > maxName {
		return syscall.ENAMETOOLONG
	}
	return nil
}

// killPriv takes set-user-ID and set-group-ID away from ino where it has them, as the kernel asked with a write or a
// truncation by an unprivileged process.
func (f *fileSystem) killPriv(ctx context.Context, ino wsfs.Ino) error {
	a, err := f.core.GetAttr(ctx, ino)
	if err != nil {
		return gone(err)
	}
	if !privileged(a.Mode) {
		return nil
	}
	_, err = f.core.SetAttr(ctx, ino, wsfs.SetAttr{Mask: wsfs.SetKillPriv})
	return gone(err)
}

func privileged(mode uint32) bool { return mode&(syscall.S_ISUID|syscall.S_ISGID) != 0 }
