package blobs

import (
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// The encoding byte that starts a chunk's stored form.
const (
	encodingRaw  = 0 // the content itself
	encodingZstd = 1 // one zstd frame
)

const (
	minCompress  = 64       // shorter content is stored raw without trying
	sampleAbove  = 64 << 10 // longer content is sampled before it is compressed whole
	sampleSize   = 4 << 10  // bytes of one sample
	sampleCount  = 4        // samples, evenly spread
	encodeWindow = 1 << 20  // zstd window: bounds an encoder's history buffer
	maxDecode    = MaxChunk // zstd window a decoder accepts
)

// saves reports whether compressed is at least a sixteenth shorter than raw, which is what makes decompressing
// worth its time.
func saves(compressed, raw int) bool { return compressed <= raw-raw/16 && compressed < raw }

// encoder is a zstd encoder with room for samples. One goroutine at a time uses it.
type encoder struct {
	zstd   *zstd.Encoder
	sample []byte
	out    []byte
}

var encoders = sync.Pool{New: func() any {
	z, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(encodeWindow), zstd.WithEncoderCRC(false))
	if err != nil {
		panic(err) // constant options: wrong at build time or never
	}
	return &encoder{zstd: z}
}}

// decoder serves all goroutines; DecodeAll keeps no state between calls. The capacity of the destination is the
// limit of what a frame may decode to.
var decoder = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxDecode), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		panic(err) // constant options
	}
	return d
})

// Encode appends the stored form of content to dst: an encoding byte, then zstd if that saves at least a sixteenth,
// else the content itself. It is deterministic within one version of the encoder only: nothing may depend on the
// bytes, which is why a chunk is named by its content. Content over 64 KiB whose samples do not compress is stored
// raw even if compressing it whole might have helped. Safe for concurrent use.
func Encode(dst, content []byte) []byte {
	start := len(dst)
	dst = append(dst, encodingZstd)
	if len(content) >= minCompress {
		e := encoders.Get().(*encoder)
		defer encoders.Put(e)
		if len(content) <= sampleAbove || e.promising(content) {
			out := e.zstd.EncodeAll(content, dst)
			if saves(len(out)-start-1, len(content)) {
				return out
			}
			dst = out[:start+1] // keep the room it grew
		}
	}
	dst[start] = encodingRaw
	return append(dst, content...)
}

// promising compresses a few evenly spread samples of content as one piece.
func (e *encoder) promising(content []byte) bool {
	e.sample = e.sample[:0]
	step := (len(content) - sampleSize) / (sampleCount - 1)
	for i := range sampleCount {
		e.sample = append(e.sample, content[i*step:i*step+sampleSize]...)
	}
	e.out = e.zstd.EncodeAll(e.sample, e.out[:0])
	return saves(len(e.out), len(e.sample))
}

var errEncoding = errors.New("unknown encoding")

// Decode appends the content of a stored form to dst. raw is the length the content must have; no more than that is
// ever allocated or written, whatever stored claims, and anything but exactly raw bytes is an error. On an error the
// returned slice is dst as it was. Safe for concurrent use. It proves nothing about the content: see Reader.
func Decode(dst, stored []byte, raw uint32) ([]byte, error) {
	if raw > MaxChunk {
		return dst, fmt.Errorf("decoding a chunk: content of %d bytes, at most %d allowed", raw, MaxChunk)
	}
	if len(stored) == 0 {
		return dst, errors.New("decoding a chunk: stored form is empty")
	}
	payload := stored[1:]
	switch stored[0] {
	case encodingRaw:
		if len(payload) != int(raw) {
			return dst, fmt.Errorf("decoding a chunk: %d bytes, want %d", len(payload), raw)
		}
		return append(dst, payload...), nil
	case encodingZstd:
		return inflate(dst, payload, int(raw))
	}
	return dst, fmt.Errorf("decoding a chunk: encoding %d: %w", stored[0], errEncoding)
}

func inflate(dst, payload []byte, raw int) ([]byte, error) {
	room := dst
	if cap(dst)-len(dst) < raw {
		room = make([]byte, len(dst), len(dst)+raw)
		copy(room, dst)
	}
	out, err := decoder().DecodeAll(payload, room[:len(dst):len(dst)+raw])
	if err != nil {
		return dst, fmt.Errorf("decoding a chunk: %w", err)
	}
	if len(out)-len(dst) != raw {
		return dst, fmt.Errorf("decoding a chunk: %d bytes, want %d", len(out)-len(dst), raw)
	}
	return out, nil
}

// decodeView is Decode without the copy: the result may alias stored, or be built in scratch.
func decodeView(scratch, stored []byte, raw uint32) ([]byte, error) {
	if len(stored) > 0 && stored[0] == encodingRaw && len(stored)-1 == int(raw) && raw <= MaxChunk {
		return stored[1:], nil
	}
	return Decode(scratch[:0], stored, raw)
}
