package blobs

import (
	"fmt"
	"slices"
	"sync"
)

// scratches holds buffers for decoding a chunk that is only hashed.
var scratches = sync.Pool{New: func() any { b := make([]byte, 0, 2*MinChunk); return &b }}

// verifyPack reads a finished pack the way a reader of the store would: parse it, compare what it lists with what
// was meant to be in it, decode and hash every chunk. It costs one pass of decoding and SHA-256 and is the last
// chance to notice a broken encoder or broken memory while the content still exists elsewhere.
func verifyPack(body []byte, want []PackEntry) error {
	got, err := ParsePack(body)
	if err != nil {
		return err
	}
	if !slices.Equal(got, want) {
		return badPack("lists %d chunks that differ from the %d put in", len(got), len(want))
	}
	scratch := scratches.Get().(*[]byte)
	defer scratches.Put(scratch)
	for _, e := range got {
		stored := body[e.Offset : e.Offset+e.Length]
		content, err := decodeView(*scratch, stored, e.Raw)
		if err != nil {
			return badPack("chunk %s: %w", e.ID, err)
		}
		if id := IDOf(content); id != e.ID {
			return badPack("chunk %s decodes to content named %s", e.ID, id)
		}
		if stored[0] != encodingRaw && cap(content) > cap(*scratch) {
			*scratch = content[:0]
		}
	}
	return nil
}

// verifyChunk decodes a stored form and proves that it is the chunk asked for. The result may alias stored.
func verifyChunk(stored []byte, ref Ref) ([]byte, error) {
	content, err := decodeView(nil, stored, ref.Raw)
	if err != nil {
		return nil, err
	}
	if id := IDOf(content); id != ref.ID {
		return nil, fmt.Errorf("content is named %s", id)
	}
	return content, nil
}
