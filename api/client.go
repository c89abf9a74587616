package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"wsfs"
)

// Client speaks to one workspace's handler. It is safe for concurrent use. Failed requests return *Error.
type Client struct {
	http *http.Client
	base string
}

// Dial returns a client of the daemon at a control socket. It connects with the first request.
func Dial(socket string) *Client {
	tr := &http.Transport{
		DialContext:        func(context.Context, string, string) (net.Conn, error) { return dialUnix(socket) },
		DisableCompression: true,
		WriteBufferSize:    256 << 10,
		ReadBufferSize:     256 << 10,
	}
	return &Client{http: &http.Client{Transport: tr}, base: "http://wsfs"}
}

// InProcess returns a client of a handler in this process; nothing is listened on.
func InProcess(h http.Handler) *Client {
	return &Client{http: &http.Client{Transport: inProcess{h}}, base: "http://wsfs"}
}

// do sends one request and returns the answer if it is a success.
func (c *Client) do(ctx context.Context, method, path string, q url.Values, body io.Reader, contentType string, header http.Header) (*http.Response, error) {
	u := c.base + path
	if len(q) > 0 {
		u += "?" + q.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, u, body)
	if err != nil {
		return nil, err
	}
	for k, v := range header {
		req.Header[k] = v
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err // the outer one repeats the URL
		}
		return nil, fmt.Errorf("asking the daemon: %w", err)
	}
	if resp.StatusCode >= 300 {
		defer resp.Body.Close()
		return nil, readError(resp)
	}
	return resp, nil
}

// call sends a request without a body and decodes the answer into out.
func (c *Client) call(ctx context.Context, method, path string, q url.Values, out any) error {
	resp, err := c.do(ctx, method, path, q, nil, "", nil)
	if err != nil {
		return err
	}
	return decode(resp, out)
}

func decode(resp *http.Response, out any) error {
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("reading the daemon's answer: %w", err)
	}
	return nil
}

// stream calls fn with each line of a JSON-lines answer.
func (c *Client) stream(ctx context.Context, method, path string, q url.Values, fn func(line []byte) error) error {
	resp, err := c.do(ctx, method, path, q, nil, "", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	r := bufio.NewReaderSize(resp.Body, 128<<10)
	for {
		line, err := r.ReadBytes('\n')
		if err == io.EOF && len(line) == 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the daemon's answer: %w", err)
		}
		if err := fn(line); err != nil {
			return err
		}
	}
}

// Status returns the state of the workspace; lease asks the store who holds it.
func (c *Client) Status(ctx context.Context, lease bool) (*Status, error) {
	out := new(Status)
	return out, c.call(ctx, "GET", "/v1/status", url.Values{"lease": {strconv.FormatBool(lease)}}, out)
}

// Sync commits everything and returns the commit. timeout 0 waits for ever.
func (c *Client) Sync(ctx context.Context, timeout time.Duration) (*Commit, error) {
	q := url.Values{}
	if timeout > 0 {
		q.Set("timeout", timeout.String())
	}
	out := new(Commit)
	return out, c.call(ctx, "POST", "/v1/sync", q, out)
}

// Log returns up to n commits, newest first; n 0 is all.
func (c *Client) Log(ctx context.Context, n int) ([]Commit, error) {
	var out Log
	err := c.call(ctx, "GET", "/v1/log", url.Values{"n": {strconv.Itoa(n)}}, &out)
	return out.Commits, err
}

// Check checks the workspace; progress may be nil.
func (c *Client) Check(ctx context.Context, readData bool, progress func(CheckProgress)) (*wsfs.CheckReport, error) {
	var report *wsfs.CheckReport
	err := c.stream(ctx, "POST", "/v1/check", url.Values{"read_data": {strconv.FormatBool(readData)}}, func(line []byte) error {
		var e CheckEvent
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("reading the daemon's answer: %w", err)
		}
		if e.Error != nil {
			return e.Error
		}
		if e.Progress != nil && progress != nil {
			progress(*e.Progress)
		}
		report = e.Report
		return nil
	})
	if err == nil && report == nil {
		err = errors.New("the check was cut short")
	}
	return report, err
}

// Space returns what df tells.
func (c *Client) Space(ctx context.Context) (*Space, error) {
	out := new(Space)
	return out, c.call(ctx, "GET", "/v1/df", nil, out)
}

// List calls fn for each entry of a directory, or for the file itself, in no order.
func (c *Client) List(ctx context.Context, path string, recursive bool, fn func(*Entry) error) error {
	ended := false
	err := c.stream(ctx, "GET", "/v1/ls", url.Values{"path": {path}, "recursive": {strconv.FormatBool(recursive)}}, func(line []byte) error {
		var l ListLine
		if err := json.Unmarshal(line, &l); err != nil {
			return fmt.Errorf("reading the daemon's answer: %w", err)
		}
		switch {
		case l.Error != nil:
			return l.Error
		case l.Entry != nil:
			return fn(l.Entry)
		}
		ended = l.End
		return nil
	})
	if err == nil && !ended {
		err = errors.New("the listing was cut short")
	}
	return err
}

