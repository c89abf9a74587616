package fusefs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"wsfs"
	"wsfs/blobs/mem"
	"wsfs/syncer"
)

// cores are the file systems the mount tests run over: the small one of this package's tests, which keeps exact count of
// references, and a workspace.
var cores = []string{"mem", "workspace"}

// testCore is a core under test, and what ends it after the commands are over.
type testCore struct {
	core
	mount func(dir string, o Options) (*Server, error)
	stop  func() error
	ws    *wsfs.Workspace // nil for "mem"
}

func openCore(cfg childConfig) (*testCore, error) {
	if cfg.Core == "mem" {
		m := newMemCore(cfg.Cache)
		m.refuse.Store(cfg.Refuse)
		mountMem := func(dir string, o Options) (*Server, error) { return mount(m, dir, o) }
		return &testCore{core: m, mount: mountMem, stop: func() error { return nil }}, nil
	}
	return openWorkspace(cfg)
}

// openWorkspace opens a workspace in a store in memory; at the end it must be consistent.
func openWorkspace(cfg childConfig) (*testCore, error) {
	ctx := context.Background()
	store := mem.New()
	if _, err := syncer.Init(ctx, store, syncer.InitOptions{}); err != nil {
		return nil, err
	}
	w, err := wsfs.Open(ctx, store, "test", wsfs.Options{
		CacheDir: cfg.Cache, Create: true, CommitQuiet: 50 * time.Millisecond, CommitMax: 200 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return nil, err
	}
	stop := func() error {
		_, cerr := w.Commit(ctx)
		rep, err := w.Check(ctx, wsfs.CheckOptions{ReadData: true})
		if err == nil && len(rep.Problems) > 0 {
			err = fmt.Errorf("check: %v", rep.Problems)
		}
		return errors.Join(cerr, err, w.Close(ctx))
	}
	mountWorkspace := func(dir string, o Options) (*Server, error) {
		o.CacheDir = filepath.Join(cfg.Cache, "staging")
		return Mount(w, dir, o)
	}
	return &testCore{core: workspaceCore{w}, mount: mountWorkspace, stop: stop, ws: w}, nil
}
