package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"path"
	"syscall"
	"time"

	"wsfs"
)

// cat answers the content of a regular file; http.ServeContent does the ranges.
func (s *server) cat(w http.ResponseWriter, r *http.Request, q query) error {
	ctx, p := r.Context(), q.path("path")
	a, h, err := s.open(ctx, p)
	if err != nil {
		return err
	}
	defer h.Close()
	w.Header().Set("Content-Type", octets)
	content := io.NewSectionReader(reader{ctx, h}, 0, a.Size)
	http.ServeContent(w, r, "", time.Unix(0, a.Mtime), content)
	return nil
}

func (s *server) open(ctx context.Context, p string) (wsfs.Attr, *wsfs.Handle, error) {
	a, err := s.w.Stat(ctx, p)
	if err != nil {
		return a, nil, err
	}
	switch {
	case a.IsDir():
		return a, nil, pathError("cat", p, syscall.EISDIR)
	case !a.IsRegular():
		return a, nil, pathError("cat", p, syscall.EINVAL)
	}
	h, err := s.w.OpenInode(ctx, a.Ino, wsfs.OpenOptions{})
	return a, h, pathError("open", p, err)
}

// reader makes a handle an io.ReaderAt.
type reader struct {
	ctx context.Context
	h   *wsfs.Handle
}

func (r reader) ReadAt(p []byte, off int64) (int, error) {
	n, err := r.h.ReadAt(r.ctx, p, off)
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

// putFile stores the body under a name. A body that breaks off changes nothing.
func (s *server) putFile(w http.ResponseWriter, r *http.Request, q query) error {
	ctx, p := r.Context(), q.path("path")
	n := &Node{Type: TypeFile, Mode: 0o644, Mtime: time.Now().UnixNano()}
	switch old, err := s.w.Stat(ctx, p); {
	case err == nil && old.IsDir():
		return pathError("put", p, syscall.EISDIR)
	case err == nil:
		n.Mode, n.UID, n.GID = old.Mode&07777, old.UID, old.GID
	case !errors.Is(err, syscall.ENOENT):
		return err
	}
	n.Mode = q.octal("mode", n.Mode)
	t, err := s.newSink(ctx, p)
	if err != nil {
		return err
	}
	var size int64
	err = t.put(ctx, n, func(ctx context.Context, h *wsfs.Handle) (int64, error) {
		var err error
		size, err = fill(ctx, h, r.Body)
		return size, err
	})
	if err != nil {
		return err
	}
	reply(w, http.StatusOK, Totals{Nodes: 1, Bytes: size})
	return nil
}

// fill writes all of r to the file and returns its length in bytes.
func fill(ctx context.Context, h *wsfs.Handle, r io.Reader) (int64, error) {
	buf := make([]byte, MaxData)
	var off int64
	for have := 0; ; {
		n, err := r.Read(buf[have:])
		have += n
		if have == len(buf) || err == io.EOF && have > 0 {
			if err := writeAll(ctx, h, buf[:have], off); err != nil {
				return off, err
			}
			off, have = off+int64(have), 0
		}
		if err == io.EOF {
			return off, nil
		}
		if err != nil {
			return off, err
		}
	}
}

func writeAll(ctx context.Context, h *wsfs.Handle, p []byte, off int64) error {
	for len(p) > 0 {
		n, err := h.WriteAt(ctx, p, off)
		if err != nil {
			return err
		}
		if n == 0 {
			return io.ErrShortWrite
		}
		p, off = p[n:], off+int64(n)
	}
	return nil
}

// getTree answers a tree stream. What cannot be read is skipped and told in the stream.
func (s *server) getTree(w http.ResponseWriter, r *http.Request, q query) error {
	ctx, p := r.Context(), q.path("path")
	a, err := s.w.Lstat(ctx, p)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", ContentType)
	out, err := NewTreeWriter(w)
	if err != nil {
		return s.broken(w, err)
	}
	buf := make([]byte, MaxData)
	err = s.walk(ctx, p, "", a, make(map[wsfs.Ino][]byte), func(n *Node, a wsfs.Attr) error {
		if n.Type != TypeFile {
			return out.Node(n)
		}
		return s.sendFile(ctx, path.Join(p, string(n.Path)), n, a, out, buf)
	})
	if err == nil {
		err = out.Close()
	}
	if err != nil {
		return s.broken(w, err)
	}
	return nil
}

// broken ends an answer that has begun, so that the client sees it as cut short rather than whole.
func (s *server) broken(w http.ResponseWriter, err error) error {
	s.o.Log.Warn("an answer broke off", "error", err)
	panic(http.ErrAbortHandler)
}

// sendFile sends one regular file. A file that cannot be opened is skipped; one that cannot be read to its end ends
// the stream, for the receiver must not take half a file for a whole one.
func (s *server) sendFile(ctx context.Context, p string, n *Node, a wsfs.Attr, out *TreeWriter, buf []byte) error {
	h, err := s.w.OpenInode(ctx, a.Ino, wsfs.OpenOptions{})
	if err != nil {
		return out.Skip(s.asError(pathError("open", p, err)))
	}
	defer h.Close()
	if err := out.Node(n); err != nil {
		return err
	}
	sparse := a.Blocks*512 < a.Size
	for off := int64(0); off < a.Size; {
		start, end := off, a.Size
		if sparse {
			if start, end, err = dataRange(ctx, h, off, a.Size); err != nil {
				return pathError("seek", p, err)
			}
		}
		if err := sendRange(ctx, h, start, end, out, buf); err != nil {
			return pathError("read", p, err)
		}
		off = max(end, off+1)
	}
	return out.End(a.Size)
}

func sendRange(ctx context.Context, h *wsfs.Handle, off, end int64, out *TreeWriter, buf []byte) error {
	for off < end {
		n, err := h.ReadAt(ctx, buf[:min(int64(len(buf)), end-off)], off)
		if err != nil {
			return err
		}
		if n == 0 {
			return nil // became shorter: the rest is sent as a hole
		}
		if err := out.Data(off, buf[:n]); err != nil {
			return err
		}
		off += int64(n)
	}
	return nil
}

// putTree stores a tree stream. Errors of the stream end it; what was stored before stays.
func (s *server) putTree(w http.ResponseWriter, r *http.Request, q query) error {
	ctx := r.Context()
	in, err := NewTreeReader(r.Body)
	if err != nil {
		return &Error{Message: err.Error(), Code: CodeUsage}
	}
	t, err := s.newSink(ctx, q.path("path"))
	if err != nil {
		return err
	}
	for {
		n, err := in.Next()
		if err == io.EOF {
			break
		}
		if err == nil {
			err = t.put(ctx, n, func(ctx context.Context, h *wsfs.Handle) (int64, error) { return receive(ctx, h, in) })
		}
		if err != nil {
			t.abandon()
			return err
		}
	}
	if err := t.close(ctx); err != nil {
		return err
	}
	reply(w, http.StatusOK, in.Totals())
	return nil
}

// receive writes the content of the stream's current file and returns its size in bytes.
func receive(ctx context.Context, h *wsfs.Handle, in *TreeReader) (int64, error) {
	for {
		off, p, err := in.Data()
		if err == io.EOF {
			return in.Size(), nil
		}
		if err != nil {
			return 0, err
		}
		if err := writeAll(ctx, h, p, off); err != nil {
			return 0, err
		}
	}
}
