package blobs

import (
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/restic/chunker"
)

// Bounds of a chunk's content, in bytes. A file of at most MinChunk bytes is one chunk; a larger one is cut where
// its content says so, about every 1 to 1.5 MiB. No chunk of a pack is ever longer than MaxChunk: every decoder
// relies on it to bound its memory.
const (
	MinChunk = 512 << 10
	MaxChunk = 8 << 20
)

// polynomialDegree is what restic/chunker draws and the largest degree its tables can serve.
const polynomialDegree = 53

// Polynomial is the irreducible polynomial over GF(2) that decides where a store's files are cut. Each store draws
// its own at init: with a known polynomial, chunk lengths would tell which files a store holds. It is part of the
// format: with another one nothing written later shares chunks with what is there.
type Polynomial uint64

// NewPolynomial draws a random irreducible polynomial of degree 53.
func NewPolynomial() (Polynomial, error) {
	p, err := chunker.RandomPolynomial()
	if err != nil {
		return 0, fmt.Errorf("drawing a chunker polynomial: %w", err)
	}
	return Polynomial(p), nil
}

// Validate reports whether p can cut files: irreducible and of degree 53.
func (p Polynomial) Validate() error {
	pol := chunker.Pol(p)
	if pol.Deg() != polynomialDegree {
		return fmt.Errorf("chunker polynomial %s: degree %d, want %d", p, pol.Deg(), polynomialDegree)
	}
	if !pol.Irreducible() {
		return fmt.Errorf("chunker polynomial %s: not irreducible", p)
	}
	return nil
}

func (p Polynomial) String() string { return strconv.FormatUint(uint64(p), 16) }

// MarshalText writes p in hexadecimal: as a JSON number it would not survive a reader that keeps numbers as floats.
func (p Polynomial) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads what MarshalText wrote and validates it.
func (p *Polynomial) UnmarshalText(b []byte) error {
	v, err := strconv.ParseUint(string(b), 16, 64)
	if err != nil {
		return fmt.Errorf("chunker polynomial %q: not a hexadecimal number", b)
	}
	if err := Polynomial(v).Validate(); err != nil {
		return err
	}
	*p = Polynomial(v)
	return nil
}

// Chunker cuts files into chunks with restic's Rabin fingerprint (window 64 bytes, average 1 MiB after the minimum).
// The same content under the same polynomial is always cut the same way. A Chunker keeps its buffers between files
// (up to 9 MiB) and serves one Split at a time.
type Chunker struct {
	pol   chunker.Pol
	err   error // why pol cannot be used; every Split returns it
	rabin *chunker.Chunker
	buf   []byte // content of the chunk being handed out
}

// NewChunker returns a Chunker for one store's polynomial. A polynomial that cannot be used is reported by Split.
func NewChunker(pol Polynomial) *Chunker {
	c := &Chunker{pol: chunker.Pol(pol)}
	if c.pol.Deg() != polynomialDegree { // irreducibility is Validate's: it costs too much to repeat per Chunker
		c.err = pol.Validate()
	}
	return c
}

// Split reads exactly size bytes from r and calls fn with each chunk in order; offset is where the chunk's content
// starts in r, and content is valid only during the call. fn is not called when size is 0. The first error of r or
// fn ends the split and is returned as it is; r ending before size bytes gives io.ErrUnexpectedEOF.
func (c *Chunker) Split(r io.Reader, size int64, fn func(offset int64, content []byte) error) error {
	switch {
	case c.err != nil:
		return c.err
	case size < 0:
		return fmt.Errorf("splitting into chunks: negative size %d", size)
	case size == 0:
		return nil
	case size <= MinChunk:
		return c.single(r, int(size), fn)
	}
	return c.cut(io.LimitReader(r, size), size, fn)
}

// single hands out a whole small file as one chunk, without fingerprinting.
func (c *Chunker) single(r io.Reader, size int, fn func(int64, []byte) error) error {
	if cap(c.buf) < size {
		c.buf = make([]byte, max(size, 64<<10))
	}
	content := c.buf[:size]
	if _, err := io.ReadFull(r, content); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	return fn(0, content)
}

func (c *Chunker) cut(r io.Reader, size int64, fn func(int64, []byte) error) error {
	if c.rabin == nil {
		c.rabin = chunker.NewWithBoundaries(r, c.pol, MinChunk, MaxChunk)
	} else {
		c.rabin.ResetWithBoundaries(r, c.pol, MinChunk, MaxChunk)
	}
	var offset int64
	for {
		chunk, err := c.rabin.Next(c.buf[:0])
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		c.buf = chunk.Data // Next may have grown it
		if err := fn(offset, chunk.Data); err != nil {
			return err
		}
		offset += int64(len(chunk.Data))
	}
	if offset != size {
		return io.ErrUnexpectedEOF
	}
	return nil
}
