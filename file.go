package wsfs

import (
	"context"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"wsfs/metadata"
	"wsfs/syncer"
)

const (
	// smallMax is the largest content kept in memory and in the journal instead of a staging file, bytes.
	smallMax = 128 << 10
	// inlineMax is the largest content kept in the inode record, bytes; the syncer uses the same.
	inlineMax = 512
	// hydrateMax is the largest clean file that an open for writing brings to a staging file at once so that the
	// kernel can write it; larger ones wait for the first write.
	hydrateMax = 256 << 20
	// maxFileSize is the largest file, bytes; ext4 has 16 TiB.
	maxFileSize = 1<<44 - 1
	pageSize    = 4096
)

// form is how an open file's content is held.
type form uint8

const (
	formUnknown form = iota // not loaded
	formSmall               // in data, no page of it a hole
	formStaged              // in a staging file, whole
	formChunks              // in the store, as chunks lists it; gaps are holes
)

// file is the content of an inode that somebody has open. Content moves between forms only with mu held; the inode
// record follows in the same critical section, so the journal always tells where the content is.
type file struct {
	w *Workspace
	n *inode

	mu        sync.RWMutex // guards the content; before w.mu
	form      form
	data      []byte            // formSmall
	stg       *os.File          // formStaged
	number    uint64            // formStaged: the staging file's number
	chunks    []metadata.Extent // formChunks, by offset
	size      int64             // formChunks: the file's size
	journaled int64             // formSmall: bytes put into the journal so far

	// under w.mu
	opens    int
	backed   int  // handles whose kernel file is the staging file
	writers  int  // of those, opened for writing
	linkable bool // made by Tmpfile, may still be given a name
	stamp    stamp
	// unsaved: the record took something from the staging file that the journal does not have yet.
	unsaved bool
	settled *syncer.SettledFile // what the last commit stored of the staging file as of its Stamp
}

// acquire returns the inode's file, opened once more. w.mu is held.
func (w *Workspace) acquire(n *inode) *file {
	if n.file == nil {
		n.file = &file{w: w, n: n}
	}
	n.file.opens++
	return n.file
}

// load brings the content into one of the forms. f.mu is held for writing.
func (f *file) load(ctx context.Context) error {
	if f.form != formUnknown {
		return nil
	}
	f.w.mu.Lock()
	rec := f.n.rec
	f.w.mu.Unlock()
	if rec.Staging != 0 {
		err := f.loadStaging(&rec)
		if err == nil || rec.Content == metadata.ContentStaged {
			return err
		}
		f.w.log.Warn("local copy lost; reading from the store", "ino", rec.Ino, "err", err)
	}
	switch rec.Content {
	case metadata.ContentInline:
		f.data, f.form = append([]byte(nil), rec.Inline...), formSmall
	case metadata.ContentJournal:
		data, err := f.w.live.Content(rec.Ino)
		if err != nil {
			return f.w.localFault(err)
		}
		f.data, f.form = data, formSmall
	default:
		if rec.Size == 0 {
			f.data, f.form = nil, formSmall
			return nil
		}
		chunks, err := f.w.extents(ctx, &rec)
		if err != nil {
			return f.w.storeFault("read extents", err)
		}
		f.chunks, f.size, f.form = chunks, rec.Size, formChunks
	}
	return nil
}

func (f *file) loadNow(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.load(ctx)
}

func (f *file) loadStaging(rec *metadata.Inode) error {
	stg, err := f.w.staging.open(rec.Staging)
	if err != nil {
		return f.w.localFault(fmt.Errorf("inode %d: open staging file: %w", rec.Ino, err))
	}
	st, err := stampOf(stg)
	if err != nil {
		stg.Close()
		return f.w.localFault(err)
	}
	f.stg, f.number, f.form = stg, rec.Staging, formStaged
	f.w.mu.Lock()
	f.stamp = st
	f.w.mu.Unlock()
	return nil
}

// extents lists where clean content is.
func (w *Workspace) extents(ctx context.Context, rec *metadata.Inode) ([]metadata.Extent, error) {
	switch rec.Content {
	case metadata.ContentOne:
		return []metadata.Extent{{Len: rec.Size, Ref: rec.Ref}}, nil
	case metadata.ContentExtents:
	default:
		return nil, nil
	}
	var out []metadata.Extent
	prefix := metadata.ExtentPrefix(rec.Ino)
	err := w.live.Scan(ctx, prefix, metadata.PrefixEnd(prefix), func(key, value []byte) error {
		_, off, err := metadata.ParseExtentKey(key)
		if err != nil {
			return err
		}
		e, err := metadata.DecodeExtent(off, value)
		if err == nil {
			out = append(out, e)
		}
		return err
	})
	return out, err
}

