// Package wire holds what the S3 drivers share whatever SDK they use: the HTTP transport and its time limits, the
// reading of S3's errors, and the store's clock.
package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"wsfs/blobs"
)

// Time limits of a request. None bounds the whole: how long a large body takes depends on the line. A request dies
// when nothing moves.
const (
	dialTimeout   = 10 * time.Second
	tlsTimeout    = 10 * time.Second
	headerTimeout = 60 * time.Second // from the end of the request to the first byte of the answer
	stallTimeout  = 60 * time.Second // without one byte in either direction
	idleTimeout   = 50 * time.Second // below stallTimeout, so that an idle connection leaves the pool in good order
	poolSize      = 128              // idle connections kept: above the number of requests at once
)

// NewTransport returns a transport of its own pool of kept-alive HTTP/1.1 connections. HTTP/2 is not used: many
// connections carry more bytes than many streams of one. The proxy comes from the environment.
func NewTransport() http.RoundTripper {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}
	return &dated{&http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &stalling{Conn: c, limit: stallTimeout}, nil
		},
		TLSHandshakeTimeout:   tlsTimeout,
		ResponseHeaderTimeout: headerTimeout,
		ExpectContinueTimeout: time.Second,
		IdleConnTimeout:       idleTimeout,
		MaxIdleConns:          poolSize,
		MaxIdleConnsPerHost:   poolSize,
		DisableCompression:    true,
		WriteBufferSize:       64 << 10,
		ReadBufferSize:        64 << 10,
	}}
}

// stalling is a connection that fails when neither direction moves for limit. Every read and write, also one that
// moves only a part, pushes both deadlines out: a long upload must not expire the read that waits for its answer.
type stalling struct {
	net.Conn
	limit time.Duration
}

