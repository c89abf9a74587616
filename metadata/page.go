package metadata

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"wsfs/blobs"
)

// ErrPage: the content of a tree page is not a page this program can read; it is damaged or of a newer format.
var ErrPage = errors.New("malformed tree page")

// Limits of a tree, checked when a page is built and again when it is decoded.
const (
	MaxTreeKey   = 1024    // bytes of a key; at least 1
	MaxTreeValue = 1 << 20 // bytes of a value; 0 is allowed
)

const (
	pageVersion = 1
	pageHeader  = 8  // version(1) level(1) prefix length(2) count(4)
	maxLevel    = 15 // of the root; a leaf is level 0
)

// page is a decoded tree page. It never changes once decoded or built, so it is shared without a lock.
//
// Layout of the content (integers big-endian; see docs/formats.md, "Tree pages"):
//
//	version(1)=1 level(1) prefix length P(2) count N(4) prefix(P)
//	leaf:   N times: uvarint suffix length, uvarint value length, suffix, value
//	branch: N references of blobs.RefSize bytes, then N-1 times: uvarint suffix length, suffix
//
// A full key is prefix + suffix. Child i of a branch holds the keys k with separator[i-1] <= k < separator[i]; the
// first child has no lower bound and the last no upper bound of its own.
//
// Invariants proved by decodePage: keys strictly ascending, N >= 1 for a leaf and N >= 2 for a branch, every offset
// inside content, nothing after the last entry.
type page struct {
	content []byte
	prefix  []byte   // aliases content
	offs    []uint32 // where entry i (leaf) or separator i (branch) starts in content
	refs    uint32   // branch: where the references start
	level   uint8
}

// emptyPage stands for the page of an empty tree; it is never stored.
var emptyPage = &page{}

// children is the number of entries of a leaf or of children of a branch.
func (p *page) children() int {
	if p.level > 0 {
		return len(p.offs) + 1
	}
	return len(p.offs)
}

// footprint is roughly what the decoded page occupies in memory, bytes.
func (p *page) footprint() int64 { return int64(cap(p.content)) + 4*int64(cap(p.offs)) + 200 }

// shortUvarint reads a uvarint that is known to be well formed.
func shortUvarint(b []byte) (int, int) {
	if b[0] < 0x80 {
		return int(b[0]), 1
	}
	v, n := binary.Uvarint(b)
	return int(v), n
}

// entry returns the key suffix and the value of entry i of a leaf. Both alias the content and are never nil.
func (p *page) entry(i int) (suffix, value []byte) {
	off := int(p.offs[i])
	kl, n := shortUvarint(p.content[off:])
	vl, m := shortUvarint(p.content[off+n:])
	k := off + n + m
	v := k + kl
	return p.content[k:v:v], p.content[v : v+vl : v+vl]
}

// separator returns the suffix of separator i of a branch, 0 <= i < children()-1.
func (p *page) separator(i int) []byte {
	b := p.content[p.offs[i]:]
	if b[0] < 0x80 {
		return b[1 : 1+b[0]]
	}
	kl, n := shortUvarint(b)
	return b[n : n+kl]
}

// leafSuffix is entry without the value: most of the time of a lookup is spent here.
func (p *page) leafSuffix(i int) []byte {
	b := p.content[p.offs[i]:]
	if len(b) > 1 && b[0]|b[1] < 0x80 {
		return b[2 : 2+b[0]]
	}
	s, _ := p.entry(i)
	return s
}

// suffix returns the suffix of the i-th key of either kind of page.
func (p *page) suffix(i int) []byte {
	if p.level > 0 {
		return p.separator(i)
	}
	return p.leafSuffix(i)
}

// ref returns the reference of child i of a branch.
func (p *page) ref(i int) blobs.Ref {
	off := int(p.refs) + i*blobs.RefSize
	r, _, err := blobs.DecodeRef(p.content[off : off+blobs.RefSize])
	if err != nil {
		panic(err) // the length was checked when the page was decoded
	}
	return r
}

// id returns only the chunk ID of child i of a branch.
func (p *page) id(i int) blobs.ID {
	return blobs.ID(p.content[int(p.refs)+i*blobs.RefSize:])
}

