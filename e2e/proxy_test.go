package e2e

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
)

// requestCount counts what reaches an S3 server.
type requestCount struct {
	gets atomic.Int64 // GET and HEAD: objects, ranges and lists
	puts atomic.Int64 // everything else
}

// counted returns the same store behind a proxy that counts requests. The proxy passes the Host header on, which is
// what a request's signature covers.
func (s *store) counted(t *testing.T) (*store, *requestCount) {
	t.Helper()
	u, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	endpoint, err := url.Parse(query.Get("endpoint"))
	if err != nil {
		t.Fatal(err)
	}
	n := new(requestCount)
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host = endpoint.Scheme, endpoint.Host
	}}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			n.gets.Add(1)
		} else {
			n.puts.Add(1)
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(proxy.Close)
	through := *s
	through.url = strings.Replace(s.url, endpoint.String(), proxy.URL, 1)
	if through.url == s.url {
		t.Fatalf("no endpoint %s in %s", endpoint, s.url)
	}
	return &through, n
}
