package api_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"wsfs/api"
)

// TestOpenAPIMatchesRoutes asks for every operation of the document, and for every method of every path in it: what the
// document has is served, and nothing else is.
func TestOpenAPIMatchesRoutes(t *testing.T) {
	w := open(t)
	h := api.NewHandler(w, api.Options{Version: "1.2"})
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest("GET", "/v1/openapi.json", nil))
	var doc struct {
		OpenAPI string `json:"openapi"`
		Info    struct{ Version string }
		Paths   map[string]map[string]struct {
			Summary     string
			Parameters  []struct{ Name string }
			RequestBody *struct{}
			Responses   map[string]any
		}
		Components struct{ Schemas map[string]any }
	}
	if err := json.Unmarshal(rec.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	if doc.OpenAPI != "3.1.0" || doc.Info.Version != "1.2" {
		t.Errorf("document: %s %s", doc.OpenAPI, doc.Info.Version)
	}
	var want = []string{"/v1/check", "/v1/cp", "/v1/df", "/v1/file", "/v1/log", "/v1/ls", "/v1/mkdir", "/v1/mv", "/v1/openapi.json",
		"/v1/rm", "/v1/stat", "/v1/status", "/v1/stop", "/v1/sync", "/v1/tree"}
	var got []string
	for path, methods := range doc.Paths {
		got = append(got, path)
		for _, method := range []string{"get", "put", "post", "delete"} {
			op, documented := methods[method]
			// A parameter nobody knows: a served route refuses it before it does anything.
			r := httptest.NewRequest(strings.ToUpper(method), path+"?nobody-knows-this=1", http.NoBody)
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, r)
			body, err := io.ReadAll(rec.Body)
			if err != nil {
				t.Fatal(err)
			}
			served := strings.Contains(string(body), "unknown parameter")
			if served != documented {
				t.Errorf("%s %s: documented %v, served %v: %s", method, path, documented, served, body)
			}
			if documented && (op.Summary == "" || op.Responses["200"] == nil || op.Responses["default"] == nil) {
				t.Errorf("%s %s: incomplete: %+v", method, path, op)
			}
			if documented && method == "put" && op.RequestBody == nil {
				t.Errorf("%s %s: a body is not documented", method, path)
			}
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("paths %q, want %q", got, want)
	}
	checkRefs(t, doc.Paths, doc.Components.Schemas)
}

// checkRefs proves that every schema named is there.
func checkRefs(t *testing.T, paths any, schemas map[string]any) {
	b, err := json.Marshal(paths)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(b), "#/components/schemas/")[1:] {
		name := part[:strings.IndexByte(part, '"')]
		if schemas[name] == nil {
			t.Errorf("schema %q is missing", name)
		}
	}
}

func TestBadRequests(t *testing.T) {
	h := api.NewHandler(open(t), api.Options{})
	for _, tc := range []struct{ method, url, code, names string }{
		{"GET", "/v1/stat", "USAGE", "path"},
		{"GET", "/v1/stat?path=relative", "USAGE", "relative"},
		{"GET", "/v1/stat?path=/a%00b", "USAGE", "NUL"},
		{"GET", "/v1/stat?path=/a&path=/b", "USAGE", "2 times"},
		{"GET", "/v1/stat?path=/a&follow=perhaps", "USAGE", "perhaps"},
		{"POST", "/v1/mkdir?path=/a&mode=999", "USAGE", "999"},
		{"GET", "/v1/log?n=-1", "USAGE", "-1"},
		{"POST", "/v1/sync?timeout=soon", "USAGE", "soon"},
		{"GET", "/v1/nothing", "NOTFOUND", "/v1/nothing"},
		{"PUT", "/v1/tree?path=/x", "USAGE", "tree stream"},
		{"GET", "/v1/stat?path=/../../etc/passwd", "ENOENT", "/etc/passwd"},
	} {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest(tc.method, tc.url, strings.NewReader("junk")))
		var e api.Error
		if err := json.Unmarshal(rec.Body.Bytes(), &e); err != nil || e.Code != tc.code || !strings.Contains(e.Message, tc.names) || rec.Code < 400 {
			t.Errorf("%s %s: %d %+v (%v), want code %s naming %q", tc.method, tc.url, rec.Code, e, err, tc.code, tc.names)
		}
	}
}
