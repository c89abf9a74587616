package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Codes of an Error that are not errno names. The command that builds the handler maps its own errors to them
// (Options.Classify).
const (
	CodeUsage       = "USAGE"       // the request itself is wrong
	CodeNotFound    = "NOTFOUND"    // no such store, workspace or mount
	CodeHeld        = "HELD"        // another writer holds the workspace, or the store is of a newer format
	CodeFenced      = "FENCED"      // another writer committed: this one is read-only for good
	CodeUnavailable = "UNAVAILABLE" // the store cannot be reached
	CodeDenied      = "DENIED"      // the store refused the credentials
	CodeDamaged     = "DAMAGED"     // a pack, a record or the journal is damaged
	CodeUnsynced    = "UNSYNCED"    // closed with work not yet in the store
	CodeCanceled    = "CANCELED"    // the client went away or a deadline passed
	CodeFailed      = "FAILED"      // anything else
)

// Error is the body of every failed request. It unwraps to the errno its Code names, so errors.Is(err,
// fs.ErrNotExist) works on both sides of the socket.
type Error struct {
	Message string `json:"error"`
	Code    string `json:"code"`           // an errno name such as ENOENT, or one of the Code constants
	Path    string `json:"path,omitempty"` // the workspace path concerned
}

// Error returns the message alone: it already names the path.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the errno the code names, nil if it names none.
func (e *Error) Unwrap() error {
	if n, ok := errnoByName[e.Code]; ok {
		return n
	}
	return nil
}

// errnoByName inverts unix.ErrnoName.
var errnoByName = func() map[string]syscall.Errno {
	m := make(map[string]syscall.Errno)
	for n := syscall.Errno(1); n < 134; n++ {
		if name := unix.ErrnoName(n); name != "" {
			m[name] = n
		}
	}
	return m
}()

// httpStatus gives each code its HTTP status; what is not listed is a 500.
var httpStatus = map[string]int{
	"ENOENT": 404, "ENODATA": 404, "EEXIST": 409, "ENOTEMPTY": 409, "EBUSY": 409,
	"EACCES": 403, "EPERM": 403, "EROFS": 403, "EINVAL": 400, "ENAMETOOLONG": 400, "ENOTDIR": 400, "EISDIR": 400,
	"ELOOP": 400, "EFBIG": 413, "EMLINK": 400, "EOPNOTSUPP": 501, "ENOSPC": 507, "EDQUOT": 507,
	CodeUsage: 400, CodeNotFound: 404, CodeHeld: 409, CodeFenced: 409, CodeUnavailable: 503, CodeDenied: 502,
	CodeCanceled: 499, CodeUnsynced: 503,
}

// pathError gives an inode-level error the path it is about.
func pathError(op, path string, err error) error {
	var pe *fs.PathError
	if err == nil || errors.As(err, &pe) {
		return err
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}

// asError turns any error into the body of the answer.
func (s *server) asError(err error) *Error {
	var ae *Error
	if errors.As(err, &ae) {
		return ae
	}
	e := &Error{Message: err.Error(), Code: CodeFailed}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		e.Path = pe.Path
	}
	if s.o.Classify != nil {
		if code := s.o.Classify(err); code != "" {
			e.Code = code
			return e
		}
	}
	var no syscall.Errno
	switch {
	case errors.As(err, &no) && unix.ErrnoName(no) != "":
		e.Code = unix.ErrnoName(no)
	case errors.Is(err, fs.ErrNotExist):
		e.Code = "ENOENT"
	case errors.Is(err, fs.ErrExist):
		e.Code = "EEXIST"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		e.Code = CodeCanceled
	}
	return e
}

// usageError is a request that names something impossible.
func usageError(format string, args ...any) *Error {
	return &Error{Message: fmt.Sprintf(format, args...), Code: CodeUsage}
}

func (s *server) fail(w http.ResponseWriter, err error) {
	e := s.asError(err)
	status, ok := httpStatus[e.Code]
	if !ok {
		status = http.StatusInternalServerError
	}
	reply(w, status, e)
}

// refuse answers an error to a request whose body is still on its way. Over a socket the client must be able to read
// the answer while it is still sending, so the answer goes out first and the rest of the body is dropped until the
// client has understood. In memory the client closes its end by itself.
func (s *server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	rc := http.NewResponseController(w)
	duplex := rc.EnableFullDuplex() == nil
	s.fail(w, err)
	if duplex && rc.Flush() == nil {
		_, _ = io.Copy(io.Discard, r.Body) // ends with an error when the client hangs up: that is the point
	}
}

// reply writes one JSON value. A client that is gone is not an error of ours.
func reply(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"error":"the answer cannot be encoded","code":"FAILED"}`)
	}
	body = append(body, '\n')
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// readError reads the body of a failed request.
func readError(resp *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return fmt.Errorf("reading the daemon's answer: %w", err)
	}
	e := new(Error)
	if err := json.Unmarshal(body, e); err != nil || e.Message == "" {
		return &Error{Message: fmt.Sprintf("the daemon answered %s: %.200q", resp.Status, body), Code: CodeFailed}
	}
	return e
}
