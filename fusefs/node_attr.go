package fusefs

import (
	"context"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"wsfs"
)

// liveAttrSec is how long the kernel believes the attributes of a file it may itself change through a mapping, seconds.
const liveAttrSec = 1

// GetAttr answers GETATTR. It must succeed for any inode the kernel refers to, linked or not.
func (f *fileSystem) GetAttr(cancel <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	return f.do(cancel, &in.InHeader, func(ctx context.Context) error {
		a, err := f.core.GetAttr(ctx, wsfs.Ino(in.NodeId))
		if err != nil {
			return gone(err)
		}
		if out.AttrValid, out.AttrValidNsec = f.attrSec, f.attrNsec; f.tell(&a) {
			out.AttrValid, out.AttrValidNsec = min(f.attrSec, liveAttrSec), 0
		}
		fillAttr(&out.Attr, &a)
		return nil
	})
}

// Statx answers STATX, which the kernel sends only where a program asks for the time of birth.
func (f *fileSystem) Statx(cancel <-chan struct{}, in *fuse.StatxIn, out *fuse.StatxOut) fuse.Status {
	return f.do(cancel, &in.InHeader, func(ctx context.Context) error {
		a, err := f.core.GetAttr(ctx, wsfs.Ino(in.NodeId))
		if err != nil {
			return gone(err)
		}
		out.AttrValid, out.AttrValidNsec = f.attrSec, f.attrNsec
		if f.tell(&a) {
			out.AttrValid, out.AttrValidNsec = min(f.attrSec, liveAttrSec), 0
		}
		fillStatx(&out.Statx, &a)
		return nil
	})
}

func fillStatx(out *fuse.Statx, a *wsfs.Attr) {
	out.Mask = unix.STATX_BASIC_STATS | unix.STATX_BTIME
	out.Blksize, out.Nlink, out.Uid, out.Gid, out.Mode = blockSize, a.Nlink, a.UID, a.GID, uint16(a.Mode)
	out.Ino, out.Size, out.Blocks = uint64(a.Ino), uint64(a.Size), uint64(a.Blocks)
	out.Atime.Sec, out.Atime.Nsec = seconds(a.Atime)
	out.Mtime.Sec, out.Mtime.Nsec = seconds(a.Mtime)
	out.Ctime.Sec, out.Ctime.Nsec = seconds(a.Ctime)
	out.Btime.Sec, out.Btime.Nsec = seconds(a.Btime)
	// The protocol has the kernel's own 32-bit device numbers in GETATTR (12 bits of major over 20 of minor, the low 8
	// of the minor first) and a pair here.
	out.RdevMajor = a.Rdev & 0xfff00 >> 8
	out.RdevMinor = a.Rdev&0xff | a.Rdev>>12&0xfff00
}

// SetAttr answers SETATTR: chmod, chown, truncate, utimes, and in write-back mode the times the kernel kept.
func (f *fileSystem) SetAttr(cancel <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	return f.do(cancel, &in.InHeader, func(ctx context.Context) error {
		s := setAttr(in)
		if s.Mask&wsfs.SetSize != 0 && s.Size < 0 {
			return syscall.EFBIG
		}
		a, err := f.core.SetAttr(ctx, wsfs.Ino(in.NodeId), s)
		if err != nil {
			return gone(err)
		}
		f.fillAttrOut(out, &a)
		return nil
	})
}

// setAttr translates a change. A field the kernel does not name is left alone (UTIME_OMIT arrives as that).
func setAttr(in *fuse.SetAttrIn) wsfs.SetAttr {
	s := wsfs.SetAttr{
		Mode: in.Mode & 07777, UID: in.Uid, GID: in.Gid, Size: int64(in.Size),
		Atime: nanoseconds(in.Atime, in.Atimensec),
		Mtime: nanoseconds(in.Mtime, in.Mtimensec),
		Ctime: nanoseconds(in.Ctime, in.Ctimensec),
	}
	for _, b := range [...]struct {
		valid uint32
		mask  wsfs.SetMask
	}{
		{fuse.FATTR_MODE, wsfs.SetMode}, {fuse.FATTR_UID, wsfs.SetUID}, {fuse.FATTR_GID, wsfs.SetGID},
		{fuse.FATTR_SIZE, wsfs.SetSize}, {fuse.FATTR_CTIME, wsfs.SetCtime}, {fuse.FATTR_KILL_SUIDGID, wsfs.SetKillPriv},
	} {
		if in.Valid&b.valid != 0 {
			s.Mask |= b.mask
		}
	}
	s.Mask |= setTime(in.Valid, fuse.FATTR_ATIME, fuse.FATTR_ATIME_NOW, wsfs.SetAtime, wsfs.SetAtimeNow)
	s.Mask |= setTime(in.Valid, fuse.FATTR_MTIME, fuse.FATTR_MTIME_NOW, wsfs.SetMtime, wsfs.SetMtimeNow)
	return s
}

func setTime(valid, given, now uint32, set, setNow wsfs.SetMask) wsfs.SetMask {
	switch {
	case valid&given == 0:
		return 0
	case valid&now != 0:
		return setNow
	}
	return set
}

// StatFs answers STATFS.
func (f *fileSystem) StatFs(cancel <-chan struct{}, h *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	return f.do(cancel, h, func(ctx context.Context) error {
		s, err := f.core.Statfs(ctx)
		if err != nil {
			return err
		}
		const unit = 4096
		out.Bsize, out.Frsize, out.NameLen = unit, unit, maxName
		out.Blocks, out.Bfree, out.Bavail = s.Total/unit, s.Free/unit, s.Avail/unit
		out.Files, out.Ffree = s.Files, s.FreeFiles
		return nil
	})
}
