package metadata

import (
	"encoding/binary"

	"wsfs/blobs"
)

// pageSizes are the bounds, in bytes of encoded content, between which Apply keeps pages.
type pageSizes struct {
	target int // a page cut from a long run of entries is filled up to this
	most   int // a page that grew to more than this is split in two; above target, so that growing a value by a
	// few bytes in a full page does not split it
	least int // a page that shrank below this is merged with its neighbour
}

func sizesFor(target int) pageSizes {
	return pageSizes{target: target, most: target + target/4, least: target / 4}
}

// defaultSizes: 32 KiB pages hold some 500 inodes or entries, or 400 children, so a tree of a hundred million keys is
// four levels high, and a commit of one change writes about 70 KiB before compression.
var defaultSizes = sizesFor(32 << 10)

// run collects the entries of one level, in ascending order, until they are cut into pages. A leaf's entries are keys
// and values; a branch's are the lower bound of a child and its encoded reference.
type run struct {
	buf  []byte     // key and value of every entry, one after another
	ents []runEntry // where they are
	low  []byte     // leaf: lower bound of the page in progress: above every key of the page before it
	last *page      // the page of this level written last, which a PageReader may not find yet
	id   blobs.ID   // its chunk
}

type runEntry struct {
	off  uint32 // of the key in buf; the value follows it
	klen uint32
}

func (r *run) key(i int) []byte { e := r.ents[i]; return r.buf[e.off : e.off+e.klen] }

func (r *run) value(i int) []byte { e := r.ents[i]; return r.buf[e.off+e.klen : r.end(i)] }

// end is where entry i ends in buf.
func (r *run) end(i int) int {
	if i+1 < len(r.ents) {
		return int(r.ents[i+1].off)
	}
	return len(r.buf)
}

func (r *run) add(key, value []byte) {
	r.ents = append(r.ents, runEntry{off: uint32(len(r.buf)), klen: uint32(len(key))})
	r.buf = append(append(r.buf, key...), value...)
}

// drop forgets the first n entries.
func (r *run) drop(n int) {
	if n == len(r.ents) {
		r.buf, r.ents = r.buf[:0], r.ents[:0]
		return
	}
	cut := r.ents[n].off
	r.buf = r.buf[:copy(r.buf, r.buf[cut:])]
	r.ents = r.ents[:copy(r.ents, r.ents[n:])]
	for i := range r.ents {
		r.ents[i].off -= cut
	}
}

// pop removes the last entry and returns copies of its key and value.
func (r *run) pop() (key, value []byte) {
	i := len(r.ents) - 1
	key, value = append([]byte(nil), r.key(i)...), append([]byte(nil), r.value(i)...)
	r.buf, r.ents = r.buf[:r.ents[i].off], r.ents[:i]
	return key, value
}

// size is about the encoded size of a page of the first n entries, bytes. It never falls as n grows.
func (r *run) size(n int) int {
	if n == 0 {
		return 0
	}
	return pageHeader + r.end(n-1) + 3*n - (n-1)*commonPrefix(r.key(0), r.key(n-1))
}

// fit is the largest n, but at least least and at most most, such that size(n) <= limit.
func (r *run) fit(limit, least, most int) int {
	lo, hi := least, most
	for lo < hi {
		mid := (lo + hi + 1) / 2
		if r.size(mid) <= limit {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return lo
}

// encode builds the page of the first n entries at the given level.
func (r *run) encode(level, n int) *page {
	first := 0
	if level > 0 {
		first = 1 // the lower bound of the first child is known from the parent
	}
	pl := commonPrefix(r.key(first), r.key(n-1))
	b := make([]byte, pageHeader, r.end(n-1)+4*n+pageHeader)
	b[0], b[1] = pageVersion, byte(level)
	binary.BigEndian.PutUint16(b[2:], uint16(pl))
	binary.BigEndian.PutUint32(b[4:], uint32(n))
	b = append(b, r.key(first)[:pl]...)
	p := &page{level: uint8(level), offs: make([]uint32, 0, n-first)}
	if level > 0 {
		p.refs = uint32(len(b))
		for i := range n {
			b = append(b, r.value(i)...)
		}
	}
	for i := first; i < n; i++ {
		p.offs = append(p.offs, uint32(len(b)))
		suffix := r.key(i)[pl:]
		b = binary.AppendUvarint(b, uint64(len(suffix)))
		if level > 0 {
			b = append(b, suffix...)
			continue
		}
		value := r.value(i)
		b = binary.AppendUvarint(b, uint64(len(value)))
		b = append(append(b, suffix...), value...)
	}
	p.content = b
	p.prefix = b[pageHeader : pageHeader+pl]
	return p
}

// commonPrefix is the length of the longest common prefix of a and b.
func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// shortest returns the shortest key s with below < s <= key, given below < key: what a branch needs to tell two
// neighbouring pages apart.
func shortest(below, key []byte) []byte {
	return append([]byte(nil), key[:commonPrefix(below, key)+1]...)
}
