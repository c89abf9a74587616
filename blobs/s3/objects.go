package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

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
	in := &s3.GetObjectInput{Bucket: &s.bucket, Key: s.key(key)}
	empty := length == 0 // not expressible as a range: ask for one byte to learn whether the object exists
	if header := wire.Range(offset, length); header != "" {
		in.Range = &header
	}
	var body []byte
	err := s.do(ctx, "get "+key, func(ctx context.Context) error {
		out, err := s.client.GetObject(ctx, in)
		if err != nil {
			return err
		}
		defer out.Body.Close()
		body, err = wire.ReadBody(out.Body, aws.ToInt64(out.ContentLength))
		return err
	})
	if err != nil && pastEnd(err) {
		return []byte{}, nil
	}
	if err != nil {
		return nil, err
	}
	if empty {
		return []byte{}, nil
	}
	return body, nil
}

func pastEnd(err error) bool {
	f := fault(err)
	return f.Code == "InvalidRange" || f.Status == 416
}

// Put implements blobs.Store.
func (s *Store) Put(ctx context.Context, key string, body []byte) error {
	return s.put(ctx, "put", key, body, nil)
}

// PutIfAbsent implements blobs.Store.
func (s *Store) PutIfAbsent(ctx context.Context, key string, body []byte) error {
	return s.put(ctx, "put if absent", key, body, aws.String("*"))
}

func (s *Store) put(ctx context.Context, op, key string, body []byte, ifNoneMatch *string) error {
	if err := blobs.CheckKey(key); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	doing := op + " " + key
	var err error
	if len(body) > wire.Multipart {
		err = s.putParts(ctx, doing, key, body, ifNoneMatch)
	} else {
		err = s.do(ctx, doing, func(ctx context.Context) error {
			_, err := s.client.PutObject(ctx, &s3.PutObjectInput{
				Bucket: &s.bucket, Key: s.key(key), Body: bytes.NewReader(body),
				ContentLength: aws.Int64(int64(len(body))), IfNoneMatch: ifNoneMatch,
			})
			return err
		})
	}
	return wire.PutError(err, fault(err), ifNoneMatch != nil)
}

// putParts uploads body in equal parts. The condition is on the last request, which makes the object; whatever fails
// before or there, the parts are given back.
func (s *Store) putParts(ctx context.Context, doing, key string, body []byte, ifNoneMatch *string) error {
	var id *string
	err := s.do(ctx, doing+": start parts", func(ctx context.Context) error {
		out, err := s.client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: &s.bucket, Key: s.key(key)})
		if err == nil {
			id = out.UploadId
		}
		return err
	})
	if err != nil {
		return err
	}
	parts, err := s.sendParts(ctx, doing, key, id, body)
	if err == nil {
		err = s.do(ctx, doing+": join parts", func(ctx context.Context) error {
			_, err := s.client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
				Bucket: &s.bucket, Key: s.key(key), UploadId: id, IfNoneMatch: ifNoneMatch,
				MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
			})
			return err
		})
	}
	if err == nil {
		return nil
	}
	// The caller's context may have ended, and that is no reason to leave parts that cost money.
	tidy, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_, abort := s.client.AbortMultipartUpload(tidy, &s3.AbortMultipartUploadInput{Bucket: &s.bucket, Key: s.key(key), UploadId: id})
	var gone *types.NoSuchUpload
	if abort != nil && !errors.As(abort, &gone) {
		return fmt.Errorf("%w (and its parts stay in the bucket: %w)", err, abort)
	}
	return err
}

