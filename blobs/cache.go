package blobs

import (
	"container/list"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// cacheBlock is the unit packs are cached in, bytes; a pack's last block is as short as it is.
const cacheBlock = 1 << 20

// PackCache keeps bytes of packs on the local disk, within a limit.
//
// Each pack is one sparse file named after it; what is cached of it are whole blocks, and the file system's own map of
// holes is the record of which ones. A separate bitmap was rejected: it can disagree with the data after a crash and
// doubles the files. So a killed process leaves nothing to repair: a block whose writing was cut ends in a hole and is
// taken for absent, and what the map cannot show (power loss, a bad disk) is caught by the hash of the chunk read from
// it, whereupon the reader drops the block and fetches it again. Where a file system cannot report holes the same
// thing happens for blocks that were never there. Nothing is ever synced.
//
// Packs never change, so a cached byte is right or damaged, never stale, and any block may be dropped at any time.
// Packs are evicted whole, least recently used first. A reader that has the file open keeps reading it.
//
// Lock order: cachedPack.io before PackCache.mu; no two io locks at once. Files that are not ours are left alone.
type PackCache struct {
	dir   string
	write func(f *os.File, b []byte, off int64) error // os.File.WriteAt, but for tests that fill the disk

	mu     sync.Mutex // guards everything below and the fields of cachedPack marked (mu)
	packs  map[PackID]*cachedPack
	recent *list.List // of *cachedPack, most recently used first; condemned packs are not in it
	limit  int64
	used   int64 // bytes of present blocks of packs in recent, and of blocks being written
	stats  CacheStats
	closed bool
}

// cachedPack is one file of the cache.
type cachedPack struct {
	id   PackID
	io   sync.Mutex // held while the file is written, punched or removed
	gone bool       // (io) the file was removed and must not be created for this cachedPack again

	lens      []int32       // (mu) bytes present of each block, 0 if absent
	bytes     int64         // (mu) sum of lens
	condemned bool          // (mu) no longer counted, about to be removed
	elem      *list.Element // (mu) in PackCache.recent
}

// CacheStats tells what a PackCache holds and met.
type CacheStats struct {
	Packs   int64 // packs with at least one block
	Used    int64 // bytes
	Limit   int64 // bytes
	Evicted int64 // bytes evicted since it was opened
	Dropped int64 // bytes dropped because they were damaged or unreadable
	Faults  int64 // operations on the cache's files that failed; the data was served without them
	Fault   error // the last of those failures, nil if none
}

// OpenPackCache opens the cache in dir, creating dir if needed, and evicts down to limit bytes. What a process left
// there is used again, however that process ended. A limit of 0 or less caches nothing.
func OpenPackCache(dir string, limit int64) (*PackCache, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("opening the pack cache: %w", err)
	}
	c := &PackCache{
		dir: dir, limit: limit, packs: make(map[PackID]*cachedPack), recent: list.New(),
		write: func(f *os.File, b []byte, off int64) error { _, err := f.WriteAt(b, off); return err },
	}
	if err := c.scan(); err != nil {
		return nil, fmt.Errorf("opening the pack cache: %w", err)
	}
	c.SetLimit(limit)
	return c, nil
}

func (c *PackCache) path(p PackID) string { return filepath.Join(c.dir, p.String()+cacheSuffix) }

// Close ends the use of the cache; reads miss and writes are ignored afterwards. The files stay.
func (c *PackCache) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return nil
}

// Used returns the bytes of the blocks in the cache, those being written included. It stays within the limit, but for
// what was already being written when SetLimit lowered it.
func (c *PackCache) Used() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used
}

// Stats returns what the cache holds and met so far.
func (c *PackCache) Stats() CacheStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Packs, s.Used, s.Limit = int64(c.recent.Len()), c.used, c.limit
	return s
}

// fault counts an operation on the cache's files that failed. The cache is never needed for being right, so its
// callers are not told.
func (c *PackCache) fault(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Faults++
	c.stats.Fault = err
}

// covers reports whether all of [off, off+n) is present. Caller holds PackCache.mu.
func (e *cachedPack) covers(off, n int64) bool {
	for end := off + n; off < end; {
		i := off / cacheBlock
		stop := min(end, (i+1)*cacheBlock)
		if i >= int64(len(e.lens)) || int64(e.lens[i]) < stop-i*cacheBlock {
			return false
		}
		off = stop
	}
	return true
}

