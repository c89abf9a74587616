package api

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"wsfs"
)

// Options is what a handler needs besides the workspace.
type Options struct {
	// Mount describes the mount, whose kernel is then told about every change; the zero value without one.
	Mount Mount
	// Requests counts the kernel's requests by name, for status; nil without a mount.
	Requests func() map[string]uint64
	// Classify gives errors that carry no errno one of the Code constants; "" where it does not know.
	Classify func(error) string
	// Stop ends the daemon for POST /v1/stop; nil where there is none. It reports progress and returns when
	// the workspace is unmounted and closed, or could not be.
	Stop func(ctx context.Context, o StopOptions, progress func(StopEvent)) error
	// Version is the program's version.
	Version string
	Log     *slog.Logger // nil: discarded
}

// StopOptions says how a daemon is to end.
type StopOptions struct {
	Wait time.Duration // how long to wait for the last commit; 0: for ever, < 0: not at all
	Lazy bool          // detach a mount that is in use
}

// server is the handler. It holds no state of its own.
type server struct {
	w   *wsfs.Workspace
	o   Options
	mux *http.ServeMux
}

// NewHandler returns the handler of every route for one workspace. It checks no credentials: Listen does.
func NewHandler(w *wsfs.Workspace, o Options) http.Handler {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &server{w: w, o: o, mux: http.NewServeMux()}
	for _, r := range routes {
		s.mux.HandleFunc(r.Method+" "+r.Path, s.wrap(r))
	}
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, &Error{Message: r.Method + " " + r.URL.Path + ": no such route; see /v1/openapi.json", Code: CodeNotFound})
	})
	return s.mux
}

// wrap checks a request against its route's parameters, runs it, and answers its error.
func (s *server) wrap(r route) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		q, err := r.parse(req)
		if err == nil {
			err = r.run(s, w, req, q)
		}
		if err != nil {
			s.o.Log.Debug("request failed", "method", r.Method, "route", r.Path, "error", err)
			if r.Body != "" {
				s.refuse(w, req, err)
			} else {
				s.fail(w, err)
			}
		}
	}
}

// route is one method and path, what it takes and what it does. The OpenAPI document is made from these.
type route struct {
	Method, Path string
	Summary      string
	Params       []param
	Body         string // media type of the request body, "" for none
	Answer       string // media type of the answer; "" is application/json
	Schema       string // name of the answer's schema
	// run does the work. It answers by itself, or returns an error before anything was sent.
	run func(s *server, w http.ResponseWriter, r *http.Request, q query) error
}

// param is one query parameter.
type param struct {
	Name string
	Kind string // "path", "bool", "int", "octal", "duration"
	Must bool
	Many bool
	Text string
}

// query is a route's checked parameters.
type query struct{ v url.Values }

func (r route) parse(req *http.Request) (query, error) {
	v, err := url.ParseQuery(req.URL.RawQuery)
	if err != nil {
		return query{}, usageError("%s %s: query %q: %v", r.Method, r.Path, req.URL.RawQuery, err)
	}
	for name := range v {
		if !slices.ContainsFunc(r.Params, func(p param) bool { return p.Name == name }) {
			return query{}, usageError("%s %s: unknown parameter %q", r.Method, r.Path, name)
		}
	}
	for _, p := range r.Params {
		if err := p.check(v); err != nil {
			return query{}, err
		}
	}
	return query{v}, nil
}

// check validates one parameter and puts paths into their clean form.
func (p param) check(v url.Values) error {
	got := v[p.Name]
	if p.Must && len(got) == 0 {
		return usageError("parameter %q is missing", p.Name)
	}
	if len(got) > 1 && !p.Many {
		return usageError("parameter %q is given %d times", p.Name, len(got))
	}
	for i, s := range got {
		var err error
		switch p.Kind {
		case "path":
			got[i], err = cleanPath(s)
		case "bool":
			_, err = strconv.ParseBool(s)
		case "int":
			_, err = strconv.ParseUint(s, 10, 31)
		case "octal":
			_, err = strconv.ParseUint(s, 8, 12)
		case "duration":
			_, err = time.ParseDuration(s)
		}
		if ae, ok := err.(*Error); ok && ae.Code != CodeUsage {
			return ae
		}
		if err != nil {
			return usageError("parameter %s=%q: %v", p.Name, s, err)
		}
	}
	return nil
}

// cleanPath returns the clean absolute form of a workspace path. Errors: not absolute, a NUL byte, a component over
// 255 bytes.
func cleanPath(p string) (string, error) {
	if !strings.HasPrefix(p, "/") {
		return "", usageError("not absolute; want a path from the workspace's root such as /src")
	}
	if strings.IndexByte(p, 0) >= 0 {
		return "", usageError("contains a NUL byte")
	}
	for c := range strings.SplitSeq(p, "/") {
		if len(c) > 255 {
			return "", &Error{Message: "component " + strconv.Quote(c[:32]) + "... is too long; at most 255 bytes are allowed", Code: "ENAMETOOLONG"}
		}
	}
	return path.Clean(p), nil
}

// The getters assume check has passed.
func (q query) path(name string) string { return q.v.Get(name) }

func (q query) bool(name string) bool {
	b, _ := strconv.ParseBool(q.v.Get(name)) // absent is false
	return b
}

func (q query) int(name string, otherwise int64) int64 {
	if n, err := strconv.ParseInt(q.v.Get(name), 10, 63); err == nil {
		return n
	}
	return otherwise
}

func (q query) octal(name string, otherwise uint32) uint32 {
	if n, err := strconv.ParseUint(q.v.Get(name), 8, 12); err == nil {
		return uint32(n)
	}
	return otherwise
}

func (q query) duration(name string) time.Duration {
	d, _ := time.ParseDuration(q.v.Get(name)) // absent is 0
	return d
}

// parent resolves the directory that holds path and returns the last name. The root has no parent: EBUSY.
func (s *server) parent(ctx context.Context, op, p string) (wsfs.Ino, string, error) {
	dir, name := path.Split(p)
	if name == "" {
		return 0, "", pathError(op, p, syscall.EBUSY)
	}
	a, err := s.w.Stat(ctx, path.Clean(dir))
	if err != nil {
		return 0, "", err
	}
	if !a.IsDir() {
		return 0, "", pathError(op, dir, syscall.ENOTDIR)
	}
	return a.Ino, name, nil
}
