package blobs

import (
	"fmt"
	"os"
)

// Put caches a whole pack. It returns an error only if the disk refused (a full one included); a pack that does not
// fit under the limit is not cached, which is no error.
func (c *PackCache) Put(p PackID, body []byte) error {
	_, err := c.fill(p, 0, body)
	return err
}

// keep is Put for callers that can do without: a failure is only counted.
func (c *PackCache) keep(p PackID, body []byte) {
	if err := c.Put(p, body); err != nil {
		c.fault(err)
	}
}

// store caches bytes of p that start at a block boundary and end at one or at the pack's end, and reports whether
// they can be read back from the cache.
func (c *PackCache) store(p PackID, off int64, body []byte) bool {
	ok, err := c.fill(p, off, body)
	if err != nil {
		c.fault(err)
	}
	return ok
}

// fill writes the absent blocks among body's. Room is made and counted before the first write, so the limit holds at
// every moment, and given back for what was not written.
func (c *PackCache) fill(p PackID, off int64, body []byte) (bool, error) {
	if off < 0 || off%cacheBlock != 0 || off+int64(len(body)) > maxPack {
		return false, fmt.Errorf("caching pack %s: %d bytes at %d", p, len(body), off)
	}
	if len(body) == 0 {
		return false, nil
	}
	e, room, victims := c.reserve(p, off, body)
	c.remove(victims)
	if e == nil {
		return false, nil
	}
	if room == 0 {
		return true, nil
	}
	err := c.writeBlocks(e, off, body, room)
	c.mu.Lock()
	ok := err == nil && !e.condemned && e.covers(off, int64(len(body)))
	empty := e.bytes == 0
	c.mu.Unlock()
	if empty { // nothing of it could be written: no file for nothing
		c.remove(c.condemn(e))
	}
	return ok, err
}

// reserve finds or makes the entry for p and counts room for the blocks it lacks, condemning other packs until that
// fits. It returns no entry if they cannot be cached: closed, too small a limit, or the pack is being removed.
func (c *PackCache) reserve(p PackID, off int64, body []byte) (*cachedPack, int64, []*cachedPack) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.packs[p]
	if c.closed || e != nil && e.condemned || int64(len(body)) > c.limit {
		return nil, 0, nil
	}
	var room int64
	for i, b := range blocks(off, body) {
		if e == nil || i >= len(e.lens) || int(e.lens[i]) < len(b) {
			room += int64(len(b))
		}
	}
	victims := c.condemnTo(c.limit-room, e)
	if c.used+room > c.limit {
		return nil, 0, victims
	}
	if e == nil {
		e = &cachedPack{id: p}
		e.elem = c.recent.PushFront(e)
		c.packs[p] = e
	}
	c.recent.MoveToFront(e.elem)
	c.used += room
	return e, room, victims
}

// blocks yields the blocks of body, which starts at off, by their number in the pack.
func blocks(off int64, body []byte) func(yield func(int, []byte) bool) {
	return func(yield func(int, []byte) bool) {
		for i := int(off / cacheBlock); len(body) > 0; i++ {
			n := min(cacheBlock, len(body))
			if !yield(i, body[:n]) {
				return
			}
			body = body[n:]
		}
	}
}

// writeBlocks writes what is absent of body and turns the reserved room into present blocks. At the first failure it
// frees what the failed write may have left and gives up the rest.
func (c *PackCache) writeBlocks(e *cachedPack, off int64, body []byte, room int64) error {
	e.io.Lock()
	defer e.io.Unlock()
	err := c.writeAbsent(e, off, body, &room)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used -= room
	return err
}

// writeAbsent takes what it marks present out of room. Caller holds e.io.
func (c *PackCache) writeAbsent(e *cachedPack, off int64, body []byte, room *int64) error {
	if e.gone {
		return nil
	}
	f, err := os.OpenFile(c.path(e.id), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close() // written data is already the kernel's; a cache does not sync
	for i, b := range blocks(off, body) {
		if c.blockLen(e, i) >= len(b) {
			continue
		}
		at := int64(i) * cacheBlock
		if err := c.write(f, b, at); err != nil {
			c.markBlock(e, i, 0, room)
			if perr := punch(f.Name(), at, cacheBlock); perr != nil {
				return fmt.Errorf("%w (and freeing the rest: %w)", err, perr)
			}
			return err
		}
		c.markBlock(e, i, len(b), room)
	}
	return nil
}

func (c *PackCache) blockLen(e *cachedPack, i int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i >= len(e.lens) {
		return 0
	}
	return int(e.lens[i])
}

// markBlock sets how much of block i is present. The bytes were counted in PackCache.used as room, so they move from
// there to the pack at this moment: whoever condemns the pack next takes exactly those out of the count.
func (c *PackCache) markBlock(e *cachedPack, i, n int, room *int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.condemned {
		return
	}
	for len(e.lens) <= i {
		e.lens = append(e.lens, 0)
	}
	change := int64(n) - int64(e.lens[i])
	e.lens[i] = int32(n)
	e.bytes += change
	*room -= change
}
