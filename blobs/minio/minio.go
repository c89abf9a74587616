// Package minio is the driver for MinIO and what speaks like it, over minio-go: minio: URLs.
//
// Credentials come from minio-go's usual chain, in this order: MINIO_ROOT_USER / MINIO_ACCESS_KEY and their secrets,
// the AWS environment, the AWS credentials file, the configuration of mc, the machine's role. The SDK's own retries
// are off: package retry does that.
//
// The driver sends no checksum trailer: some servers (rclone's) refuse `x-amz-checksum-algorithm`. Over plain HTTP
// each body is signed by its SHA-256; over TLS the connection protects it.
//
// Warning: PutIfAbsent is `If-None-Match: *`. A server that ignores the header replaces the object and says 200.
// blobs.Probe finds that out; this package cannot.
package minio

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"wsfs/blobs"
	"wsfs/blobs/s3/wire"
)

// Options say what a URL does not.
type Options struct {
	// AccessKey, SecretKey and SessionToken replace the credential chain where AccessKey is not empty.
	AccessKey, SecretKey, SessionToken string
	// Create makes the bucket if it does not exist.
	Create bool
	// Transport replaces the driver's own HTTP transport; nil for wire.NewTransport.
	Transport http.RoundTripper
}

// Store is a blobs.Store in one bucket.
type Store struct {
	core  *minio.Core
	creds *credentials.Credentials

	url    string
	bucket string
	root   string // the prefix with its closing slash; empty for the whole bucket
	secure bool
}

var _ blobs.Store = (*Store)(nil)

// Open returns the store at loc, whose scheme is minio. It talks to nobody, unless o.Create asks for the bucket; a
// missing bucket or wrong credentials show with the first request.
func Open(ctx context.Context, loc *blobs.Location, o Options) (*Store, error) {
	transport := o.Transport
	if transport == nil {
		transport = wire.NewTransport()
	}
	region := loc.Region
	if region == "" {
		region = "us-east-1" // MinIO's own default; without one the SDK asks for the bucket's location first
	}
	creds := credentials.New(chain())
	if o.AccessKey != "" {
		creds = credentials.NewStaticV4(o.AccessKey, o.SecretKey, o.SessionToken)
	}
	core, err := minio.NewCore(loc.Endpoint, &minio.Options{
		Creds: creds, Secure: loc.TLS, Transport: transport, Region: region,
		BucketLookup: minio.BucketLookupPath, TrailingHeaders: false, MaxRetries: 1,
	})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", loc, err)
	}
	s := &Store{core: core, creds: creds, url: loc.String(), bucket: loc.Bucket, secure: loc.TLS}
	if loc.Prefix != "" {
		s.root = loc.Prefix + "/"
	}
	if o.Create {
		return s, s.create(ctx, region)
	}
	return s, nil
}

// create makes the bucket; one that is already there and lets us list it is no error. (rclone's server says
// BucketAlreadyExists of one's own.)
func (s *Store) create(ctx context.Context, region string) error {
	err := s.do(ctx, "create bucket "+s.bucket, func(ctx context.Context) error {
		return s.core.MakeBucket(ctx, s.bucket, minio.MakeBucketOptions{Region: region})
	})
	if code := fault(err).Code; code == "BucketAlreadyOwnedByYou" || code == "BucketAlreadyExists" {
		if _, listErr := s.List(ctx, "", "", 1); listErr == nil {
			return nil
		}
	}
	return err
}

// URL implements blobs.Store.
func (s *Store) URL() string { return s.url }

// key is the full key in the bucket.
func (s *Store) key(key string) string { return s.root + key }

// do runs one request and maps its error.
func (s *Store) do(ctx context.Context, doing string, call func(context.Context) error) error {
	timed, clock := wire.WithClock(ctx)
	if err := call(timed); err != nil {
		return wrap(ctx, doing, err, clock)
	}
	return nil
}

func wrap(ctx context.Context, doing string, err error, clock *wire.Clock) error {
	switch {
	case errors.Is(err, blobs.ErrUnsupported): // our own word, not the server's
		return fmt.Errorf("%s: %w", doing, err)
	case errors.Is(err, errNoCredentials) && ctx.Err() == nil:
		return fmt.Errorf("%s: %w: %w", doing, blobs.ErrDenied, err)
	}
	return fault(err).Wrap(ctx, doing, clock)
}

// fault takes code, status and region out of minio-go's error type.
func fault(err error) wire.Fault {
	f := wire.Fault{Err: err}
	var resp minio.ErrorResponse
	if errors.As(err, &resp) {
		f.Code, f.Status, f.Region = resp.Code, resp.StatusCode, resp.Region
		if f.Status < 300 && f.Code == "" {
			f.Status = 0 // a good status with a body that could not be read: the network
		}
	}
	return f
}
