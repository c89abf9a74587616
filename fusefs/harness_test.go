package fusefs

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"wsfs"
)

func ptr[T any](p *T) unsafe.Pointer { return unsafe.Pointer(p) }

// The serving side of every test is a child process, this test binary started again: a process that touched the mount it
// serves could wait for itself. The child takes one command a line on its standard input and answers with one line of JSON.
const childEnv = "FUSEFS_TEST_CHILD"

type childConfig struct {
	Core        string // "mem" or "workspace"
	Passthrough Passthrough
	ReadOnly    bool
	NoXattrs    bool
	// NoPermissions leaves allow_other out, unless AllowOther is set.
	NoPermissions, AllowOther bool
	Refuse                    bool // the core gives no backing files
	Dir                       string
	Cache                     string
	Short                     bool // time out entries and attributes at once
}

func TestMain(m *testing.M) {
	if cfg := os.Getenv(childEnv); cfg != "" {
		if err := child(cfg); err != nil {
			fmt.Println("error: " + strings.ReplaceAll(err.Error(), "\n", "; "))
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func child(text string) error {
	var cfg childConfig
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		return err
	}
	c, err := openCore(cfg)
	if err != nil {
		return err
	}
	level := slog.LevelWarn
	o := Options{ReadOnly: cfg.ReadOnly, NoXattrs: cfg.NoXattrs, NoPermissions: cfg.NoPermissions,
		AllowOther: !cfg.NoPermissions || cfg.AllowOther, Passthrough: cfg.Passthrough, CacheDir: cfg.Cache,
		Debug: os.Getenv("FUSEFS_DEBUG") != "", FSName: "test#ws"}
	if o.Debug {
		level = slog.LevelDebug
	}
	if cfg.Short {
		o.EntryTimeout, o.AttrTimeout = 1, 1
	}
	o.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	s, err := c.mount(cfg.Dir, o)
	if err != nil {
		return errors.Join(err, c.stop())
	}
	go s.Serve()
	if err := s.WaitReady(context.Background()); err != nil {
		return err
	}
	fmt.Println("ready")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		cmd, arg, _ := strings.Cut(in.Text(), " ")
		answer, err := childCommand(s, c, cmd, arg)
		if err != nil {
			answer = "error: " + err.Error()
		}
		b, err := json.Marshal(answer)
		if err != nil {
			return err
		}
		fmt.Println(string(b))
	}
	return c.stop()
}

// childCommand runs what a test asks of the serving side.
func childCommand(s *Server, c *testCore, cmd, arg string) (any, error) {
	ctx := context.Background()
	switch cmd {
	case "stats":
		return s.Stats(), nil
	case "unmount":
		return "ok", s.Unmount()
	case "counts":
		n, refs := c.core.(*memCore).counts()
		return [2]uint64{uint64(n), refs}, nil
	case "tables":
		s.fs.inodes.mu.Lock()
		defer s.fs.inodes.mu.Unlock()
		return [2]int{s.fs.files.count(), len(s.fs.inodes.inodes)}, nil
	case "write": // a change behind the kernel's back: write NAME TEXT, in the root
		name, text, _ := strings.Cut(arg, " ")
		if c.ws != nil {
			return "ok", c.ws.WriteFile(ctx, name, []byte(text), 0644)
		}
		a, h, err := c.Create(ctx, 1, name, 0644, wsfs.Owner{}, wsfs.OpenOptions{Write: true, Truncate: true})
		if err != nil {
			return nil, err
		}
		_, err = h.WriteAt(ctx, []byte(text), 0)
		if err = errors.Join(err, h.Close()); err != nil {
			return nil, err
		}
		s.cache.InvalidateInode(a.Ino, 0, 0)
		s.cache.InvalidateEntry(1, name)
		return "ok", nil
	case "refuse":
		c.core.(*memCore).refuse.Store(arg == "on")
		return "ok", nil
	case "cold": // cold NAME: its pages go, and READs of it behave as the name says
		a, err := c.Lookup(ctx, 1, arg)
		if err == nil {
			c.core.(*memCore).names.Store(a.Ino, arg)
			s.cache.InvalidateInode(a.Ino, 0, 0)
		}
		return "ok", err
	case "rename": // rename OLD NEW, in the root, behind the kernel's back
		from, to, _ := strings.Cut(arg, " ")
		if c.ws != nil {
			return "ok", c.ws.RenamePath(ctx, from, to)
		}
		err := c.Rename(ctx, 1, from, 1, to, 0)
		s.cache.InvalidateEntry(1, from)
		s.cache.InvalidateEntry(1, to)
		return "ok", err
	}
	return nil, fmt.Errorf("unknown command %q", cmd)
}

// served is a mount of a child process.
type served struct {
	t    *testing.T
	dir  string
	cmd  *exec.Cmd
	in   *os.File
	out  *bufio.Scanner
	dead bool
}

// start mounts cfg and unmounts at the end of the test, where no file handle may be left. It skips without /dev/fuse.
func start(t *testing.T, cfg childConfig) *served {
	t.Helper()
	s, err := tryStart(t, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func tryStart(t *testing.T, cfg childConfig) (*served, error) {
	t.Helper()
	if _, err := os.Stat(devFuse); err != nil {
		t.Fatal("these tests need FUSE: ", err)
	}
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	if cfg.Cache == "" {
		cfg.Cache = t.TempDir()
	}
	text, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	cmd.Stdin, cmd.Stderr = r, os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.Close()
	s := &served{t: t, dir: cfg.Dir, cmd: cmd, in: w, out: bufio.NewScanner(stdout)}
	// Whatever hangs ends when the child is dead and the mount detached.
	watchdog := time.AfterFunc(90*time.Second, func() { cmd.Process.Kill(); unix.Unmount(s.dir, unix.MNT_DETACH) })
	t.Cleanup(func() { watchdog.Stop(); s.stop() })
	if !s.out.Scan() || s.out.Text() != "ready" {
		s.dead = true
		return nil, errors.New(s.out.Text())
	}
	return s, nil
}

// ask sends a command and decodes the answer into v.
func (s *served) ask(v any, format string, args ...any) {
	s.t.Helper()
	if _, err := fmt.Fprintf(s.in, format+"\n", args...); err != nil {
		s.t.Fatal(err)
	}
	if !s.out.Scan() {
		s.t.Fatalf("%s: the serving side ended", fmt.Sprintf(format, args...))
	}
	if err := json.Unmarshal(s.out.Bytes(), v); err != nil || strings.HasPrefix(s.out.Text(), `"error`) {
		s.t.Fatalf("%s: %s (%v)", fmt.Sprintf(format, args...), s.out.Text(), err)
	}
}

func (s *served) stats() Stats {
	s.t.Helper()
	var st Stats
	s.ask(&st, "stats")
	return st
}

// requests runs fn and returns how many requests of each kind it caused.
func (s *served) requests(fn func()) map[string]uint64 {
	s.t.Helper()
	before := s.stats().Requests
	fn()
	after := s.stats().Requests
	for name, n := range before {
		if after[name] -= n; after[name] == 0 {
			delete(after, name)
		}
	}
	return after
}

func (s *served) stop() {
	defer unix.Unmount(s.dir, unix.MNT_DETACH)
	if !s.dead && !s.t.Failed() {
		s.noneOpen()
		var ok string
		s.ask(&ok, "unmount")
	}
	s.in.Close()
	timer := time.AfterFunc(10*time.Second, func() { s.cmd.Process.Kill() })
	defer timer.Stop()
	if err := s.cmd.Wait(); err != nil && !s.dead && !s.t.Failed() {
		s.t.Errorf("serving side: %v", err)
	}
}

// noneOpen waits until every handle was released (RELEASE comes after close returns) and no open inode is remembered.
func (s *served) noneOpen() {
	s.t.Helper()
	var n [2]int
	s.within("open files and inodes", func() bool {
		s.ask(&n, "tables")
		return n == [2]int{}
	})
}

func (s *served) within(what string, ok func() bool) {
	s.t.Helper()
	for end := time.Now().Add(5 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Errorf("%s: not within 5 s", what)
			return
		}
	}
}

func (s *served) path(name ...string) string {
	return filepath.Join(append([]string{s.dir}, name...)...)
}

// mode is one of the ways to mount that every operation is tested in.
type mode struct {
	name string
	cfg  childConfig
}

// modes are the ways to mount: passthrough, write-back, passthrough mounted while the core gives no backing file (all cached,
// write-through).
func modes(t *testing.T) []mode {
	m := []mode{{"writeback", childConfig{Passthrough: PassthroughOff}}}
	if why := passthroughPossible(); why != nil {
		t.Logf("no passthrough here: %v", why)
		return m
	}
	return append(m, mode{"passthrough", childConfig{Passthrough: PassthroughOn}},
		mode{"writethrough", childConfig{Passthrough: PassthroughOn, Refuse: true}})
}

// eachMode runs fn as a subtest for each core and mode.
func eachMode(t *testing.T, fn func(t *testing.T, s *served)) {
	for _, c := range cores {
		for _, m := range modes(t) {
			if c != "mem" && m.cfg.Refuse {
				continue
			}
			t.Run(c+"/"+m.name, func(t *testing.T) {
				m.cfg.Core = c
				fn(t, start(t, m.cfg))
			})
		}
	}
}
