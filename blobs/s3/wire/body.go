package wire

import (
	"fmt"
	"io"
	"net/http"

	"wsfs/blobs"
)

// maxOffset is beyond the end of any object (S3's largest has 5 TiB).
const maxOffset = 1 << 50

// Range is the Range header for length bytes from offset; length < 0 means to the end and the whole object needs no
// header. A length of 0 has no form of its own: it asks for one byte, for the caller to drop.
func Range(offset, length int64) string {
	switch {
	case offset == 0 && length < 0:
		return ""
	case length < 0, length > maxBody, offset > maxOffset:
		// No object is that long, and servers add 1 to the last byte's number: keep away from the largest int64.
		return fmt.Sprintf("bytes=%d-", offset)
	}
	return fmt.Sprintf("bytes=%d-%d", offset, offset+max(length, 1)-1)
}

// maxBody bounds what a wrong Content-Length can make ReadBody allocate ahead of the data.
const maxBody = 256 << 20

// ReadBody reads a body of size bytes (size < 0: not known). A body that ends early is io.ErrUnexpectedEOF.
func ReadBody(r io.Reader, size int64) ([]byte, error) {
	if size < 0 || size > maxBody {
		return io.ReadAll(r)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		if err == io.EOF && size > 0 {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("read %d bytes: %w", size, err)
	}
	return body, nil
}

// PutError finishes the mapping of a put's error: only a conditional put can meet an object, and a server that does
// not know the condition says 501 or 400 instead of answering it.
func PutError(err error, f Fault, conditional bool) error {
	if err == nil {
		return nil
	}
	unknown := f.Status == http.StatusNotImplemented ||
		f.Status == http.StatusBadRequest && (f.Code == "InvalidArgument" || f.Code == "InvalidRequest" || f.Code == "NotImplemented" || f.Code == "")
	if conditional && unknown {
		return fmt.Errorf("%w: the server refuses If-None-Match: %w", blobs.ErrUnsupported, err)
	}
	return err
}
