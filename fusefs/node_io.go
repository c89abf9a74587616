package fusefs

import (
	"context"
	"io"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// readBytes is the result of a READ in the buffer the transport gave.
type readBytes struct{ b []byte }

var readPool = sync.Pool{New: func() any { return new(readBytes) }}

// Bytes returns what was read.
func (r *readBytes) Bytes([]byte) ([]byte, fuse.Status) { return r.b, fuse.OK }

// Size is the number of bytes read.
func (r *readBytes) Size() int { return len(r.b) }

// Done is called once, after the bytes were sent.
func (r *readBytes) Done() {
	r.b = nil
	readPool.Put(r)
}

// Read answers READ: of files in cached mode only.
func (f *fileSystem) Read(cancel <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	n := 0
	status := f.do(cancel, &in.InHeader, func(ctx context.Context) error {
		file, err := f.files.get(in.Fh)
		if err != nil {
			return err
		}
		n, err = file.h.ReadAt(ctx, buf, int64(in.Offset))
		if n > 0 || err == io.EOF {
			return nil // a later READ meets the error again
		}
		return err
	})
	if status != fuse.OK {
		return nil, status
	}
	r := readPool.Get().(*readBytes)
	r.b = buf[:n]
	return r, fuse.OK
}

// Writev answers WRITE where its data came in pieces, and hands single pieces to Write.
func (f *fileSystem) Writev(cancel <-chan struct{}, in *fuse.WriteIn, data [][]byte) (uint32, fuse.Status) {
	if len(data) == 1 {
		return f.Write(cancel, in, data[0])
	}
	return f.write(cancel, in, data)
}

// Write answers WRITE: of files in cached mode only.
func (f *fileSystem) Write(cancel <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	one := [1][]byte{data}
	return f.write(cancel, in, one[:])
}

func (f *fileSystem) write(cancel <-chan struct{}, in *fuse.WriteIn, data [][]byte) (uint32, fuse.Status) {
	var done int
	status := f.do(cancel, &in.InHeader, func(ctx context.Context) error {
		file, err := f.files.get(in.Fh)
		if err != nil {
			return err
		}
		if in.WriteFlags&fuse.WRITE_KILL_SUIDGID != 0 {
			if err := f.killPriv(ctx, file.ino); err != nil {
				return err
			}
		}
		done, err = file.write(ctx, data, int64(in.Offset))
		if done > 0 {
			return nil // a short write: the caller's next one meets the error
		}
		return err
	})
	return uint32(done), status
}

func (o *openFile) write(ctx context.Context, data [][]byte, off int64) (done int, err error) {
	for _, p := range data {
		n, err := o.h.WriteAt(ctx, p, off+int64(done))
		done += n
		if err != nil {
			return done, err
		}
		if n < len(p) {
			break
		}
	}
	if o.creator != 0 {
		for end, old := off+int64(done), o.end.Load(); end > old; old = o.end.Load() {
			if o.end.CompareAndSwap(old, end) {
				break
			}
		}
	}
	return done, nil
}

// Lseek answers LSEEK: SEEK_DATA and SEEK_HOLE; the kernel does the others.
func (f *fileSystem) Lseek(cancel <-chan struct{}, in *fuse.LseekIn, out *fuse.LseekOut) fuse.Status {
	return f.do(cancel, &in.InHeader, func(ctx context.Context) error {
		file, err := f.files.get(in.Fh)
		if err != nil {
			return err
		}
		if in.Whence != unix.SEEK_DATA && in.Whence != unix.SEEK_HOLE {
			return syscall.EINVAL
		}
		at, err := file.h.Seek(ctx, int64(in.Offset), int(in.Whence))
		out.Offset = uint64(at)
		return err
	})
}

// Fallocate answers FALLOCATE, in both io modes.
func (f *fileSystem) Fallocate(cancel <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	return f.do(cancel, &in.InHeader, func(ctx context.Context) error {
		file, err := f.files.get(in.Fh)
		if err != nil {
			return err
		}
		if off, n := int64(in.Offset), int64(in.Length); off < 0 || n <= 0 || off+n < 0 {
			return syscall.EINVAL
		}
		return file.h.Allocate(ctx, in.Mode, int64(in.Offset), int64(in.Length))
	})
}

// CopyFileRange answers COPY_FILE_RANGE, in both io modes. The answer has 32 bits, so one request copies less than 4 GiB.
func (f *fileSystem) CopyFileRange(cancel <-chan struct{}, in *fuse.CopyFileRangeIn) (uint32, fuse.Status) {
	const most = 1<<32 - 1<<16
	var done int64
	status := f.do(cancel, &in.InHeader, func(ctx context.Context) error {
		src, err := f.files.get(in.FhIn)
		if err != nil {
			return err
		}
		dst, err := f.files.get(in.FhOut)
		if err != nil {
			return err
		}
		if in.Flags != 0 {
			return syscall.EINVAL
		}
		n := int64(min(in.Len, most))
		done, err = f.core.CopyRange(ctx, src.h, int64(in.OffIn), dst.h, int64(in.OffOut), n)
		if done > 0 {
			return nil
		}
		return err
	})
	return uint32(done), status
}