func (c *stalling) Read(p []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(c.limit)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

func (c *stalling) Write(p []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(c.limit)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// Clock receives what an answer says of the store's clock.
type Clock struct {
	mu   sync.Mutex
	skew time.Duration
	seen bool
}

// Skew is how far the store's clock is ahead of this host's, and whether an answer has said so. The Date header has
// whole seconds, so the value is true to about one second.
func (c *Clock) Skew() (time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.skew, c.seen
}

type clockKey struct{}

// WithClock returns a context whose requests through NewTransport report the store's clock.
func WithClock(ctx context.Context) (context.Context, *Clock) {
	c := &Clock{}
	return context.WithValue(ctx, clockKey{}, c), c
}

// dated reads the Date header of each answer into the Clock of the request's context.
type dated struct{ *http.Transport }

func (d *dated) RoundTrip(req *http.Request) (*http.Response, error) {
	sent := time.Now()
	resp, err := d.Transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if c, ok := req.Context().Value(clockKey{}).(*Clock); ok {
		c.record(resp.Header.Get("Date"), sent, time.Now())
	}
	return resp, nil
}

func (c *Clock) record(date string, sent, received time.Time) {
	theirs, err := http.ParseTime(date)
	if err != nil {
		return // no clock in this answer
	}
	// The header was cut down to the second somewhere between sent and received.
	ours := sent.Add(received.Sub(sent) / 2)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.skew, c.seen = theirs.Add(500*time.Millisecond).Sub(ours), true
}

// Fault is what an SDK's error says, taken out of its types.
type Fault struct {
	Code   string // S3's error code; empty if there was no readable answer
	Status int    // HTTP status; 0 if there was no answer
	Region string // where the bucket is, if the answer says so
	Err    error  // the SDK's own error
}

// codes is S3's vocabulary as far as it decides what to do next. What is missing is decided by the HTTP status.
var codes = map[string]error{
	"NoSuchKey":                    blobs.ErrNotExist,
	"NoSuchBucket":                 blobs.ErrNoStore,
	"PreconditionFailed":           blobs.ErrExist,
	"ConditionalRequestConflict":   blobs.ErrUnavailable,
	"OperationAborted":             blobs.ErrUnavailable,
	"AccessDenied":                 blobs.ErrDenied,
	"AllAccessDisabled":            blobs.ErrDenied,
	"AccountProblem":               blobs.ErrDenied,
	"InvalidAccessKeyId":           blobs.ErrDenied,
	"XAdminUserNotFound":           blobs.ErrDenied, // versitygw's InvalidAccessKeyId, with status 404
	"SignatureDoesNotMatch":        blobs.ErrDenied,
	"ExpiredToken":                 blobs.ErrDenied,
	"InvalidToken":                 blobs.ErrDenied,
	"TokenRefreshRequired":         blobs.ErrDenied,
	"Unauthorized":                 blobs.ErrDenied,
	"RequestExpired":               blobs.ErrDenied,
	"RequestTimeTooSkewed":         blobs.ErrClockSkew,
	"NotImplemented":               blobs.ErrUnsupported,
	"MethodNotAllowed":             blobs.ErrUnsupported,
	"SlowDown":                     blobs.ErrUnavailable,
	"Throttling":                   blobs.ErrUnavailable,
	"ThrottlingException":          blobs.ErrUnavailable,
	"RequestLimitExceeded":         blobs.ErrUnavailable,
	"TooManyRequests":              blobs.ErrUnavailable,
	"RequestTimeout":               blobs.ErrUnavailable,
	"InternalError":                blobs.ErrUnavailable,
	"ServiceUnavailable":           blobs.ErrUnavailable,
	"IncompleteBody":               blobs.ErrUnavailable,
	"BadDigest":                    blobs.ErrUnavailable,
	"XAmzContentSHA256Mismatch":    blobs.ErrUnavailable,
	"XAmzContentChecksumMismatch":  blobs.ErrUnavailable,
	"BucketAlreadyExists":          blobs.ErrDenied, // somebody else's
	"BucketAlreadyOwnedByYou":      nil,
	"ObjectParentIsFile":           nil, // versitygw: the key is below another key
	"ExistingObjectIsDirectory":    nil, // versitygw: the key is a directory of other keys
	"AuthorizationHeaderMalformed": nil,
	"PermanentRedirect":            nil,
}

// Sentinel is the error of package blobs that f stands for, nil if the contract has none for it (a request that this
// program got wrong, a bucket in another region).
//
// A 404 is ErrNotExist only with the code that says so: versitygw answers 404 to an unknown access key, any web server
// to anything, and "there is no such commit" is too much to conclude from that.
func (f Fault) Sentinel() error {
	if s, ok := codes[f.Code]; ok {
		return s
	}
	switch s := f.Status; {
	case s == 0:
		// No answer: refused, reset, timed out, unresolved, a certificate not (yet) right, an answer cut short.
		return blobs.ErrUnavailable
	case s == http.StatusPreconditionFailed:
		return blobs.ErrExist
	case s == http.StatusUnauthorized, s == http.StatusForbidden:
		return blobs.ErrDenied
	case s == http.StatusNotImplemented, s == http.StatusMethodNotAllowed:
		return blobs.ErrUnsupported
	case s == http.StatusRequestTimeout, s == http.StatusConflict, s == http.StatusTooManyRequests, s >= 499:
		return blobs.ErrUnavailable
	}
	return nil
}

// Wrap says what was being done and makes the error match its sentinel. clock is the Clock of the failed request.
// Only the end of ctx itself counts as a context error: the network's own timeouts also match
// context.DeadlineExceeded, and they pass.
func (f Fault) Wrap(ctx context.Context, doing string, clock *Clock) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	s := f.Sentinel()
	switch {
	case s == nil && f.Region != "":
		return fmt.Errorf("%s: the bucket is in region %s; add ?region=%s to the store's URL: %w", doing, f.Region, f.Region, f.Err)
	case s == nil:
		return fmt.Errorf("%s: %w", doing, f.Err)
	case errors.Is(s, blobs.ErrClockSkew):
		return fmt.Errorf("%s: %w: %s: %w", doing, s, skewText(clock), f.Err)
	}
	return fmt.Errorf("%s: %w: %w", doing, s, f.Err)
}

func skewText(clock *Clock) string {
	skew, ok := clock.Skew()
	switch {
	case !ok:
		return "the store's answer does not say by how much"
	case skew < 0:
		return fmt.Sprintf("this host's clock is %v ahead of the store's", (-skew).Round(time.Second))
	}
	return fmt.Sprintf("this host's clock is %v behind the store's", skew.Round(time.Second))
}

// PartSize is the part length of multipart uploads, bytes: every part but the last has it (R2 demands equal parts).
// A body of up to Multipart bytes goes up in one piece.
const (
	PartSize  = 32 << 20
	Multipart = 64 << 20
)

// Collect turns pages of a server into one page of the contract: up to limit valid keys, below prefix and after
// after, in ascending order. next returns the server's next page and whether there are more. Keys that no wsfs wrote
// (directory marks, foreign objects) are left out; a server that repeats or misorders keys is an error, because the
// order is what commits are found by.
func Collect(limit int, root, prefix, after string, next func() ([]blobs.Object, bool, error)) ([]blobs.Object, error) {
	var page []blobs.Object
	last := after
	for {
		got, more, err := next()
		if err != nil {
			return nil, err
		}
		for _, o := range got {
			key, ours := strings.CutPrefix(o.Key, root)
			if !ours || key <= after || !strings.HasPrefix(key, prefix) || blobs.CheckKey(key) != nil {
				continue
			}
			o.Key = key
			if o.Key <= last {
				return nil, fmt.Errorf("the server lists %q after %q", o.Key, last)
			}
			last = o.Key
			if page = append(page, o); len(page) == limit {
				return page, nil
			}
		}
		if !more {
			return page, nil
		}
	}
}