// ReadAt fills buf with the bytes of pack p from off and reports whether it could: all of them are in the cache and
// the disk gave them. On false buf holds nothing of use. The bytes are as the disk has them; the caller verifies.
func (c *PackCache) ReadAt(p PackID, off int64, buf []byte) bool {
	e := c.lookup(p, off, int64(len(buf)))
	if e == nil {
		return false
	}
	f, err := os.Open(c.path(p))
	if err != nil {
		c.unreadable(e, err)
		return false
	}
	_, err = f.ReadAt(buf, off)
	f.Close() // opened for reading: nothing can be lost here
	if err != nil {
		c.fault(fmt.Errorf("reading the cached pack %s: %w", p, err))
		c.Drop(p, off, int64(len(buf)))
		return false
	}
	// The file may have been evicted and begun anew between the look and the open; its bytes count only if not.
	return c.lookup(p, off, int64(len(buf))) == e
}

// unreadable deals with a file that could not be opened. That it is gone is no fault if it was just evicted; else
// somebody cleaned up behind our back.
func (c *PackCache) unreadable(e *cachedPack, err error) {
	if !errors.Is(err, fs.ErrNotExist) {
		c.fault(err)
		return
	}
	if victims := c.condemn(e); len(victims) > 0 {
		c.fault(err)
		c.remove(victims)
	}
}

// lookup returns the pack if [off, off+n) of it is present, and marks it used.
func (c *PackCache) lookup(p PackID, off, n int64) *cachedPack {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.packs[p]
	if e == nil || e.condemned || c.closed || off < 0 || !e.covers(off, n) {
		return nil
	}
	c.recent.MoveToFront(e.elem)
	return e
}

// window returns the cached bytes of p from off, a multiple of the block size, to off+n or the end of the pack if
// that comes first; nil if any block of them is absent.
func (c *PackCache) window(p PackID, off, n int64) []byte {
	c.mu.Lock()
	var have int64
	if e := c.packs[p]; e != nil && !e.condemned {
		for i := off / cacheBlock; i < int64(len(e.lens)) && have < n; i++ {
			have += int64(e.lens[i])
			if e.lens[i] < cacheBlock {
				if e.lens[i] == 0 {
					have = 0
				}
				n = have // the pack's last block, or an absent one
			}
		}
	}
	c.mu.Unlock()
	if have == 0 || have < n {
		return nil
	}
	buf := make([]byte, n)
	if !c.ReadAt(p, off, buf) {
		return nil
	}
	return buf
}

// Drop forgets the blocks of p that hold any of [off, off+n), because they turned out damaged, and frees their space.
func (c *PackCache) Drop(p PackID, off, n int64) {
	c.mu.Lock()
	e := c.packs[p]
	c.mu.Unlock()
	if e == nil || off < 0 || n <= 0 {
		return
	}
	if c.dropBlocks(e, off/cacheBlock, (off+n-1)/cacheBlock) {
		c.remove(c.condemn(e)) // no file for nothing
	}
}

// dropBlocks reports whether the pack has no block left.
func (c *PackCache) dropBlocks(e *cachedPack, first, last int64) (empty bool) {
	e.io.Lock()
	defer e.io.Unlock()
	freed, empty := c.forget(e, first, last)
	if freed > 0 && !e.gone {
		if err := punch(c.path(e.id), first*cacheBlock, (last-first+1)*cacheBlock); err != nil {
			c.fault(err)
		}
	}
	return empty
}

func (c *PackCache) forget(e *cachedPack, first, last int64) (freed int64, empty bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := first; i <= last && i < int64(len(e.lens)); i++ {
		freed += int64(e.lens[i])
		e.lens[i] = 0
	}
	e.bytes -= freed
	if !e.condemned {
		c.used -= freed
	}
	c.stats.Dropped += freed
	return freed, e.bytes == 0
}

// punch frees a range of a file, which reads as a hole afterwards.
func punch(path string, off, n int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close() // no buffered write to lose
	if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n); err != nil {
		return &fs.PathError{Op: "punch", Path: path, Err: err}
	}
	return nil
}

// has reports whether all of [off, off+n) of p is present, without marking it used.
func (c *PackCache) has(p PackID, off, n int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.packs[p]
	return e != nil && !e.condemned && !c.closed && e.covers(off, n)
}
