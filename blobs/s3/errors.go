package s3

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"wsfs/blobs"
	"wsfs/blobs/s3/wire"
)

// do runs one request and maps its error. A request refused for this host's clock is made once more: the SDK has
// read the store's clock out of the refusal and signs the second one by it. The refused one did nothing, so this is
// safe for every operation.
func (s *Store) do(ctx context.Context, doing string, call func(context.Context) error) error {
	for again := true; ; again = false {
		timed, clock := wire.WithClock(ctx)
		err := call(timed)
		if err == nil {
			return nil
		}
		err = wrap(ctx, doing, err, clock)
		if !again || !errors.Is(err, blobs.ErrClockSkew) {
			return err
		}
	}
}

func wrap(ctx context.Context, doing string, err error, clock *wire.Clock) error {
	var missing *credentialError
	if errors.As(err, &missing) && ctx.Err() == nil {
		return fmt.Errorf("%s: %w", doing, missing)
	}
	return fault(err).Wrap(ctx, doing, clock)
}

// fault takes code, status and region out of the SDK's error types.
func fault(err error) wire.Fault {
	f := wire.Fault{Err: err}
	var api smithy.APIError
	if errors.As(err, &api) {
		f.Code = api.ErrorCode()
	}
	var resp *awshttp.ResponseError
	if errors.As(err, &resp) {
		f.Status = resp.HTTPStatusCode()
		if resp.Response != nil && f.Status >= 300 {
			f.Region = resp.Response.Header.Get("X-Amz-Bucket-Region")
		}
		if f.Status < 300 && f.Code == "" {
			f.Status = 0 // a good status with a body that could not be read: the network
		}
	}
	return f
}

// credentialError is a failure to get credentials at all; it matches kind.
type credentialError struct {
	kind error // blobs.ErrDenied or blobs.ErrUnavailable
	err  error
}

func (e *credentialError) Error() string {
	if e.kind == blobs.ErrDenied {
		return fmt.Sprintf("%v: no usable credentials found (AWS_ACCESS_KEY_ID, shared files, role): %v", e.kind, e.err)
	}
	return fmt.Sprintf("%v: fetch credentials: %v", e.kind, e.err)
}

func (e *credentialError) Unwrap() []error { return []error{e.kind, e.err} }

// provider marks the errors of the credential chain, which the SDK otherwise hides among those of signing.
type provider struct {
	inner aws.CredentialsProvider
	found atomic.Bool // credentials have been seen: a later failure is a refresh that may pass
}

// Retrieve implements aws.CredentialsProvider.
func (p *provider) Retrieve(ctx context.Context) (aws.Credentials, error) {
	if p.inner == nil {
		return aws.Credentials{}, &credentialError{kind: blobs.ErrDenied, err: errors.New("none configured")}
	}
	c, err := p.inner.Retrieve(ctx)
	if err == nil {
		p.found.Store(true)
		return c, nil
	}
	kind := blobs.ErrDenied
	var op *smithy.OperationError
	if p.found.Load() || errors.As(err, &op) && op.Service() != "ec2imds" && fault(err).Sentinel() == blobs.ErrUnavailable {
		kind = blobs.ErrUnavailable // STS, SSO or a role's endpoint out of reach; the last resort, IMDS, is just absent
	}
	return aws.Credentials{}, &credentialError{kind: kind, err: err}
}
