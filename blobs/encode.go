package blobs

import (
	"errors"
	"fmt"
	"runtime"
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
	pageWindow   = 64 << 10 // of tree pages, which are shorter but for giant values
	decodeWindow = MaxChunk // zstd window a decoder accepts
)

// saves reports whether compressed is at least a sixteenth shorter than raw, which is what makes decompressing
// worth its time.
func saves(compressed, raw int) bool { return compressed <= raw-raw/16 && compressed < raw }

// The one encoder and the one decoder serve all goroutines: EncodeAll and DecodeAll keep no state between calls, and
// each has one set of buffers per processor, for which further callers wait. They are made when the program starts
// because they hold channels, which a test's synctest bubble may use but must not have made for others. The decoder
// takes the capacity of the destination as the limit of what a frame may decode to.
var (
	encoder     = newEncoder(zstd.SpeedFastest, codecs(), encodeWindow)
	pageEncoder = newEncoder(zstd.SpeedBetterCompression, 1, pageWindow)
	decoder     = newDecoder()
)

func newEncoder(level zstd.EncoderLevel, concurrency, window int) *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(level), zstd.WithEncoderConcurrency(concurrency),
		zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(window), zstd.WithEncoderCRC(false))
	if err != nil {
		panic(err) // constant options: wrong at build time or never
	}
	e.EncodeAll([]byte{0}, nil) // makes its channels now
	return e
}

func newDecoder() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(codecs()), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(decodeWindow), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		panic(err) // constant options
	}
	return d
}

// codecs is how many chunks may be encoded, and decoded, at once.
func codecs() int { return min(runtime.GOMAXPROCS(0), 16) }

// Encode appends the stored form of content to dst: an encoding byte, then zstd if that saves at least a sixteenth,
// else the content itself. It is deterministic within one version of the encoder only: nothing may depend on the
// bytes, which is why a chunk is named by its content. Content over 64 KiB whose samples do not compress is stored
// raw even if compressing it whole might have helped. Safe for concurrent use.
func Encode(dst, content []byte) []byte { return encode(encoder, dst, content) }

// encodeKind is Encode for content of a kind: tree pages, which are few and sent with every commit, are worth more time.
func encodeKind(kind ChunkKind, dst, content []byte) []byte {
	if kind == KindPage {
		return encode(pageEncoder, dst, content)
	}
	return encode(encoder, dst, content)
}

func encode(encoder *zstd.Encoder, dst, content []byte) []byte {
	start := len(dst)
	dst = append(dst, encodingZstd)
	if len(content) >= minCompress {
		if len(content) <= sampleAbove || promising(content) {
			out := encoder.EncodeAll(content, dst)
			if saves(len(out)-start-1, len(content)) {
				return out
			}
			dst = out[:start+1] // keep the room it grew
		}
	}
	dst[start] = encodingRaw
	return append(dst, content...)
}

var samples = sync.Pool{New: func() any { b := make([]byte, 0, 2*sampleCount*sampleSize+1024); return &b }}

// promising compresses a few evenly spread samples of content as one piece.
func promising(content []byte) bool {
	buf := samples.Get().(*[]byte)
	defer samples.Put(buf)
	sample := (*buf)[:0]
	step := (len(content) - sampleSize) / (sampleCount - 1)
	for i := range sampleCount {
		sample = append(sample, content[i*step:i*step+sampleSize]...)
	}
	return saves(len(encoder.EncodeAll(sample, sample[len(sample):])), len(sample))
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
	out, err := decoder.DecodeAll(payload, room[:len(dst):len(dst)+raw])
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
