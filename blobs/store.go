package blobs

import (
	"context"
	"errors"
	"io/fs"
	"net/url"
	"time"
)

// Errors every driver and wrapper reports, matched with errors.Is. A driver wraps them with what was being done
// and the key; no caller ever matches text.
var (
	// ErrNotExist: no object has this key. It is fs.ErrNotExist, so callers may match either.
	ErrNotExist = fs.ErrNotExist
	// ErrExist: PutIfAbsent found an object under the key, whoever put it there. The object is unchanged.
	ErrExist = fs.ErrExist
	// ErrNoStore: the bucket or the directory itself is missing.
	ErrNoStore = errors.New("store does not exist")
	// ErrDenied: the credentials are missing, wrong, expired or not allowed to do this.
	ErrDenied = errors.New("access denied")
	// ErrUnavailable: the store could not be reached or answered with a passing fault; the same call may
	// succeed later. Retry wraps what is left after its budget in this.
	ErrUnavailable = errors.New("store unavailable")
	// ErrClockSkew: the store refused the request because this host's clock is too far off.
	ErrClockSkew = errors.New("clock skew")
	// ErrUnsupported: the store cannot do this (presign on mem:, conditional put on an old server).
	ErrUnsupported = errors.New("not supported by this store")
)

// Object is what List tells of one object.
type Object struct {
	Key      string
	Size     int64     // bytes
	Modified time.Time // by the store's clock; zero if the store does not say
}

// Store is the driver contract: a flat set of objects under one prefix of one bucket or directory.
// Keys are relative to that prefix, 1 to 700 bytes of [A-Za-z0-9._-/], no component over 200 bytes, never empty
// components, and no key is ever a prefix directory of another.
//
// Every method is safe for concurrent use, honours its context, and leaves no partial object behind: a Put that
// fails or is cancelled either stored the whole body or nothing a Get can see.
type Store interface {
	// Get returns length bytes of the object from offset; length < 0 means to the end. Fewer bytes are
	// returned only where the object ends. An offset past the end gives an empty result, no error.
	Get(ctx context.Context, key string, offset, length int64) ([]byte, error)
	// Put stores body under key, replacing what was there. The caller must not change body meanwhile.
	Put(ctx context.Context, key string, body []byte) error
	// PutIfAbsent stores body only if no object has the key, atomically against every other writer: of any
	// number of concurrent calls exactly one succeeds and the others return ErrExist. A driver never retries
	// this call by itself (see Retry, which knows how to).
	PutIfAbsent(ctx context.Context, key string, body []byte) error
	// Delete removes the object; deleting one that is not there is no error.
	Delete(ctx context.Context, key string) error
	// List returns up to limit objects (limit <= 0: 1000, at most 1000) whose key starts with prefix and is
	// greater than after, in byte order of the key. A result shorter than limit is the last page.
	List(ctx context.Context, prefix, after string, limit int) ([]Object, error)
	// Presign returns a URL from which anybody can GET the object until expires from now (1 s to 7 days).
	Presign(ctx context.Context, key string, expires time.Duration, p PresignOptions) (*url.URL, error)
	// URL names the store the way Open was given it, without secrets: for messages and status.
	URL() string
}

// PresignOptions are the response headers a presigned URL asks the store to answer with; empty means the store's own.
type PresignOptions struct {
	ContentType        string
	ContentDisposition string
}
