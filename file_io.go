package wsfs

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"wsfs/metadata"
)

func inoValue(ino Ino) []byte { return binary.BigEndian.AppendUint64(nil, uint64(ino)) }

func isErrno(err error, e syscall.Errno) bool { return errors.Is(err, e) }

// futimens is utimensat(2) on a descriptor, which golang.org/x/sys has only for paths.
func futimens(fd int, ts *[2]unix.Timespec) error {
	_, _, e := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(ts)), 0, 0, 0)
	if e != 0 {
		return e
	}
	return nil
}

// readAt reads up to len(p) bytes; fewer only at the end of the file.
func (f *file) readAt(ctx context.Context, p []byte, off int64) (int, error) {
	f.mu.RLock()
	for f.form == formUnknown {
		f.mu.RUnlock()
		f.mu.Lock()
		err := f.load(ctx)
		f.mu.Unlock()
		if err != nil {
			return 0, err
		}
		f.mu.RLock()
	}
	defer f.mu.RUnlock()
	switch f.form {
	case formSmall:
		if off >= int64(len(f.data)) {
			return 0, nil
		}
		return copy(p, f.data[off:]), nil
	case formStaged:
		n, err := f.stg.ReadAt(p, off)
		if err != nil && err != io.EOF {
			return n, f.w.diskFault("read staging file", err)
		}
		return n, nil
	}
	return f.readChunks(ctx, p, off)
}

// readChunks reads clean content. f.mu is held.
func (f *file) readChunks(ctx context.Context, p []byte, off int64) (int, error) {
	if off >= f.size {
		return 0, nil
	}
	p = p[:min(int64(len(p)), f.size-off)]
	clear(p)
	end := off + int64(len(p))
	for i := f.firstChunk(off); i < len(f.chunks) && f.chunks[i].Off < end; i++ {
		e := &f.chunks[i]
		b, err := f.w.reader.Chunk(ctx, e.Ref)
		if err != nil {
			return 0, f.w.storeFault("read content", err)
		}
		part := b[e.Skip : int64(e.Skip)+e.Len]
		if e.Off < off {
			copy(p, part[off-e.Off:])
		} else {
			copy(p[e.Off-off:], part)
		}
	}
	return len(p), nil
}