func (s *Store) sendParts(ctx context.Context, doing, key string, id *string, body []byte) ([]types.CompletedPart, error) {
	var parts []types.CompletedPart
	for n := int32(1); len(body) > 0; n++ {
		part := body[:min(wire.PartSize, len(body))]
		body = body[len(part):]
		err := s.do(ctx, fmt.Sprintf("%s: part %d", doing, n), func(ctx context.Context) error {
			out, err := s.client.UploadPart(ctx, &s3.UploadPartInput{
				Bucket: &s.bucket, Key: s.key(key), UploadId: id, PartNumber: aws.Int32(n),
				Body: bytes.NewReader(part), ContentLength: aws.Int64(int64(len(part))),
			})
			if err == nil {
				parts = append(parts, types.CompletedPart{ETag: out.ETag, PartNumber: aws.Int32(n)})
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
		_, err := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.bucket, Key: s.key(key)})
		return err
	})
	if errors.Is(err, blobs.ErrNotExist) {
		return nil
	}
	return err
}

// List implements blobs.Store.
func (s *Store) List(ctx context.Context, prefix, after string, limit int) ([]blobs.Object, error) {
	limit = blobs.ListLimit(limit)
	in := &s3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: aws.String(s.root + prefix), MaxKeys: aws.Int32(int32(limit))}
	if after != "" {
		in.StartAfter = aws.String(s.root + after)
	}
	return wire.Collect(limit, s.root, prefix, after, func() ([]blobs.Object, bool, error) {
		return s.listPage(ctx, prefix, in)
	})
}

// listPage fetches the page that in asks for and turns in into the request for the next.
func (s *Store) listPage(ctx context.Context, prefix string, in *s3.ListObjectsV2Input) ([]blobs.Object, bool, error) {
	var out *s3.ListObjectsV2Output
	err := s.do(ctx, "list "+prefix, func(ctx context.Context) (err error) {
		out, err = s.client.ListObjectsV2(ctx, in)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	page := make([]blobs.Object, 0, len(out.Contents))
	for _, o := range out.Contents {
		page = append(page, blobs.Object{Key: aws.ToString(o.Key), Size: aws.ToInt64(o.Size), Modified: aws.ToTime(o.LastModified)})
	}
	more := aws.ToBool(out.IsTruncated)
	if more && aws.ToString(out.NextContinuationToken) == "" {
		return nil, false, fmt.Errorf("list %s: the server says there is more and gives no token to ask for it", prefix)
	}
	in.ContinuationToken = out.NextContinuationToken
	return page, more, nil
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
	_, clock := wire.WithClock(ctx)
	c, err := s.creds.Retrieve(ctx)
	if err != nil {
		return nil, wrap(ctx, "presign "+key, err, clock)
	}
	if left := time.Until(c.Expires); c.CanExpire && left < expires {
		return nil, fmt.Errorf("presign %s for %v: %w: the credentials expire in %v and the link with them; use a shorter time or a permanent key",
			key, expires, blobs.ErrUnsupported, left.Round(time.Second))
	}
	in := &s3.GetObjectInput{Bucket: &s.bucket, Key: s.key(key)}
	if p.ContentType != "" {
		in.ResponseContentType = &p.ContentType
	}
	if p.ContentDisposition != "" {
		in.ResponseContentDisposition = &p.ContentDisposition
	}
	req, err := s.presign.PresignGetObject(ctx, in, s3.WithPresignExpires(expires))
	if err != nil {
		return nil, wrap(ctx, "presign "+key, err, clock)
	}
	return url.Parse(req.URL)
}

// ClockSkew is how far the store's clock is ahead of this host's, true to about a second. It costs one request.
func (s *Store) ClockSkew(ctx context.Context) (time.Duration, error) {
	timed, clock := wire.WithClock(ctx)
	_, err := s.client.ListObjectsV2(timed, &s3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: s.key("probe/"), MaxKeys: aws.Int32(1)})
	if skew, ok := clock.Skew(); ok {
		return skew, nil // whatever else was wrong, the answer had a clock
	}
	if err != nil {
		return 0, wrap(ctx, "read the store's clock", err, clock)
	}
	return 0, fmt.Errorf("read the store's clock: %w: its answers carry no date", blobs.ErrUnsupported)
}
