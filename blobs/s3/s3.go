// Package s3 is the driver for S3 and what speaks like it, over aws-sdk-go-v2: s3: and r2: URLs.
//
// Credentials come from the SDK's whole chain (environment, shared files, SSO, web identity, container, machine role).
// The SDK's own retries are off: package retry does that, and knows what a lost reply of a conditional put means.
//
// On an endpoint of its own (anything but AWS) the driver uses path style and sends and expects checksums only where
// the operation requires one: many servers refuse the ones the SDK adds by default.
//
// Warning: PutIfAbsent is `If-None-Match: *`. A server that ignores the header replaces the object and says 200.
// blobs.Probe finds that out; this package cannot.
package s3

import (
	"context"
	"fmt"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"wsfs/blobs"
	"wsfs/blobs/s3/wire"
)

// Options say what a URL does not.
type Options struct {
	// AccessKey, SecretKey and SessionToken replace the SDK's credential chain where AccessKey is not empty.
	AccessKey, SecretKey, SessionToken string
	// Create makes the bucket if it does not exist.
	Create bool
	// Transport replaces the driver's own HTTP transport; nil for wire.NewTransport.
	Transport http.RoundTripper
}

// Store is a blobs.Store in one bucket.
type Store struct {
	client  *s3.Client
	presign *s3.PresignClient
	creds   aws.CredentialsProvider

	url    string
	bucket string
	root   string // the prefix with its closing slash; empty for the whole bucket
}

var _ blobs.Store = (*Store)(nil)

// Open returns the store at loc, whose scheme is s3 or r2. It talks to nobody, unless o.Create asks for the bucket or
// the configuration needs it; a missing bucket or wrong credentials show with the first request.
func Open(ctx context.Context, loc *blobs.Location, o Options) (*Store, error) {
	transport := o.Transport
	if transport == nil {
		transport = wire.NewTransport()
	}
	var load []func(*config.LoadOptions) error
	if loc.Region != "" {
		load = append(load, config.WithRegion(loc.Region))
	}
	if o.AccessKey != "" {
		load = append(load, config.WithCredentialsProvider(
			credentials.NewStaticCredentialsProvider(o.AccessKey, o.SecretKey, o.SessionToken)))
	}
	cfg, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return nil, fmt.Errorf("open %s: read the AWS configuration: %w", loc, err)
	}
	if cfg.Region == "" {
		if loc.Endpoint == "" {
			return nil, fmt.Errorf("open %s: no region: add ?region=.. to the URL or set AWS_REGION", loc)
		}
		cfg.Region = "us-east-1" // what servers that know no regions expect
	}
	s := &Store{creds: &provider{inner: cfg.Credentials}, url: loc.String(), bucket: loc.Bucket}
	if loc.Prefix != "" {
		s.root = loc.Prefix + "/"
	}
	s.client = s3.NewFromConfig(cfg, func(so *s3.Options) { s.configure(so, loc, transport) })
	s.presign = s3.NewPresignClient(s.client)
	if o.Create {
		return s, s.create(ctx)
	}
	return s, nil
}

func (s *Store) configure(so *s3.Options, loc *blobs.Location, transport http.RoundTripper) {
	so.HTTPClient = &http.Client{Transport: transport}
	so.Credentials = s.creds
	so.RetryMaxAttempts = 1
	so.Retryer = aws.NopRetryer{}
	so.UsePathStyle = loc.PathStyle
	if loc.Endpoint != "" {
		so.BaseEndpoint = aws.String(loc.Endpoint)
		so.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		so.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	}
	so.DisableLogOutputChecksumValidationSkipped = true
}

// create makes the bucket; one that is already there and lets us list it is no error. (rclone's server says
// BucketAlreadyExists of one's own.)
func (s *Store) create(ctx context.Context) error {
	in := &s3.CreateBucketInput{Bucket: &s.bucket}
	if region := s.client.Options().Region; s.client.Options().BaseEndpoint == nil && region != "us-east-1" {
		in.CreateBucketConfiguration = &types.CreateBucketConfiguration{LocationConstraint: types.BucketLocationConstraint(region)}
	}
	err := s.do(ctx, "create bucket "+s.bucket, func(ctx context.Context) error {
		_, err := s.client.CreateBucket(ctx, in)
		return err
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
func (s *Store) key(key string) *string { return aws.String(s.root + key) }
