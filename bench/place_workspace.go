package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"wsfs/blobs/blobtest"
)

// workspace is a mounted workspace with a store behind it, its cache directory in a place of its own.
type workspace struct {
	path        string // the mount
	cache       *directory
	wsfs, wsctl string
	env         []string
	server      *blobtest.Server // nil for a dir: store
	logFrom     string
	logTo       string
	counting    bool
}

// mountWorkspace builds the commands unless they were given, initialises a store and mounts a fresh workspace.
func mountWorkspace(ctx context.Context, o options, work string, cache *directory) (*workspace, error) {
	w := &workspace{path: filepath.Join(work, "wsfs"), cache: cache, wsfs: o.wsfs, wsctl: o.wsctl,
		logFrom: cache.dir(), logTo: o.keepDaemonLog}
	if err := w.binaries(ctx, work); err != nil {
		return nil, err
	}
	store, err := w.store(o, work)
	if err != nil {
		return nil, err
	}
	home := filepath.Join(work, "home")
	w.env = append(w.env, "HOME="+home, "XDG_RUNTIME_DIR="+filepath.Join(home, "run"), "XDG_CACHE_HOME="+filepath.Join(home, "cache"),
		"XDG_DATA_HOME="+filepath.Join(home, "data"))
	if err := errors.Join(os.MkdirAll(filepath.Join(home, "run"), 0o700), os.Mkdir(w.path, 0o755)); err != nil {
		return nil, errors.Join(err, w.stopStore())
	}
	name := store + "#bench"
	mount := append([]string{"mount", "--cache-dir", filepath.Join(cache.dir(), "cache")}, strings.Fields(o.mountFlags)...)
	for _, c := range [][]string{{w.wsctl, "init", name}, append(append([]string{w.wsfs}, mount...), name, w.path)} {
		if _, err := w.run(ctx, c[0], c[1:]...); err != nil {
			return nil, errors.Join(err, w.stopStore())
		}
	}
	counts, err := w.requests(ctx)
	w.counting = counts != nil
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// binaries builds the commands where none were given.
func (w *workspace) binaries(ctx context.Context, work string) error {
	if w.wsfs != "" {
		var err, err2 error
		w.wsfs, err = filepath.Abs(w.wsfs)
		w.wsctl, err2 = filepath.Abs(w.wsctl)
		return errors.Join(err, err2)
	}
	bin := filepath.Join(work, "bin")
	if _, err := w.run(ctx, "go", "build", "-o", bin+"/", "wsfs/cmd/wsfs", "wsfs/cmd/wsctl"); err != nil {
		return err
	}
	w.wsfs, w.wsctl = filepath.Join(bin, "wsfs"), filepath.Join(bin, "wsctl")
	return nil
}

// store starts what lies behind the workspace and returns its URL.
func (w *workspace) store(o options, work string) (string, error) {
	if o.store == "dir" {
		return "dir://" + filepath.Join(work, "store"), nil
	}
	server, err := blobtest.StartVersitygw(filepath.Join(work, "versitygw"))
	if err != nil {
		return "", err
	}
	w.server = server
	w.env = append(w.env, "AWS_ACCESS_KEY_ID="+server.AccessKey, "AWS_SECRET_ACCESS_KEY="+server.SecretKey)
	return server.URL, nil
}

func (w *workspace) stopStore() error {
	if w.server == nil {
		return nil
	}
	return w.server.Stop()
}

// run runs a command and returns its standard output.
func (w *workspace) run(ctx context.Context, name string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), w.env...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, tail(stderr.Bytes()))
	}
	return stdout.Bytes(), nil
}

func (w *workspace) name() string { return "wsfs" }
func (w *workspace) dir() string  { return w.path }
func (w *workspace) counts() bool { return w.counting }

// settle waits for the store and for the disk under the cache directory.
func (w *workspace) settle(ctx context.Context) error {
	if _, err := w.run(ctx, w.wsctl, "-w", w.path, "sync"); err != nil {
		return err
	}
	return w.cache.settle(ctx)
}

// requests reads the daemon's request counts from its status.
func (w *workspace) requests(ctx context.Context) (map[string]uint64, error) {
	out, err := w.run(ctx, w.wsctl, "-w", w.path, "--json", "status")
	if err != nil {
		return nil, err
	}
	return findRequests(out)
}

// findRequests returns the object of counts under the key "requests", at any depth of a JSON document; nil if there is
// none.
func findRequests(doc []byte) (map[string]uint64, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(doc, &fields); err != nil {
		return nil, fmt.Errorf("decode the status: %w", err)
	}
	var counts map[string]uint64
	if raw, ok := fields["requests"]; ok && json.Unmarshal(raw, &counts) == nil {
		return counts, nil
	}
	for _, raw := range fields {
		if len(raw) > 0 && raw[0] == '{' {
			if counts, err := findRequests(raw); err != nil || counts != nil {
				return counts, err
			}
		}
	}
	return nil, nil
}

// close unmounts, stops the store and takes the cache's image down.
func (w *workspace) close() error {
	// Not under the run's context: it may be over.
	_, err := w.run(context.Background(), w.wsfs, "umount", w.path)
	if err != nil {
		err = errors.Join(err, unmount(w.path))
	}
	return errors.Join(err, w.saveLog(), w.stopStore(), w.cache.close())
}

// saveLog copies the daemon's log files out of the cache directory before it goes.
func (w *workspace) saveLog() error {
	if w.logTo == "" {
		return nil
	}
	logs, err := filepath.Glob(filepath.Join(w.logFrom, "cache", "*log*"))
	if err != nil {
		return err
	}
	var all []byte
	for _, name := range logs {
		text, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("keep the daemon's log: %w", err)
		}
		all = append(all, text...)
	}
	return os.WriteFile(w.logTo, all, 0o644)
}