// appendKey appends the full i-th key (leaf: of entry i; branch: separator i) to b.
func (p *page) appendKey(b []byte, i int) []byte {
	return append(append(b, p.prefix...), p.suffix(i)...)
}

// find returns the first entry of a leaf whose key is not below key, and whether it is key itself.
func (p *page) find(key []byte) (int, bool) {
	rest, where := p.strip(key)
	if where < 0 {
		return 0, false
	}
	if where > 0 {
		return len(p.offs), false
	}
	lo, hi := 0, len(p.offs)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		switch c := bytes.Compare(p.leafSuffix(mid), rest); {
		case c == 0:
			return mid, true
		case c < 0:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return lo, false
}

// child returns the child of a branch that covers key.
func (p *page) child(key []byte) int {
	rest, where := p.strip(key)
	if where < 0 {
		return 0
	}
	if where > 0 {
		return len(p.offs)
	}
	lo, hi := 0, len(p.offs)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if bytes.Compare(p.separator(mid), rest) <= 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// strip takes the page's prefix off key; where is -1 or 1 if key lies before or after every key with that prefix.
func (p *page) strip(key []byte) (rest []byte, where int) {
	if bytes.HasPrefix(key, p.prefix) {
		return key[len(p.prefix):], 0
	}
	return nil, bytes.Compare(key, p.prefix)
}

// decodePage checks content completely and makes it searchable. The page keeps content, which must not change.
func decodePage(content []byte) (*page, error) {
	p, n, err := decodeHeader(content)
	if err != nil {
		return nil, err
	}
	d := decoder{b: content[pageHeader:]}
	p.prefix = d.bytes(int(binary.BigEndian.Uint16(content[2:])))
	if p.level > 0 {
		p.refs = uint32(len(content) - len(d.b))
		d.bytes(n * blobs.RefSize)
		n--
	}
	// An entry takes at least one byte, so a false count cannot make this allocation large.
	if n > len(d.b) {
		return nil, fmt.Errorf("%w: %d entries in %d bytes", ErrPage, n, len(d.b))
	}
	p.offs = make([]uint32, n)
	var prev []byte
	for i := range p.offs {
		p.offs[i] = uint32(len(content) - len(d.b))
		suffix := d.key(p)
		if i > 0 && bytes.Compare(prev, suffix) >= 0 && d.err == nil {
			return nil, fmt.Errorf("%w: key %d is not above the key before it", ErrPage, i)
		}
		prev = suffix
	}
	if err := d.finish(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPage, err)
	}
	return p, nil
}

// decodeHeader reads the fixed part of a page and returns its number of entries or children.
func decodeHeader(content []byte) (*page, int, error) {
	if len(content) < pageHeader {
		return nil, 0, fmt.Errorf("%w: %d bytes", ErrPage, len(content))
	}
	if content[0] != pageVersion {
		return nil, 0, fmt.Errorf("%w: version %d, this program knows %d", ErrPage, content[0], pageVersion)
	}
	if content[1] > maxLevel {
		return nil, 0, fmt.Errorf("%w: level %d, at most %d", ErrPage, content[1], maxLevel)
	}
	p := &page{content: content, level: content[1]}
	n, least := int(binary.BigEndian.Uint32(content[4:])), 1
	if p.level > 0 {
		least = 2
	}
	if n < least || n > len(content) {
		return nil, 0, fmt.Errorf("%w: %d entries in %d bytes at level %d", ErrPage, n, len(content), p.level)
	}
	return p, n, nil
}

// key reads one entry or separator of p and returns its key suffix.
func (d *decoder) key(p *page) []byte {
	kl := d.uvarint()
	if size := uint64(len(p.prefix)) + kl; kl > MaxTreeKey || size > MaxTreeKey || size == 0 {
		if d.err == nil {
			d.fail("key size out of range")
		}
		return nil
	}
	if p.level > 0 {
		return d.bytes(int(kl))
	}
	vl := d.uvarint()
	if vl > MaxTreeValue {
		d.fail("value size out of range")
		return nil
	}
	suffix := d.bytes(int(kl))
	d.bytes(int(vl))
	return suffix
}