// length is the file's size. f.mu is held.
func (f *file) length() (int64, error) {
	switch f.form {
	case formSmall:
		return int64(len(f.data)), nil
	case formStaged:
		st, err := stampOf(f.stg)
		return st.size, err
	}
	return f.size, nil
}

// writableFor makes the content one that can be written up to end in place: small, or staged and marked dirty. gap tells
// that a page-sized hole would come to be. f.mu is held for writing.
func (f *file) writableFor(ctx context.Context, end int64, gap bool) error {
	small := end <= smallMax && !gap
	switch {
	case f.form == formSmall && small && f.journaled+end <= 4*end+64<<10:
		return nil
	case f.form == formSmall:
		return f.spill()
	case f.form == formChunks && small && f.size <= smallMax && f.solid():
		return f.loadSmall(ctx)
	case f.form == formChunks:
		return f.hydrate(ctx, f.size)
	}
	return f.dirtyStaging()
}

// solid tells that the chunks leave no hole.
func (f *file) solid() bool {
	at := int64(0)
	for _, e := range f.chunks {
		if e.Off != at {
			return false
		}
		at += e.Len
	}
	return at == f.size
}

func (f *file) loadSmall(ctx context.Context) error {
	data := make([]byte, f.size)
	if _, err := f.readChunks(ctx, data, 0); err != nil {
		return err
	}
	f.data, f.form, f.chunks, f.journaled = data, formSmall, nil, 0
	return nil
}

// newStaging gives the file an empty staging file; the record follows with the change that needs it.
func (f *file) newStaging() error {
	s, err := f.w.staging.create()
	if err != nil {
		return f.w.diskFault("create staging file", err)
	}
	if f.w.staging.wantsRefill() {
		f.w.wakeHousekeeper()
	}
	f.stg, f.number = s.f, s.number
	return nil
}

// spill moves small content to a staging file.
func (f *file) spill() error {
	if err := f.newStaging(); err != nil {
		return err
	}
	if err := writeFull(f.stg, f.data, 0); err != nil {
		f.abandonStaging()
		return f.w.diskFault("write staging file", err)
	}
	f.data, f.form = nil, formStaged
	return f.recordContent(false)
}

func (f *file) abandonStaging() {
	f.stg.Close()
	f.w.staging.doom(f.number)
	f.stg, f.number = nil, 0
}

// hydrate brings the first n bytes of clean content to a staging file.
func (f *file) hydrate(ctx context.Context, n int64) error {
	if err := f.newStaging(); err != nil {
		return err
	}
	if err := f.copyChunks(ctx, n); err != nil {
		f.abandonStaging()
		return err
	}
	f.form, f.chunks = formStaged, nil
	return f.recordContent(false)
}

func (f *file) copyChunks(ctx context.Context, n int64) error {
	if err := f.stg.Truncate(n); err != nil {
		return f.w.diskFault("size staging file", err)
	}
	for _, e := range f.chunks {
		if e.Off >= n {
			break
		}
		b, err := f.w.reader.Chunk(ctx, e.Ref)
		if err != nil {
			return f.w.storeFault("read content", err)
		}
		part := b[e.Skip : int64(e.Skip)+e.Len]
		if over := e.Off + e.Len - n; over > 0 {
			part = part[:e.Len-over]
		}
		if err := writeFull(f.stg, part, e.Off); err != nil {
			return f.w.diskFault("write staging file", err)
		}
	}
	return nil
}

// dirtyStaging marks a clean local copy as the content before it is written for the first time. The mark must be in the
// journal first: a crash would otherwise leave a changed copy that passes for the committed content.
func (f *file) dirtyStaging() error {
	f.w.mu.Lock()
	dirty := f.n.rec.Content == metadata.ContentStaged
	f.w.mu.Unlock()
	if dirty {
		return nil
	}
	if err := f.recordContent(false); err != nil {
		return err
	}
	if err := f.w.live.Flush(); err != nil {
		return f.w.localFault(err)
	}
	return nil
}

