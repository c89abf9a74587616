package minio

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"time"

	"github.com/minio/minio-go/v7"

	"wsfs/blobs"
	"wsfs/blobs/s3/wire"
)

// Get implements blobs.Store. A range that starts at or past the end is 416 InvalidRange: an empty result.
func (s *Store) Get(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	if err := blobs.CheckKey(key); err != nil {
		return nil, fmt.Errorf("get: %w", err)
	}
	if offset < 0 {
		return nil, fmt.Errorf("get %s: negative offset %d", key, offset)
	}
	var opts minio.GetObjectOptions
	if header := wire.Range(offset, length); header != "" {
		opts.Set("Range", header)
	}
	var body []byte
	err := s.do(ctx, "get "+key, func(ctx context.Context) error {
		r, meta, _, err := s.core.GetObject(ctx, s.bucket, s.key(key), opts)
		if err != nil {
			return err
		}
		defer r.Close()
		body, err = wire.ReadBody(r, meta.Size) // the length of the answer, not of the object
		return err
	})
	if f := fault(err); err != nil && (f.Code == "InvalidRange" || f.Status == 416) {
		return []byte{}, nil
	}
	if err != nil {
		return nil, err
	}
	if length == 0 {
		return []byte{}, nil // one byte was asked for, to learn whether the object exists
	}
	return body, nil
}

// Put implements blobs.Store.
func (s *Store) Put(ctx context.Context, key string, body []byte) error {
	return s.put(ctx, "put", key, body, false)
}

// PutIfAbsent implements blobs.Store.
func (s *Store) PutIfAbsent(ctx context.Context, key string, body []byte) error {
	return s.put(ctx, "put if absent", key, body, true)
}

func (s *Store) put(ctx context.Context, op, key string, body []byte, absent bool) error {
	if err := blobs.CheckKey(key); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	opts := minio.PutObjectOptions{DisableContentSha256: true} // no aws-chunked signature; see sum
	if absent {
		opts.SetMatchETagExcept("*")
	}
	doing := op + " " + key
	var err error
	if len(body) > wire.Multipart {
		err = s.putParts(ctx, doing, key, body, opts)
	} else {
		err = s.do(ctx, doing, func(ctx context.Context) error {
			_, err := s.core.PutObject(ctx, s.bucket, s.key(key), bytes.NewReader(body), int64(len(body)), "", s.sum(body), opts)
			return err
		})
	}
	return wire.PutError(err, fault(err), absent)
}

// sum is the SHA-256 that signs a body over plain HTTP. Over TLS it is empty: the connection protects the body.
func (s *Store) sum(body []byte) string {
	if s.secure {
		return ""
	}
	h := sha256.Sum256(body)
	return hex.EncodeToString(h[:])
}

// putParts uploads body in equal parts. The condition in opts is on the last request, which makes the object;
// whatever fails before or there, the parts are given back.
func (s *Store) putParts(ctx context.Context, doing, key string, body []byte, opts minio.PutObjectOptions) error {
	var id string
	err := s.do(ctx, doing+": start parts", func(ctx context.Context) (err error) {
		id, err = s.core.NewMultipartUpload(ctx, s.bucket, s.key(key), minio.PutObjectOptions{})
		return err
	})
	if err != nil {
		return err
	}
	parts, err := s.sendParts(ctx, doing, key, id, body)
	if err == nil {
		err = s.do(ctx, doing+": join parts", func(ctx context.Context) error {
			_, err := s.core.CompleteMultipartUpload(ctx, s.bucket, s.key(key), id, parts, opts)
			return err
		})
	}
	if err == nil {
		return nil
	}
	// The caller's context may have ended, and that is no reason to leave parts that cost money.
	tidy, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	abort := s.core.AbortMultipartUpload(tidy, s.bucket, s.key(key), id)
	if abort != nil && fault(abort).Code != "NoSuchUpload" {
		return fmt.Errorf("%w (and its parts stay in the bucket: %w)", err, abort)
	}
	return err
}

