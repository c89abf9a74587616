package blobs

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// ID names a chunk: the SHA-256 of its content before compression.
type ID [32]byte

// IDOf computes the ID of content.
func IDOf(content []byte) ID { return sha256.Sum256(content) }

func (id ID) String() string { return hex.EncodeToString(id[:]) }

// PackID names a pack: 128 random bits, so that a pack's chunks can point at each other before it is finished.
type PackID [16]byte

// NewPackID returns a fresh random PackID.
func NewPackID() PackID {
	var p PackID
	if _, err := rand.Read(p[:]); err != nil {
		panic(err) // crypto/rand never fails on a supported kernel
	}
	return p
}

func (p PackID) String() string { return hex.EncodeToString(p[:]) }

// Key is the object key of the pack.
func (p PackID) Key() string { s := p.String(); return "packs/" + s[:2] + "/" + s }

// Locator says where a chunk's stored form lies. It needs no index to be followed.
type Locator struct {
	Pack   PackID
	Offset uint32 // bytes from the start of the pack
	Length uint32 // bytes of the stored (perhaps compressed) form, encoding byte included
}

// Ref is a chunk with its locator: everything needed to read and verify it.
type Ref struct {
	ID ID
	Locator
	Raw uint32 // length of the content, bytes
}

// RefSize is the encoded size of a Ref.
const RefSize = 32 + 16 + 4 + 4 + 4

// AppendRef appends the fixed-size encoding of r: id, pack, offset, length, raw (integers big-endian).
func AppendRef(b []byte, r Ref) []byte {
	b = append(b, r.ID[:]...)
	b = append(b, r.Pack[:]...)
	b = binary.BigEndian.AppendUint32(b, r.Offset)
	b = binary.BigEndian.AppendUint32(b, r.Length)
	return binary.BigEndian.AppendUint32(b, r.Raw)
}

// DecodeRef reads what AppendRef wrote and returns the rest of b.
func DecodeRef(b []byte) (Ref, []byte, error) {
	var r Ref
	if len(b) < RefSize {
		return r, nil, fmt.Errorf("chunk reference: %d bytes, want %d", len(b), RefSize)
	}
	copy(r.ID[:], b)
	copy(r.Pack[:], b[32:])
	r.Offset = binary.BigEndian.Uint32(b[48:])
	r.Length = binary.BigEndian.Uint32(b[52:])
	r.Raw = binary.BigEndian.Uint32(b[56:])
	return r, b[RefSize:], nil
}