// Stat returns the attributes of path; follow resolves a link in its last component.
func (c *Client) Stat(ctx context.Context, path string, follow bool) (*Entry, error) {
	out := new(Entry)
	return out, c.call(ctx, "GET", "/v1/stat", url.Values{"path": {path}, "follow": {strconv.FormatBool(follow)}}, out)
}

// Mkdir makes a directory with permission bits mode.
func (c *Client) Mkdir(ctx context.Context, path string, mode uint32, parents bool) (*Entry, error) {
	out := new(Entry)
	q := url.Values{"path": {path}, "mode": {strconv.FormatUint(uint64(mode), 8)}, "parents": {strconv.FormatBool(parents)}}
	return out, c.call(ctx, "POST", "/v1/mkdir", q, out)
}

// Remove removes path.
func (c *Client) Remove(ctx context.Context, path string, recursive, force bool) error {
	q := url.Values{"path": {path}, "recursive": {strconv.FormatBool(recursive)}, "force": {strconv.FormatBool(force)}}
	return c.call(ctx, "POST", "/v1/rm", q, new(Done))
}

// Rename moves from to to; noReplace refuses where to exists.
func (c *Client) Rename(ctx context.Context, from, to string, noReplace bool) error {
	q := url.Values{"from": {from}, "to": {to}, "no_replace": {strconv.FormatBool(noReplace)}}
	return c.call(ctx, "POST", "/v1/mv", q, new(Done))
}

// Copy duplicates from as to inside the workspace.
func (c *Client) Copy(ctx context.Context, from, to string, recursive bool) (*Totals, error) {
	out := new(Totals)
	q := url.Values{"from": {from}, "to": {to}, "recursive": {strconv.FormatBool(recursive)}}
	return out, c.call(ctx, "POST", "/v1/cp", q, out)
}

// Cat returns the content of a file from offset, length bytes; length < 0 means to the end. The caller closes it.
func (c *Client) Cat(ctx context.Context, path string, offset, length int64) (io.ReadCloser, error) {
	h := http.Header{}
	switch {
	case length == 0:
		return http.NoBody, nil
	case length > 0:
		h.Set("Range", fmt.Sprintf("bytes=%d-%d", offset, offset+length-1))
	case offset > 0:
		h.Set("Range", fmt.Sprintf("bytes=%d-", offset))
	}
	resp, err := c.do(ctx, "GET", "/v1/file", url.Values{"path": {path}}, nil, "", h)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// PutFile stores all of r as a file. mode 0 keeps that of the file replaced, or 0644.
func (c *Client) PutFile(ctx context.Context, path string, mode uint32, r io.Reader) (*Totals, error) {
	q := url.Values{"path": {path}}
	if mode != 0 {
		q.Set("mode", strconv.FormatUint(uint64(mode), 8))
	}
	return c.send(ctx, "/v1/file", q, octets, r)
}

// PutTree stores a tree stream below path. The reader's error, if it has one, is the error returned.
func (c *Client) PutTree(ctx context.Context, path string, r io.Reader) (*Totals, error) {
	return c.send(ctx, "/v1/tree", url.Values{"path": {path}}, ContentType, r)
}

func (c *Client) send(ctx context.Context, route string, q url.Values, contentType string, r io.Reader) (*Totals, error) {
	resp, err := c.do(ctx, "PUT", route, q, io.NopCloser(r), contentType, nil)
	if err != nil {
		return nil, err
	}
	out := new(Totals)
	return out, decode(resp, out)
}

// GetTree returns the tree stream of path. The caller closes it.
func (c *Client) GetTree(ctx context.Context, path string) (io.ReadCloser, error) {
	resp, err := c.do(ctx, "GET", "/v1/tree", url.Values{"path": {path}}, nil, "", nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Stop ends the daemon. It returns nil when the workspace was unmounted and everything is in the store.
func (c *Client) Stop(ctx context.Context, o StopOptions, progress func(StopEvent)) error {
	q := url.Values{"lazy": {strconv.FormatBool(o.Lazy)}, "wait": {o.Wait.String()}}
	done := false
	err := c.stream(ctx, "POST", "/v1/stop", q, func(line []byte) error {
		var e StopEvent
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("reading the daemon's answer: %w", err)
		}
		if e.Error != nil {
			return e.Error
		}
		done = e.State == "done"
		if progress != nil {
			progress(e)
		}
		return nil
	})
	if err == nil && !done {
		err = errors.New("the daemon ended without saying how")
	}
	return err
}
