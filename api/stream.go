package api

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// A tree stream carries a directory tree both ways (put and get), in one pass, with no temporary copy. It is not tar
// because tar wants a file's size and its hole map before the first byte, and a file may be written meanwhile.
//
//	stream = magic frame* trailer
//	frame  = kind(1) length(4, big-endian, at most MaxFrame) payload(length)
//
//	kind  payload
//	'N'   JSON of a Node. Paths are relative to the path of the request; "" is that path itself. A directory comes
//	      before what is in it, a hard link after the node it names.
//	'D'   offset(8, big-endian) bytes: content of the regular file whose N came last. Offsets ascend; gaps are holes.
//	'Z'   size(8, big-endian): that file ends and is this long. Every regular file has exactly one.
//	'E'   JSON of an Error: something could not be read; the stream goes on without it.
//	'T'   JSON of a Totals: the stream is whole. Nothing follows.
//
// Example: the file "a" with the byte "x" is
//
//	4e 0000003c {"path":"YQ==","type":"file","mode":420,"mtime":1,...} 44 00000009 0000000000000000 78 5a 00000008 0000000000000001
const (
	// Magic starts every tree stream; the digit is the format version.
	Magic = "wsfs-tree-1\n"
	// ContentType is the media type of a tree stream.
	ContentType = "application/x-wsfs-tree"
	// MaxFrame is the longest payload of a frame, in bytes.
	MaxFrame = 4 << 20
	// MaxData is the longest content of one D frame a writer sends, in bytes.
	MaxData = 256 << 10
)

// File types of a Node and an Entry.
const (
	TypeFile    = "file"
	TypeDir     = "dir"
	TypeSymlink = "symlink"
	TypeFifo    = "fifo"
	TypeSocket  = "socket"
	TypeChar    = "char"
	TypeBlock   = "block"
	TypeLink    = "link" // tree streams only: a hard link to an earlier node
)

// Node is one file, directory or link in a tree stream. Names are bytes.
type Node struct {
	Path   []byte  `json:"path"`
	Type   string  `json:"type"`
	Mode   uint32  `json:"mode"` // permission bits, 0 to 07777
	UID    uint32  `json:"uid"`
	GID    uint32  `json:"gid"`
	Mtime  int64   `json:"mtime"`           // ns since 1970 UTC
	Atime  int64   `json:"atime,omitempty"` // ns since 1970 UTC
	Size   int64   `json:"size,omitempty"`  // regular files: the size when it was opened, for progress; Z is the truth
	Rdev   uint32  `json:"rdev,omitempty"`  // char and block
	Target []byte  `json:"target,omitempty"`
	Link   []byte  `json:"link,omitempty"` // TypeLink: the Path of the earlier node
	Xattrs []Xattr `json:"xattrs,omitempty"`
}

// Xattr is one extended attribute.
type Xattr struct {
	Name  []byte `json:"name"`
	Value []byte `json:"value"`
}

// Totals is what a tree stream held, and the answer to a put.
type Totals struct {
	Nodes  int64    `json:"nodes"`
	Bytes  int64    `json:"bytes"` // content, holes not counted
	Errors []*Error `json:"errors,omitempty"`
}

// ErrStream: a tree stream breaks its own rules, or ends before its trailer.
var ErrStream = errors.New("broken tree stream")

// TreeWriter writes a tree stream. Not for concurrent use.
type TreeWriter struct {
	w      *bufio.Writer
	totals Totals
	head   [5 + 8]byte
}

// NewTreeWriter starts a stream on w. Close ends it.
func NewTreeWriter(w io.Writer) (*TreeWriter, error) {
	t := &TreeWriter{w: bufio.NewWriterSize(w, 512<<10)}
	if _, err := t.w.WriteString(Magic); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *TreeWriter) frame(kind byte, payload []byte) error {
	t.head[0] = kind
	binary.BigEndian.PutUint32(t.head[1:], uint32(len(payload)))
	if len(payload) > MaxFrame {
		return fmt.Errorf("%w: a frame of %d bytes; at most %d fit", ErrStream, len(payload), MaxFrame)
	}
	if _, err := t.w.Write(t.head[:5]); err != nil {
		return err
	}
	_, err := t.w.Write(payload)
	return err
}

func (t *TreeWriter) json(kind byte, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return t.frame(kind, b)
}

// Node writes one node. After a regular file come its Data calls and one End.
func (t *TreeWriter) Node(n *Node) error {
	t.totals.Nodes++
	return t.json('N', n)
}

// Data writes content of the file begun last: p belongs at offset off. p is at most MaxData bytes.
func (t *TreeWriter) Data(off int64, p []byte) error {
	t.head[0] = 'D'
	binary.BigEndian.PutUint32(t.head[1:], uint32(8+len(p)))
	binary.BigEndian.PutUint64(t.head[5:], uint64(off))
	if _, err := t.w.Write(t.head[:]); err != nil {
		return err
	}
	t.totals.Bytes += int64(len(p))
	_, err := t.w.Write(p)
	return err
}

// End ends a regular file of size bytes.
func (t *TreeWriter) End(size int64) error {
	return t.frame('Z', binary.BigEndian.AppendUint64(nil, uint64(size)))
}

// Skip records something that could not be read.
func (t *TreeWriter) Skip(e *Error) error {
	t.totals.Errors = append(t.totals.Errors, e)
	return t.json('E', e)
}

// Flush sends what is buffered.
func (t *TreeWriter) Flush() error { return t.w.Flush() }

// Close writes the trailer and flushes. The writer below is not closed.
func (t *TreeWriter) Close() error {
	if err := t.json('T', Totals{Nodes: t.totals.Nodes, Bytes: t.totals.Bytes}); err != nil {
		return err
	}
	return t.w.Flush()
}

