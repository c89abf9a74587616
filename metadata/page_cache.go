package metadata

import (
	"sync"

	"wsfs/blobs"
)

// PageCache holds decoded tree pages, bounded in bytes, least recently used first out. It may be shared by any number
// of trees: pages are named by chunk ID, so commits of one workspace share what they have in common. A nil PageCache
// holds nothing. It is safe for concurrent use.
//
// It is cut into shards by chunk ID, each with its own lock, so that concurrent lookups seldom meet; small caches
// have one shard, because a shard that holds two pages is no cache.
type PageCache struct {
	shards []cacheShard // a power of two
}

type cacheShard struct {
	limit int64 // bytes

	mu    sync.Mutex // guards what follows; nothing is called with it held
	pages map[blobs.ID]*cachedPage
	ring  cachedPage // ring.next is the most recently used, ring.prev the least
	used  int64      // bytes, sum of the footprints
}

type cachedPage struct {
	id         blobs.ID
	page       *page
	prev, next *cachedPage
}

// NewPageCache makes a cache of at most limit bytes. A limit of 0 or less caches nothing.
func NewPageCache(limit int64) *PageCache {
	n := 1
	for n < 16 && limit/int64(2*n) >= 4<<20 {
		n *= 2
	}
	c := &PageCache{shards: make([]cacheShard, n)}
	for i := range c.shards {
		s := &c.shards[i]
		s.limit = limit / int64(n)
		s.pages = make(map[blobs.ID]*cachedPage)
		s.ring.prev, s.ring.next = &s.ring, &s.ring
	}
	return c
}

// Used is the memory the cached pages occupy, bytes.
func (c *PageCache) Used() int64 {
	if c == nil {
		return 0
	}
	var sum int64
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		sum += s.used
		s.mu.Unlock()
	}
	return sum
}

func (c *PageCache) shard(id blobs.ID) *cacheShard { return &c.shards[int(id[0])&(len(c.shards)-1)] }

// get returns the page and makes it the most recently used; nil if it is not here.
func (c *PageCache) get(id blobs.ID) *page {
	if c == nil {
		return nil
	}
	s := c.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.pages[id]
	if e == nil {
		return nil
	}
	if s.ring.next != e {
		e.unlink()
		e.linkAfter(&s.ring)
	}
	return e.page
}

// put adds a page, pushing out others as needed. A page larger than its shard is not kept.
func (c *PageCache) put(id blobs.ID, p *page) {
	if c == nil {
		return
	}
	s := c.shard(id)
	size := p.footprint()
	if size > s.limit {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pages[id] != nil {
		return
	}
	for s.used+size > s.limit {
		old := s.ring.prev
		old.unlink()
		delete(s.pages, old.id)
		s.used -= old.page.footprint()
	}
	e := &cachedPage{id: id, page: p}
	s.pages[id] = e
	e.linkAfter(&s.ring)
	s.used += size
}

func (e *cachedPage) unlink() { e.prev.next, e.next.prev = e.next, e.prev }

func (e *cachedPage) linkAfter(at *cachedPage) {
	e.prev, e.next = at, at.next
	at.next.prev = e
	at.next = e
}
