package blobs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// The pack format, version 1. docs/formats.md has the table and a worked example; TestDocumentedPack checks both.
//
// The header says where the footer is, so that a pack can be listed with two range reads although no driver can tell
// an object's size cheaply; a List would cost more than a Get and need another permission. The header is written last,
// when the pack is sealed in memory, but its size is fixed, so offsets handed out before stay true.
const (
	packMagic   = "WSFSPK"
	packVersion = 1
	packHeader  = 16                 // magic 6, version 2, footer offset 4, footer length 4
	packEntry   = 32 + 1 + 4 + 4 + 4 // id, kind, offset, length, raw
	packTail    = 4 + 32 + 4 + 8     // entry count, checksum, footer length, magic and version
	maxPack     = 256 << 20          // bytes of a whole pack
	maxEntries  = 1 << 16            // chunks of one pack: bounds the footer at 2.9 MB
	maxFooter   = maxEntries*packEntry + packTail
)

// ChunkKind says what a chunk of a pack is for. Reading ignores it; checking and repair do not.
type ChunkKind uint8

const (
	KindData ChunkKind = 1 // content of files
	KindPage ChunkKind = 2 // a page of a metadata tree
)

func (k ChunkKind) valid() bool { return k == KindData || k == KindPage }

func (k ChunkKind) String() string {
	switch k {
	case KindData:
		return "data"
	case KindPage:
		return "page"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// PackEntry is one chunk of a pack, as its footer lists it.
type PackEntry struct {
	ID     ID
	Kind   ChunkKind
	Offset uint32 // bytes from the start of the pack
	Length uint32 // bytes of the stored form, encoding byte included
	Raw    uint32 // bytes of the content
}

// Ref returns the reference to the entry's chunk in pack p.
func (e PackEntry) Ref(p PackID) Ref {
	return Ref{ID: e.ID, Locator: Locator{Pack: p, Offset: e.Offset, Length: e.Length}, Raw: e.Raw}
}

// checkSpan reports what no chunk of a pack can look like. It is what bounds every allocation made for a Ref that
// came from outside.
func checkSpan(offset, length, raw uint32) error {
	switch {
	case raw > MaxChunk:
		return fmt.Errorf("content of %d bytes, at most %d allowed", raw, MaxChunk)
	case length == 0 || length > raw+1:
		return fmt.Errorf("stored form of %d bytes for %d bytes of content", length, raw)
	case offset < packHeader || int64(offset)+int64(length) > maxPack:
		return fmt.Errorf("%d bytes at offset %d lie outside any pack", length, offset)
	}
	return nil
}

// packBuilder is a pack being filled. The builder's owner serialises its calls.
type packBuilder struct {
	id      PackID
	body    []byte // header (blank until sealed) and stored chunks
	entries []PackEntry
}

// newPackBuilder starts a pack with a fresh name in buf's memory.
func newPackBuilder(buf []byte) *packBuilder {
	return &packBuilder{id: NewPackID(), body: append(buf[:0], make([]byte, packHeader)...)}
}

// size is how long the pack would be if it were sealed now.
func (b *packBuilder) size() int { return len(b.body) + len(b.entries)*packEntry + packTail }

// fits reports whether a chunk of that stored length may still join without passing target. The first always may.
func (b *packBuilder) fits(stored, target int) bool {
	return len(b.entries) == 0 || b.size()+stored+packEntry <= target && len(b.entries) < maxEntries
}

// room makes space for n more bytes, growing in few steps and not past target, which a pack hardly ever exceeds.
func (b *packBuilder) room(n, target int) {
	need := len(b.body) + n
	if need <= cap(b.body) {
		return
	}
	grown := make([]byte, len(b.body), max(need, min(max(4*cap(b.body), 256<<10), target)))
	copy(grown, b.body)
	b.body = grown
}

func (b *packBuilder) add(kind ChunkKind, id ID, stored []byte, raw int) Ref {
	e := PackEntry{ID: id, Kind: kind, Offset: uint32(len(b.body)), Length: uint32(len(stored)), Raw: uint32(raw)}
	b.body = append(b.body, stored...)
	b.entries = append(b.entries, e)
	return e.Ref(b.id)
}

// seal appends the footer, writes the header and returns the finished pack. The builder takes no more chunks.
func (b *packBuilder) seal() []byte {
	start := len(b.body)
	b.body = appendFooter(b.body, b.entries)
	h := append(b.body[:0], packMagic...)
	h = binary.BigEndian.AppendUint16(h, packVersion)
	h = binary.BigEndian.AppendUint32(h, uint32(start))
	binary.BigEndian.AppendUint32(h, uint32(len(b.body)-start))
	return b.body
}

func appendFooter(b []byte, entries []PackEntry) []byte {
	start := len(b)
	for _, e := range entries {
		b = append(b, e.ID[:]...)
		b = append(b, byte(e.Kind))
		b = binary.BigEndian.AppendUint32(b, e.Offset)
		b = binary.BigEndian.AppendUint32(b, e.Length)
		b = binary.BigEndian.AppendUint32(b, e.Raw)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(entries)))
	sum := sha256.Sum256(b[start:])
	b = append(b, sum[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(b)-start+4+8))
	b = append(b, packMagic...)
	return binary.BigEndian.AppendUint16(b, packVersion)
}

// errPack is wrapped by everything that is wrong with the bytes of a pack.
var errPack = fmt.Errorf("damaged pack: %w", ErrDamaged)

func badPack(format string, args ...any) error {
	return fmt.Errorf("%w: %w", errPack, fmt.Errorf(format, args...))
}

// parseHeader returns where the footer is.
func parseHeader(b []byte) (offset, length int64, err error) {
	if len(b) < packHeader {
		return 0, 0, badPack("header of %d bytes, want %d", len(b), packHeader)
	}
	if string(b[:6]) != packMagic {
		return 0, 0, badPack("not a pack: starts with %x", b[:6])
	}
	if v := binary.BigEndian.Uint16(b[6:]); v != packVersion {
		return 0, 0, badPack("version %d, this program reads version %d", v, packVersion)
	}
	offset = int64(binary.BigEndian.Uint32(b[8:]))
	length = int64(binary.BigEndian.Uint32(b[12:]))
	if offset < packHeader || length < packTail || length > maxFooter || offset+length > maxPack {
		return 0, 0, badPack("footer of %d bytes at offset %d", length, offset)
	}
	return offset, length, nil
}

// parseFooter checks a whole footer that lies at offset in its pack, and that its entries tile the pack from the
// header to it.
func parseFooter(f []byte, offset int64) ([]PackEntry, error) {
	if len(f) < packTail || (len(f)-packTail)%packEntry != 0 {
		return nil, badPack("footer of %d bytes", len(f))
	}
	n := (len(f) - packTail) / packEntry
	summed, tail := f[:n*packEntry+4], f[n*packEntry+4:]
	if sum := sha256.Sum256(summed); !bytes.Equal(sum[:], tail[:32]) {
		return nil, badPack("checksum of the footer does not match")
	}
	if c := binary.BigEndian.Uint32(f[n*packEntry:]); int64(c) != int64(n) {
		return nil, badPack("footer counts %d entries and has %d", c, n)
	}
	if l := binary.BigEndian.Uint32(tail[32:]); int64(l) != int64(len(f)) {
		return nil, badPack("footer of %d bytes says %d", len(f), l)
	}
	if string(tail[36:42]) != packMagic || binary.BigEndian.Uint16(tail[42:]) != packVersion {
		return nil, badPack("ends with %x", tail[36:])
	}
	return parseEntries(f[:n*packEntry], offset)
}

func parseEntries(b []byte, end int64) ([]PackEntry, error) {
	entries := make([]PackEntry, 0, len(b)/packEntry)
	next := int64(packHeader)
	for ; len(b) > 0; b = b[packEntry:] {
		e := PackEntry{
			Kind:   ChunkKind(b[32]),
			Offset: binary.BigEndian.Uint32(b[33:]),
			Length: binary.BigEndian.Uint32(b[37:]),
			Raw:    binary.BigEndian.Uint32(b[41:]),
		}
		copy(e.ID[:], b)
		if !e.Kind.valid() {
			return nil, badPack("chunk %s: %s", e.ID, e.Kind)
		}
		if err := checkSpan(e.Offset, e.Length, e.Raw); err != nil {
			return nil, badPack("chunk %s: %w", e.ID, err)
		}
		if int64(e.Offset) != next {
			return nil, badPack("chunk %s at offset %d, want %d", e.ID, e.Offset, next)
		}
		next += int64(e.Length)
		entries = append(entries, e)
	}
	if next != end {
		return nil, badPack("chunks end at %d, footer starts at %d", next, end)
	}
	return entries, nil
}

// ParsePack checks the frame of a whole pack (header, footer, checksum of the footer, entries that tile everything
// between) and returns its chunks in the order they lie. It does not decode them.
func ParsePack(body []byte) ([]PackEntry, error) {
	offset, length, err := parseHeader(body)
	if err != nil {
		return nil, err
	}
	if offset+length != int64(len(body)) {
		return nil, badPack("%d bytes, the header says %d", len(body), offset+length)
	}
	return parseFooter(body[offset:], offset)
}

// ReadFooter lists the chunks of a pack in the store with two range reads: the header, which says where the footer
// is, and the footer. It fails with ErrNotExist where there is no such pack, and never reads more than 3 MB.
func ReadFooter(ctx context.Context, store Store, p PackID) ([]PackEntry, error) {
	header, err := store.Get(ctx, p.Key(), 0, packHeader)
	if err != nil {
		return nil, fmt.Errorf("reading the header of pack %s: %w", p, err)
	}
	offset, length, err := parseHeader(header)
	if err != nil {
		return nil, fmt.Errorf("pack %s: %w", p, err)
	}
	footer, err := store.Get(ctx, p.Key(), offset, length)
	if err != nil {
		return nil, fmt.Errorf("reading the footer of pack %s: %w", p, err)
	}
	if int64(len(footer)) != length {
		return nil, fmt.Errorf("pack %s: %w", p, badPack("footer cut at %d of %d bytes", len(footer), length))
	}
	entries, err := parseFooter(footer, offset)
	if err != nil {
		return nil, fmt.Errorf("pack %s: %w", p, err)
	}
	return entries, nil
}