// firstChunk is the index of the first extent that ends after off.
func (f *file) firstChunk(off int64) int {
	lo, hi := 0, len(f.chunks)
	for lo < hi {
		mid := (lo + hi) / 2
		if f.chunks[mid].Off+f.chunks[mid].Len > off {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// writeAt writes p at off, or at the end of the file if appending.
func (f *file) writeAt(ctx context.Context, p []byte, off int64, appending bool) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.load(ctx); err != nil {
		return 0, err
	}
	size, err := f.length()
	if err != nil {
		return 0, f.w.diskFault("size of staging file", err)
	}
	if appending {
		off = size
	}
	end := off + int64(len(p))
	if off < 0 || end > maxFileSize {
		return 0, syscall.EFBIG
	}
	if err := f.writableFor(ctx, max(end, size), off >= size+pageSize); err != nil {
		return 0, err
	}
	if f.form == formStaged {
		if err := writeFull(f.stg, p, off); err != nil {
			return 0, f.w.diskFault("write staging file", err)
		}
	} else {
		f.grow(end)
		copy(f.data[off:], p)
	}
	return len(p), f.recordContent(true)
}

// grow makes small content at least n bytes long, zero-filled.
func (f *file) grow(n int64) {
	if old := int64(len(f.data)); n > old {
		if n > int64(cap(f.data)) {
			bigger := make([]byte, old, max(n, min(2*int64(cap(f.data)), smallMax)))
			copy(bigger, f.data)
			f.data = bigger
		}
		f.data = f.data[:n]
		clear(f.data[old:])
	}
}

// truncate sets the file's size.
func (f *file) truncate(ctx context.Context, size int64) error {
	if size < 0 || size > maxFileSize {
		return syscall.EFBIG
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.load(ctx); err != nil {
		return err
	}
	old, err := f.length()
	if err != nil {
		return f.w.diskFault("size of staging file", err)
	}
	switch {
	case size == 0 && !f.hasBacked():
		f.empty(old > smallMax)
	case f.form == formChunks && size < old && size > smallMax:
		if err := f.hydrate(ctx, size); err != nil {
			return err
		}
	case size != old:
		if err := f.writableFor(ctx, size, size >= old+pageSize); err != nil {
			return err
		}
	default:
		return f.recordTimes()
	}
	return f.resize(size)
}

// recordTimes moves the times of a truncate that changes nothing else, without making clean content dirty.
func (f *file) recordTimes() error {
	w := f.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refresh(f.n)
	now := w.now()
	f.n.entryChanged(now)
	f.stampTimes()
	o := w.begin()
	o.save(f.n)
	return o.commit()
}

// hasBacked tells whether a kernel holds the staging file.
func (f *file) hasBacked() bool {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	return f.backed > 0
}

// empty drops all content; a staging file is kept for reuse where the next content will likely be large again.
func (f *file) empty(large bool) {
	if f.form == formStaged && !large {
		f.stg.Close() // the record that follows dooms its number
		f.stg, f.number = nil, 0
	}
	if f.form != formStaged || !large {
		f.form = formSmall
	}
	f.data, f.chunks, f.journaled = nil, nil, 0
}

// resize brings the content, which is writable, to exactly size bytes and records it.
func (f *file) resize(size int64) error {
	if f.form == formStaged {
		if err := f.dirtyStaging(); err != nil {
			return err
		}
		if err := f.stg.Truncate(size); err != nil {
			return f.w.diskFault("size staging file", err)
		}
		return f.recordContent(true)
	}
	if size < int64(len(f.data)) {
		f.data = f.data[:size:size]
	}
	f.grow(size)
	return f.recordContent(true)
}

// allocate does what fallocate(2) does with the modes a staging file supports.
func (f *file) allocate(ctx context.Context, mode uint32, off, n int64) error {
	const known = unix.FALLOC_FL_KEEP_SIZE | unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_ZERO_RANGE
	switch {
	case off < 0 || n <= 0:
		return syscall.EINVAL
	case mode&^known != 0:
		return syscall.EOPNOTSUPP
	case off+n > maxFileSize:
		return syscall.EFBIG
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.load(ctx); err != nil {
		return err
	}
	if err := f.stage(ctx); err != nil {
		return err
	}
	if err := f.dirtyStaging(); err != nil {
		return err
	}
	var err error
	if cerr := control(f.stg, func(fd int) { err = unix.Fallocate(fd, mode, off, n) }); cerr != nil {
		err = cerr
	}
	if err != nil {
		if isErrno(err, syscall.EOPNOTSUPP) {
			return syscall.EOPNOTSUPP
		}
		return f.w.diskFault("allocate in staging file", err)
	}
	return f.recordContent(true)
}

// stage brings the content to a staging file, whatever its form. f.mu is held for writing.
func (f *file) stage(ctx context.Context) error {
	switch f.form {
	case formSmall:
		return f.spill()
	case formChunks:
		return f.hydrate(ctx, f.size)
	}
	return nil
}

// seek finds the next data or hole, as lseek(2) with SEEK_DATA and SEEK_HOLE.
func (f *file) seek(ctx context.Context, off int64, whence int) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.load(ctx); err != nil {
		return 0, err
	}
	size, err := f.length()
	if err != nil {
		return 0, f.w.diskFault("size of staging file", err)
	}
	if off < 0 || off >= size {
		return 0, syscall.ENXIO
	}
	switch f.form {
	case formSmall:
		if whence == unix.SEEK_DATA {
			return off, nil
		}
		return size, nil
	case formStaged:
		var pos int64
		if cerr := control(f.stg, func(fd int) { pos, err = unix.Seek(fd, off, whence) }); cerr != nil {
			err = cerr
		}
		if isErrno(err, syscall.ENXIO) {
			return 0, syscall.ENXIO
		}
		if err != nil {
			return 0, f.w.diskFault("seek in staging file", err)
		}
		return pos, nil
	}
	return seekChunks(f.chunks, f.firstChunk(off), off, size, whence)
}

func seekChunks(chunks []metadata.Extent, i int, off, size int64, whence int) (int64, error) {
	if whence == unix.SEEK_DATA {
		if i == len(chunks) {
			return 0, syscall.ENXIO
		}
		return max(off, chunks[i].Off), nil
	}
	for ; i < len(chunks) && chunks[i].Off <= off; i++ {
		off = chunks[i].Off + chunks[i].Len
	}
	return min(off, size), nil
}