// Totals is what was written so far.
func (t *TreeWriter) Totals() Totals { return t.totals }

// TreeReader reads a tree stream. Not for concurrent use.
type TreeReader struct {
	r      *bufio.Reader
	buf    []byte
	totals Totals
	inFile bool
	size   int64
	done   bool
}

// NewTreeReader checks the magic and returns a reader of the stream on r.
func NewTreeReader(r io.Reader) (*TreeReader, error) {
	t := &TreeReader{r: bufio.NewReaderSize(r, 512<<10)}
	got := make([]byte, len(Magic))
	if _, err := io.ReadFull(t.r, got); err != nil || string(got) != Magic {
		return nil, fmt.Errorf("%w: it does not start with %q", ErrStream, Magic)
	}
	return t, nil
}

// next reads one frame. The payload is valid until the next call.
func (t *TreeReader) next() (byte, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(t.r, head[:]); err != nil {
		return 0, nil, cut(err)
	}
	n := int(binary.BigEndian.Uint32(head[1:]))
	if n > MaxFrame {
		return 0, nil, fmt.Errorf("%w: a frame of %d bytes; at most %d are allowed", ErrStream, n, MaxFrame)
	}
	if cap(t.buf) < n {
		t.buf = make([]byte, n, max(n, 2*cap(t.buf)))
	}
	t.buf = t.buf[:n]
	if _, err := io.ReadFull(t.r, t.buf); err != nil {
		return 0, nil, cut(err)
	}
	return head[0], t.buf, nil
}

func cut(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("%w: it ends in the middle", ErrStream)
	}
	return err
}

// Next returns the next node, io.EOF after the trailer. Content of the node before that was not read is skipped.
// Skipped nodes of the sender are collected in Totals.
func (t *TreeReader) Next() (*Node, error) {
	for t.inFile {
		if _, _, err := t.Data(); err != nil && err != io.EOF {
			return nil, err
		}
	}
	for !t.done {
		kind, payload, err := t.next()
		if err != nil {
			return nil, err
		}
		switch kind {
		case 'N':
			return t.node(payload)
		case 'E':
			e := new(Error)
			if err := json.Unmarshal(payload, e); err != nil {
				return nil, fmt.Errorf("%w: an error record: %v", ErrStream, err)
			}
			t.totals.Errors = append(t.totals.Errors, e)
		case 'T':
			return nil, t.trailer(payload)
		default:
			return nil, fmt.Errorf("%w: a frame of kind %q between nodes", ErrStream, kind)
		}
	}
	return nil, io.EOF
}

func (t *TreeReader) trailer(payload []byte) error {
	var sent Totals
	if err := json.Unmarshal(payload, &sent); err != nil {
		return fmt.Errorf("%w: the trailer: %v", ErrStream, err)
	}
	if sent.Nodes != t.totals.Nodes || sent.Bytes != t.totals.Bytes {
		return fmt.Errorf("%w: %d nodes and %d bytes came, %d and %d were sent", ErrStream,
			t.totals.Nodes, t.totals.Bytes, sent.Nodes, sent.Bytes)
	}
	t.done = true
	return io.EOF
}

func (t *TreeReader) node(payload []byte) (*Node, error) {
	n := new(Node)
	if err := json.Unmarshal(payload, n); err != nil {
		return nil, fmt.Errorf("%w: a node: %v", ErrStream, err)
	}
	if err := checkNode(n); err != nil {
		return nil, err
	}
	t.totals.Nodes++
	t.inFile, t.size = n.Type == TypeFile, 0
	return n, nil
}

// Data returns the next piece of content of the file Next returned, and io.EOF at its end; Size is right from then
// on. The bytes are valid until the next call.
func (t *TreeReader) Data() (off int64, p []byte, err error) {
	if !t.inFile {
		return 0, nil, io.EOF
	}
	kind, payload, err := t.next()
	if err != nil {
		return 0, nil, err
	}
	if (kind != 'D' && kind != 'Z') || len(payload) < 8 {
		return 0, nil, fmt.Errorf("%w: a frame of kind %q and %d bytes inside a file", ErrStream, kind, len(payload))
	}
	v := int64(binary.BigEndian.Uint64(payload))
	n := int64(len(payload) - 8)
	if v < t.size || v+n < v {
		return 0, nil, fmt.Errorf("%w: content at %d after %d", ErrStream, v, t.size)
	}
	t.size = v + n
	if kind == 'Z' {
		t.inFile = false
		return 0, nil, io.EOF
	}
	t.totals.Bytes += n
	return v, payload[8:], nil
}

// Size is the size of the file whose content was read to its end, in bytes.
func (t *TreeReader) Size() int64 { return t.size }

// Totals is what was read so far, with the errors the sender reported.
func (t *TreeReader) Totals() Totals { return t.totals }

// checkNode refuses paths that could leave the place they are written to, and types nobody knows.
func checkNode(n *Node) error {
	for _, p := range [][]byte{n.Path, n.Link} {
		if len(p) == 0 {
			continue
		}
		for c := range strings.SplitSeq(string(p), "/") {
			if c == "" || c == "." || c == ".." || strings.IndexByte(c, 0) >= 0 {
				return fmt.Errorf("%w: path %q has an empty, dot or NUL component", ErrStream, p)
			}
		}
	}
	switch n.Type {
	case TypeFile, TypeDir, TypeSymlink, TypeFifo, TypeSocket, TypeChar, TypeBlock, TypeLink:
		return nil
	}
	return fmt.Errorf("%w: %q is of unknown type %q", ErrStream, n.Path, n.Type)
}
