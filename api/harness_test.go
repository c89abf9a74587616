package api_test

import (
	"context"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"wsfs"
	"wsfs/api"
	"wsfs/blobs/mem"
	"wsfs/syncer"
)

// open returns a fresh workspace over an in-memory store, closed and checked at the end of the test.
func open(t *testing.T) *wsfs.Workspace {
	t.Helper()
	store := mem.New()
	if _, err := syncer.Init(t.Context(), store, syncer.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	w, err := wsfs.Open(t.Context(), store, "test", wsfs.Options{CacheDir: t.TempDir(), Create: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		r, err := w.Check(ctx, wsfs.CheckOptions{ReadData: true})
		if err != nil || len(r.Problems) > 0 {
			t.Errorf("check after the test: %v %v", r, err)
		}
		if err := w.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return w
}

// serve puts a handler behind a real socket.
func serve(t *testing.T, h http.Handler) *api.Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sock")
	l, err := api.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	t.Cleanup(func() {
		srv.Close()
		if err := <-done; err != http.ErrServerClosed {
			t.Error(err)
		}
	})
	return api.Dial(path)
}

// both runs a test through a socket and in memory.
func both(t *testing.T, o api.Options, fn func(*testing.T, *wsfs.Workspace, *api.Client)) {
	t.Run("socket", func(t *testing.T) {
		w := open(t)
		fn(t, w, serve(t, api.NewHandler(w, o)))
	})
	t.Run("memory", func(t *testing.T) {
		w := open(t)
		fn(t, w, api.InProcess(api.NewHandler(w, o)))
	})
}
