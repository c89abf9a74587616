// Package open turns a store URL into a store. It is the only place besides tests that imports drivers.
package open

import (
	"context"
	"fmt"

	"wsfs/blobs"
	"wsfs/blobs/dir"
	"wsfs/blobs/limit"
	"wsfs/blobs/mem"
	"wsfs/blobs/minio"
	"wsfs/blobs/retry"
	"wsfs/blobs/s3"
)

// Options say what a URL does not. The zero value opens an existing store with the credentials of the environment.
type Options struct {
	// Create makes the bucket or directory if it does not exist.
	Create bool
	// AccessKey, SecretKey and SessionToken replace the credential chain of the S3 drivers where AccessKey is not
	// empty. They are for programs that hold credentials already, never for flags.
	AccessKey, SecretKey, SessionToken string
	// Retry and Limit configure the wrappers; their zero values are good for a real store.
	Retry retry.Options
	Limit limit.Options
	// Wrap, if not nil, goes right around the driver, below limit and retry: a count there sees what really goes out,
	// a fault there is retried as the driver's own would be.
	Wrap func(blobs.Store) blobs.Store
}

// Store opens the store at rawURL as retry(limit(Wrap(driver))). It does not ask whether the store can be reached,
// except that a missing directory is blobs.ErrNoStore here; the first request or blobs.Probe finds out the rest.
func Store(ctx context.Context, rawURL string, o Options) (blobs.Store, error) {
	loc, err := blobs.ParseURL(rawURL)
	if err != nil {
		return nil, err
	}
	s, err := driver(ctx, loc, o)
	if err != nil {
		return nil, err
	}
	if o.Wrap != nil {
		s = o.Wrap(s)
	}
	return retry.New(limit.New(s, o.Limit), o.Retry), nil
}

func driver(ctx context.Context, loc *blobs.Location, o Options) (blobs.Store, error) {
	switch loc.Scheme {
	case "s3", "r2":
		return s3.Open(ctx, loc, s3.Options{
			AccessKey: o.AccessKey, SecretKey: o.SecretKey, SessionToken: o.SessionToken, Create: o.Create,
		})
	case "minio":
		return minio.Open(ctx, loc, minio.Options{
			AccessKey: o.AccessKey, SecretKey: o.SecretKey, SessionToken: o.SessionToken, Create: o.Create,
		})
	case "dir":
		return dir.Open(ctx, loc, dir.Options{Create: o.Create})
	case "mem":
		return mem.Named(loc.Name), nil
	}
	return nil, fmt.Errorf("open %s: no driver for scheme %q", loc, loc.Scheme)
}