// recordContent writes the inode record for the content as it is now. touched moves the times as a write does. f.mu is
// held for writing.
func (f *file) recordContent(touched bool) error {
	w := f.w
	o := w.begin()
	if err := f.journal(&o); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := f.record(&o, touched); err != nil {
		return err
	}
	o.save(f.n)
	if touched {
		w.notify(Event{Kind: EventWrite, Ino: f.n.rec.Ino})
	}
	return o.commit()
}

// journal stores content that is small, but too large for its record, in the journal. w.mu need not be held.
func (f *file) journal(o *op) error {
	if f.form != formSmall || len(f.data) <= inlineMax {
		return nil
	}
	m, err := f.w.live.StoreContent(f.n.rec.Ino, f.data)
	if err != nil {
		return f.w.diskFault("write content log", err)
	}
	o.muts = append(o.muts, m)
	f.journaled += int64(len(f.data))
	return nil
}

// record fills in the inode record; w.mu is held.
func (f *file) record(o *op, touched bool) error {
	r := &f.n.rec
	was, wasStaging := r.Content, r.Staging
	r.Inline, r.Version = nil, f.w.nextVersion()
	f.settled = nil
	if f.form == formStaged {
		st, err := stampOf(f.stg)
		if err != nil {
			return f.w.localFault(err)
		}
		f.stamp = st
		r.Content, r.Staging, r.Size, r.Alloc = metadata.ContentStaged, f.number, st.size, st.blocks
	} else {
		r.Staging, r.Live = 0, false
		r.Size, r.Alloc = int64(len(f.data)), int64(len(f.data))
		switch {
		case len(f.data) == 0:
			r.Content = metadata.ContentNone
		case len(f.data) <= inlineMax:
			r.Content, r.Inline = metadata.ContentInline, append([]byte(nil), f.data...)
		default:
			r.Content = metadata.ContentJournal
		}
	}
	if was == metadata.ContentJournal && r.Content != was {
		o.del(metadata.ContentKey(r.Ino))
	}
	if wasStaging != r.Staging {
		if wasStaging != 0 {
			o.del(metadata.StagingKey(wasStaging))
			f.w.staging.doom(wasStaging)
		}
		if r.Staging != 0 {
			o.put(metadata.StagingKey(r.Staging), inoValue(r.Ino))
		}
	}
	if touched {
		now := f.w.now()
		r.Mtime, r.Ctime = now, now
		if f.form == formStaged {
			f.stampTimes()
		}
	}
	return nil
}

// stampTimes gives the staging file the record's mtime, so that a later look tells a kernel's write from ours, also after
// a crash. w.mu is held; f.stg may be nil.
func (f *file) stampTimes() {
	if f.stg == nil {
		return
	}
	ts := [2]unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(f.n.rec.Mtime)}
	var err error
	cerr := control(f.stg, func(fd int) { err = futimens(fd, &ts) })
	if err == nil && cerr == nil {
		f.stamp, err = stampOf(f.stg)
	}
	if err != nil {
		f.w.log.Warn("set time of staging file", "number", f.number, "err", err)
	}
}

// refresh takes size and times of a file that a kernel writes by itself from its staging file; it tells whether anything
// moved that the journal does not have yet. w.mu is held.
func (w *Workspace) refresh(n *inode) bool {
	f := n.file
	if f == nil || f.writers == 0 || f.stg == nil {
		return false
	}
	st, err := stampOf(f.stg)
	if err != nil {
		w.log.Error("look at staging file", "ino", n.rec.Ino, "err", err)
		return false
	}
	if st.same(f.stamp) {
		f.stamp = st // blocks move when the disk gets round to them
		return f.unsaved
	}
	if st.mtime != f.stamp.mtime {
		n.rec.Mtime = st.mtime
		n.rec.Ctime = max(n.rec.Ctime, st.mtime)
	}
	f.stamp = st
	n.rec.Size, n.rec.Alloc, n.rec.Version = st.size, st.blocks, w.nextVersion()
	f.unsaved = true
	return true
}

func writeFull(f *os.File, p []byte, off int64) error {
	_, err := f.WriteAt(p, off)
	return err
}

// diskFault turns trouble with the cache disk into what the writer should see.
func (w *Workspace) diskFault(what string, err error) error {
	for _, e := range [...]syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG, syscall.EMFILE, syscall.ENFILE} {
		if isErrno(err, e) {
			w.log.Warn(what, "err", err)
			return e
		}
	}
	w.log.Error(what, "err", err)
	return syscall.EIO
}