func (s *Store) sendParts(ctx context.Context, doing, key, id string, body []byte) ([]minio.CompletePart, error) {
	var parts []minio.CompletePart
	for n := 1; len(body) > 0; n++ {
		part := body[:min(wire.PartSize, len(body))]
		body = body[len(part):]
		err := s.do(ctx, fmt.Sprintf("%s: part %d", doing, n), func(ctx context.Context) error {
			got, err := s.core.PutObjectPart(ctx, s.bucket, s.key(key), id, n, bytes.NewReader(part), int64(len(part)),
				minio.PutObjectPartOptions{Sha256Hex: s.sum(part), DisableContentSha256: true})
			if err == nil {
				parts = append(parts, minio.CompletePart{PartNumber: n, ETag: got.ETag})
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return parts, nil
}

// Delete implements blobs.Store.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := blobs.CheckKey(key); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	err := s.do(ctx, "delete "+key, func(ctx context.Context) error {
		return s.core.RemoveObject(ctx, s.bucket, s.key(key), minio.RemoveObjectOptions{})
	})
	if errors.Is(err, blobs.ErrNotExist) {
		return nil
	}
	return err
}

// List implements blobs.Store.
func (s *Store) List(ctx context.Context, prefix, after string, limit int) ([]blobs.Object, error) {
	limit = blobs.ListLimit(limit)
	opts := minio.ListObjectsOptions{Prefix: s.root + prefix, Recursive: true, MaxKeys: limit, FetchOwner: new(bool)}
	if after != "" {
		opts.StartAfter = s.root + after
	}
	timed, clock := wire.WithClock(ctx)
	next, stop := iter.Pull(s.core.ListObjectsIter(timed, s.bucket, opts))
	defer stop()
	return wire.Collect(limit, s.root, prefix, after, func() ([]blobs.Object, bool, error) {
		o, more := next()
		err := o.Err
		if !more {
			err = ctx.Err() // the iterator ends without a word when its context does
		}
		if err != nil {
			return nil, false, wrap(ctx, "list "+prefix, err, clock)
		}
		return []blobs.Object{{Key: o.Key, Size: o.Size, Modified: o.LastModified}}, more, nil
	})
}

// Presign implements blobs.Store. With temporary credentials the link cannot outlive them, and this says so instead
// of handing out one that dies early.
func (s *Store) Presign(ctx context.Context, key string, expires time.Duration, p blobs.PresignOptions) (*url.URL, error) {
	if err := blobs.CheckKey(key); err != nil {
		return nil, fmt.Errorf("presign: %w", err)
	}
	if err := blobs.CheckExpiry(expires); err != nil {
		return nil, fmt.Errorf("presign %s: %w", key, err)
	}
	query := url.Values{}
	if p.ContentType != "" {
		query.Set("response-content-type", p.ContentType)
	}
	if p.ContentDisposition != "" {
		query.Set("response-content-disposition", p.ContentDisposition)
	}
	var link *url.URL
	err := s.do(ctx, "presign "+key, func(ctx context.Context) error {
		c, err := s.creds.GetWithContext(s.core.CredContext())
		if err != nil {
			return err
		}
		if left := time.Until(c.Expiration); !c.Expiration.IsZero() && left < expires {
			return fmt.Errorf("%w: the credentials expire in %v and a link for %v with them; use a shorter time or a permanent key",
				blobs.ErrUnsupported, left.Round(time.Second), expires)
		}
		link, err = s.core.PresignedGetObject(ctx, s.bucket, s.key(key), expires, query)
		return err
	})
	return link, err
}

// ClockSkew is how far the store's clock is ahead of this host's, true to about a second. It costs one request.
func (s *Store) ClockSkew(ctx context.Context) (time.Duration, error) {
	var skew time.Duration
	err := s.do(ctx, "read the store's clock", func(ctx context.Context) error {
		timed, clock := wire.WithClock(ctx)
		_, err := s.core.BucketExists(timed, s.bucket)
		var seen bool
		if skew, seen = clock.Skew(); seen {
			return nil // whatever else was wrong, the answer had a clock
		}
		if err == nil {
			err = fmt.Errorf("%w: its answers carry no date", blobs.ErrUnsupported)
		}
		return err
	})
	return skew, err
}
