package blobs

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cacheSuffix ends the name of every file of the cache; the rest of it is the pack's name.
const cacheSuffix = ".pack"

// scan finds the blocks earlier processes left. Packs are ordered by when their files were last touched.
func (c *PackCache) scan() error {
	files, err := os.ReadDir(c.dir)
	if err != nil {
		return err
	}
	type found struct {
		pack *cachedPack
		used time.Time
	}
	var all []found
	for _, f := range files {
		id, ok := cacheFileID(f)
		if !ok {
			continue
		}
		e := &cachedPack{id: id}
		used, err := c.scanFile(e)
		if err != nil {
			return fmt.Errorf("pack %s: %w", id, err)
		}
		if e.bytes == 0 {
			if err := os.Remove(c.path(id)); err != nil {
				return err
			}
			continue
		}
		all = append(all, found{e, used})
	}
	slices.SortFunc(all, func(a, b found) int { return b.used.Compare(a.used) })
	for _, f := range all {
		f.pack.elem = c.recent.PushBack(f.pack)
		c.packs[f.pack.id] = f.pack
		c.used += f.pack.bytes
	}
	return nil
}

func cacheFileID(f fs.DirEntry) (PackID, bool) {
	var id PackID
	name, ok := strings.CutSuffix(f.Name(), cacheSuffix)
	if !ok || !f.Type().IsRegular() || len(name) != 2*len(id) || name != strings.ToLower(name) {
		return id, false
	}
	_, err := hex.Decode(id[:], []byte(name))
	return id, err == nil
}

// scanFile learns which blocks a file holds from its map of holes, frees blocks that are there in part only, and
// returns when the file was last used.
func (c *PackCache) scanFile(e *cachedPack) (time.Time, error) {
	f, err := os.OpenFile(c.path(e.id), os.O_RDWR, 0)
	if err != nil {
		return time.Time{}, err
	}
	defer f.Close() // nothing written through it
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return time.Time{}, err
	}
	size := min(st.Size, maxPack)
	e.lens = make([]int32, (size+cacheBlock-1)/cacheBlock)
	for off := int64(0); off < size; {
		data, hole, err := nextData(f, off, size)
		if err != nil {
			return time.Time{}, err
		}
		e.mark(data, hole, size)
		off = hole
	}
	used := time.Unix(max(st.Mtim.Sec, st.Atim.Sec), 0)
	return used, freePartial(f, e.lens, size)
}

// nextData returns the next run of data at or after off; size, size if there is none.
func nextData(f *os.File, off, size int64) (data, hole int64, err error) {
	data, err = f.Seek(off, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return size, size, nil
	}
	if err != nil {
		return 0, 0, err
	}
	hole, err = f.Seek(data, unix.SEEK_HOLE)
	if err != nil {
		return 0, 0, err
	}
	return min(data, size), min(hole, size), nil
}

// mark counts the blocks that lie wholly in [data, hole).
func (e *cachedPack) mark(data, hole, size int64) {
	for i := (data + cacheBlock - 1) / cacheBlock; i*cacheBlock < hole; i++ {
		end := min((i+1)*cacheBlock, size)
		if end > hole {
			return
		}
		e.lens[i] = int32(end - i*cacheBlock)
		e.bytes += end - i*cacheBlock
	}
}

// freePartial punches the blocks that are not present, in case a part of them is.
func freePartial(f *os.File, lens []int32, size int64) error {
	for i, n := range lens {
		if n > 0 {
			continue
		}
		off := int64(i) * cacheBlock
		at, err := f.Seek(off, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) || err == nil && at >= min(off+cacheBlock, size) {
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if err := punch(f.Name(), off, cacheBlock); err != nil {
			return err
		}
	}
	return nil
}
