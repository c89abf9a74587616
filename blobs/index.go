package blobs

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

// The chunk index format, version 1. docs/formats.md has the table.
const (
	indexMagic   = "WSFSIX"
	indexVersion = 1
	indexHeader  = 6 + 2 + 4 // magic, version, count
	indexFrame   = indexHeader + sha256.Size
)

// errIndex is wrapped by everything that is wrong with the bytes of an index object.
var errIndex = errors.New("damaged chunk index")

// EncodeIndex writes an index object: the chunks one commit added, in the given order, so that later writers know
// them. It is used for dedup only: reading never needs it, and losing one costs space, not data.
func EncodeIndex(refs []Ref) []byte {
	b := make([]byte, 0, indexFrame+len(refs)*RefSize)
	b = append(b, indexMagic...)
	b = binary.BigEndian.AppendUint16(b, indexVersion)
	b = binary.BigEndian.AppendUint32(b, uint32(len(refs)))
	for _, r := range refs {
		b = AppendRef(b, r)
	}
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

// DecodeIndex reads what EncodeIndex wrote. It refuses whatever is not exactly that, references no pack could
// satisfy included, because a wrong entry would make a writer leave out content it still holds.
func DecodeIndex(b []byte) ([]Ref, error) {
	if len(b) < indexFrame || string(b[:6]) != indexMagic {
		return nil, fmt.Errorf("%w: %d bytes that are no chunk index", errIndex, len(b))
	}
	if v := binary.BigEndian.Uint16(b[6:]); v != indexVersion {
		return nil, fmt.Errorf("%w: version %d, this program reads version %d", errIndex, v, indexVersion)
	}
	n := int64(binary.BigEndian.Uint32(b[8:]))
	if n*RefSize+indexFrame != int64(len(b)) {
		return nil, fmt.Errorf("%w: %d bytes for %d references", errIndex, len(b), n)
	}
	body, sum := b[:len(b)-sha256.Size], sha256.Sum256(b[:len(b)-sha256.Size])
	if !bytes.Equal(sum[:], b[len(body):]) {
		return nil, fmt.Errorf("%w: checksum does not match", errIndex)
	}
	refs := make([]Ref, 0, n)
	for rest := body[indexHeader:]; len(rest) > 0; {
		r, next, err := DecodeRef(rest)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errIndex, err)
		}
		if err := checkSpan(r.Offset, r.Length, r.Raw); err != nil {
			return nil, fmt.Errorf("%w: chunk %s: %w", errIndex, r.ID, err)
		}
		refs, rest = append(refs, r), next
	}
	return refs, nil
}
