package syncer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"

	"wsfs/blobs"
	"wsfs/metadata"
)

// stampTick is the coarsest time the kernel stamps files with (CONFIG_HZ=100).
const stampTick = 10 * time.Millisecond

// cutter reads files for one goroutine.
type cutter struct {
	run     *commitRun
	chunker *blobs.Chunker
	buf     []byte
	own     map[blobs.ID]blobs.Ref // chunks the file has in the base tree
}

// source is content with holes.
type source interface {
	io.ReaderAt
	Data(off int64) (start, end int64, err error)
}

// solid is content in memory: it has no holes.
type solid struct {
	*bytes.Reader
}

func (s solid) Data(off int64) (start, end int64, err error) { return off, s.Size(), nil }

func (c *cutter) read(ctx context.Context, j readJob) error {
	if j.file.staging == 0 {
		return c.cut(ctx, j.file, solid{bytes.NewReader(j.content)})
	}
	return c.readStaged(ctx, j.file)
}

func (c *cutter) readStaged(ctx context.Context, f *fileState) (err error) {
	s, err := c.run.w.local.OpenStaging(f.staging)
	if errors.Is(err, fs.ErrNotExist) {
		f.moved = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("opening staging file %d: %w", f.staging, err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if f.live {
		if err := s.Sync(); err != nil {
			return fmt.Errorf("syncing staging file %d: %w", f.staging, err)
		}
	}
	stamp, err := s.Stamp()
	if err != nil {
		return fmt.Errorf("staging file %d: %w", f.staging, err)
	}
	if age := time.Since(time.Unix(0, stamp.Ctime)); age < stampTick {
		time.Sleep(min(stampTick-age, stampTick))
	}
	if f.live && stamp != f.Stamp || stamp.Size != f.Size {
		f.moved = true
		return nil
	}
	f.Stamp = stamp
	if c.run.readBefore(f) {
		return nil
	}
	if err := c.cut(ctx, f, s); err != nil {
		// A file that shrinks under the reader ends too early.
		if now, serr := s.Stamp(); serr == nil && now != stamp && errors.Is(err, io.ErrUnexpectedEOF) {
			f.moved = true
			return nil
		}
		return err
	}
	return nil
}

// cut stores the content of a file and decides its kind.
func (c *cutter) cut(ctx context.Context, f *fileState, src source) error {
	f.Content, f.Alloc = metadata.ContentNone, 0
	if f.Size == 0 {
		return nil
	}
	start, end, err := src.Data(0)
	if err != nil {
		return fmt.Errorf("looking for data: %w", err)
	}
	if start >= f.Size {
		return nil
	}
	whole := start == 0 && end >= f.Size
	if !whole || f.Size > int64(c.run.w.o.InlineMax) {
		if c.own, err = c.run.ownChunks(ctx, f.Ino); err != nil {
			return err
		}
	}
	if !whole || f.Size >= blobs.MinChunk {
		f.Content = metadata.ContentExtents
		return c.cutRanges(ctx, f, src)
	}
	content, err := c.whole(src, f.Size)
	if err != nil {
		return err
	}
	f.Alloc = f.Size
	c.count(len(content))
	if len(content) <= c.run.w.o.InlineMax {
		f.Content, f.Inline = metadata.ContentInline, slices.Clone(content)
		return nil
	}
	f.Content = metadata.ContentOne
	f.Ref, err = c.store(ctx, content)
	return err
}

func (c *cutter) whole(src source, size int64) ([]byte, error) {
	c.buf = slices.Grow(c.buf[:0], int(size))[:size]
	if _, err := io.ReadFull(io.NewSectionReader(src, 0, size), c.buf); err != nil {
		return nil, fmt.Errorf("reading: %w", noEOF(err))
	}
	return c.buf, nil
}

// noEOF makes the end of a file that should go on an error that says so.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// cutRanges stores each range of data as chunks of its own; holes are not stored.
func (c *cutter) cutRanges(ctx context.Context, f *fileState, src source) error {
	for off := int64(0); off < f.Size; {
		start, end, err := src.Data(off)
		if err != nil {
			return fmt.Errorf("looking for data: %w", err)
		}
		end = min(end, f.Size)
		if start >= end {
			return nil
		}
		err = c.chunker.Split(io.NewSectionReader(src, start, end-start), end-start, func(at int64, content []byte) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			c.count(len(content))
			ref, err := c.store(ctx, content)
			if err != nil {
				return err
			}
			f.Extents = append(f.Extents, metadata.Extent{Off: start + at, Len: int64(len(content)), Ref: ref})
			f.Alloc += int64(len(content))
			return nil
		})
		if err != nil {
			return err
		}
		off = end
	}
	return nil
}

func (c *cutter) count(n int) {
	c.run.read.Add(int64(n))
	c.run.w.done.Add(int64(n))
}

// store returns where a chunk is, having added it to a pack if it is nowhere yet.
func (c *cutter) store(ctx context.Context, content []byte) (blobs.Ref, error) {
	id := blobs.IDOf(content)
	if ref, ok := c.own[id]; ok {
		return ref, nil
	}
	ref, ok, err := c.run.w.local.Locate(id)
	if err != nil {
		return ref, fmt.Errorf("looking for chunk %s: %w", id, err)
	}
	if ok && int(ref.Raw) == len(content) {
		c.run.noteLocated(ref)
		return ref, nil
	}
	if ref, err = c.run.packer.Add(ctx, blobs.KindData, id, content); err == nil {
		c.run.noteFresh(ref)
	}
	return ref, err
}

func (r *commitRun) noteFresh(ref blobs.Ref) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fresh[ref.ID] = ref
}

// noteLocated counts a chunk among the new ones if we uploaded it ourselves and it is in no index yet.
func (r *commitRun) noteLocated(ref blobs.Ref) {
	r.w.unindexed.Lock()
	_, ok := r.w.unindexed.refs[ref.ID]
	r.w.unindexed.Unlock()
	if ok {
		r.noteFresh(ref)
	}
}

// ownChunks returns the chunks a file has in the base tree: they are in the store whether or not an index says so.
func (r *commitRun) ownChunks(ctx context.Context, ino metadata.Ino) (map[blobs.ID]blobs.Ref, error) {
	old, err := r.baseInode(ctx, ino)
	if err != nil || old == nil {
		return nil, err
	}
	switch old.Content {
	case metadata.ContentOne:
		return map[blobs.ID]blobs.Ref{old.Ref.ID: old.Ref}, nil
	case metadata.ContentExtents:
		extents, err := r.baseExtents(ctx, ino)
		if err != nil {
			return nil, err
		}
		own := make(map[blobs.ID]blobs.Ref, len(extents))
		for _, e := range extents {
			own[e.Ref.ID] = e.Ref
		}
		return own, nil
	}
	return nil, nil
}
