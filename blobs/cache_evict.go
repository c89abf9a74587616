package blobs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// SetLimit changes the limit in bytes and evicts down to it before it returns.
func (c *PackCache) SetLimit(limit int64) {
	c.mu.Lock()
	c.limit = max(limit, 0)
	victims := c.condemnTo(c.limit, nil)
	c.mu.Unlock()
	c.remove(victims)
}

// Evict frees at least n bytes by removing least recently used packs, if there are so many, and returns how many it
// freed: what a full disk needs. Space of packs being read at the moment returns to the disk when they are closed.
func (c *PackCache) Evict(n int64) int64 {
	c.mu.Lock()
	before := c.stats.Evicted
	victims := c.condemnTo(c.used-n, nil)
	freed := c.stats.Evicted - before
	c.mu.Unlock()
	c.remove(victims)
	return freed
}

// condemnTo takes packs out of the count, least recently used first and sparing keep, until at most want bytes are
// used. The caller holds mu, and passes the result to remove once it does not.
func (c *PackCache) condemnTo(want int64, keep *cachedPack) []*cachedPack {
	var victims []*cachedPack
	for el := c.recent.Back(); el != nil && c.used > want; {
		e := el.Value.(*cachedPack)
		el = el.Prev()
		if e == keep || e.bytes == 0 { // nothing to free, or its first block is just being written
			continue
		}
		c.stats.Evicted += e.bytes
		c.condemnLocked(e)
		victims = append(victims, e)
	}
	return victims
}

func (c *PackCache) condemnLocked(e *cachedPack) {
	e.condemned = true
	c.used -= e.bytes
	c.recent.Remove(e.elem)
}

// condemn takes one pack out of the count, if nobody else did.
func (c *PackCache) condemn(e *cachedPack) []*cachedPack {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.condemned {
		return nil
	}
	c.condemnLocked(e)
	return []*cachedPack{e}
}

// remove deletes the files of condemned packs. Until a file is gone its pack is not cached again: a new file under the
// same name would be the one deleted.
func (c *PackCache) remove(victims []*cachedPack) {
	for _, e := range victims {
		e.io.Lock()
		e.gone = true
		err := os.Remove(c.path(e.id))
		e.io.Unlock()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			c.fault(fmt.Errorf("evicting from the pack cache: %w", err))
		}
		c.mu.Lock()
		delete(c.packs, e.id)
		c.mu.Unlock()
	}
}
