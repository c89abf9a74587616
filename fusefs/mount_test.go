package fusefs

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// TestMountErrors: what cannot be mounted says why, at once, and leaves nothing mounted.
func TestMountErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0644))
	for _, c := range []struct {
		dir, want string
		o         Options
	}{
		{file, "not a directory", Options{}},
		{file + "-absent", "no such file or directory", Options{}},
		{t.TempDir(), "negative timeout", Options{EntryTimeout: -1}},
		{t.TempDir(), "Passthrough(7)", Options{Passthrough: 7}},
	} {
		c.o.Log = quiet()
		begin := time.Now()
		s, err := mount(newMemCore(t.TempDir()), c.dir, c.o)
		if s != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("mount on %s: %v, want %q", c.dir, err, c.want)
		}
		if took := time.Since(begin); took > time.Second {
			t.Errorf("mount on %s took %v to fail", c.dir, took)
		}
	}
}

func TestCheckDevice(t *testing.T) {
	err := checkDevice(filepath.Join(t.TempDir(), "fuse"))
	if !errors.Is(err, syscall.ENOENT) || !strings.Contains(err.Error(), "no FUSE") {
		t.Errorf("%v", err)
	}
}

// TestPassthroughDemand: `on` fails with the reason where passthrough cannot be had, `auto` goes on without.
func TestPassthroughDemand(t *testing.T) {
	if why := passthroughPossible(); why != nil {
		t.Skip(why)
	}
	// A directory on our own kind of stacked file system is too deep for a stack of one.
	lower := start(t, childConfig{Core: "mem", Passthrough: PassthroughOn})
	cfg := childConfig{Core: "mem", Passthrough: PassthroughOn, Cache: lower.dir}
	if _, err := tryStart(t, cfg); err == nil || !strings.Contains(err.Error(), "passthrough is on, but") {
		t.Errorf("on: %v", err)
	}
	cfg.Passthrough = PassthroughAuto
	upper := start(t, cfg)
	if upper.stats().Passthrough {
		t.Error("auto: passthrough")
	}
	must(t, os.WriteFile(upper.path("f"), []byte("stacked"), 0644))
	wantFile(t, upper.path("f"), "stacked")
	upper.noneOpen()
	var ok string
	upper.ask(&ok, "unmount") // before the one below
}

// TestUnprivileged: without CAP_SYS_ADMIN passthrough is refused before anything is mounted.
func TestUnprivileged(t *testing.T) {
	if os.Getuid() != 0 {
		if passthroughPossible() == nil {
			t.Error("passthrough is thought possible without root")
		}
		return
	}
	done := make(chan error)
	go func() { // on a thread of its own, which ends with the goroutine: it never unlocks
		lockThread()
		hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&hdr, &none[0]); err != nil {
			done <- nil
			return
		}
		done <- passthroughPossible()
	}()
	if why := <-done; why == nil || !strings.Contains(why.Error(), "CAP_SYS_ADMIN") {
		t.Errorf("%v", why)
	}
}

func TestBusyUnmount(t *testing.T) {
	eachMode(t, func(t *testing.T, s *served) {
		f, err := os.Create(s.path("f"))
		must(t, err)
		if _, err := io.WriteString(s.in, "unmount\n"); err != nil {
			t.Fatal(err)
		}
		if !s.out.Scan() || !strings.Contains(s.out.Text(), "busy") {
			t.Errorf("unmount while a file is open: %s", s.out.Text())
		}
		_, err = f.WriteString("still works")
		must(t, err)
		must(t, f.Close())
		wantFile(t, s.path("f"), "still works")
	})
}

// TestLazyUnmount: a mount detached while a file is open is served until that file is closed.
func TestLazyUnmount(t *testing.T) {
	eachMode(t, func(t *testing.T, s *served) {
		f, err := os.Create(s.path("f"))
		must(t, err)
		must(t, unix.Unmount(s.dir, unix.MNT_DETACH))
		_, err = f.WriteString("x")
		must(t, err)
		must(t, f.Close())
	})
}

// TestReadOnly: nothing can be changed through the mount; changes behind it show.
func TestReadOnly(t *testing.T) {
	for _, p := range []Passthrough{PassthroughAuto, PassthroughOff} {
		t.Run(p.String(), func(t *testing.T) {
			s := start(t, childConfig{Core: "mem", Passthrough: p, ReadOnly: true})
			wantErr(t, "create", os.WriteFile(s.path("f"), nil, 0644), syscall.EROFS)
			wantErr(t, "mkdir", os.Mkdir(s.path("d"), 0755), syscall.EROFS)
			var ok string
			for _, text := range []string{"one", "one two", "three words here", "4"} {
				f, err := os.Open(s.path("f"))
				s.ask(&ok, "write f %s", text)
				wantFile(t, s.path("f"), text)
				if err == nil { // a reader that had it open sees the new size too
					got, rerr := io.ReadAll(f)
					if rerr != nil || string(got) != text {
						t.Errorf("reader: %q, %v; want %q", got, rerr, text)
					}
					must(t, f.Close())
				}
			}
			wantErr(t, "chmod", os.Chmod(s.path("f"), 0600), syscall.EROFS)
			wantErr(t, "unlink", os.Remove(s.path("f")), syscall.EROFS)
		})
	}
}

func TestNoXattrs(t *testing.T) {
	s := start(t, childConfig{Core: "mem", NoXattrs: true})
	must(t, os.WriteFile(s.path("f"), []byte("x"), 0644))
	wantErr(t, "setxattr", unix.Setxattr(s.path("f"), "user.a", nil, 0), syscall.EOPNOTSUPP)
	if n := s.stats().Requests["GETXATTR"]; n != 0 {
		t.Errorf("%d GETXATTR reached us", n)
	}
}

// TestNegotiation: what go-fuse is asked to agree with the kernel on.
func TestNegotiation(t *testing.T) {
	o := Options{Log: quiet(), CacheDir: "/"}
	pass, back := mountOptions(o, true), mountOptions(o, false)
	o.ReadOnly = true
	follow := mountOptions(o, false)
	if pass.ExtraCapabilities&fuse.CAP_WRITEBACK_CACHE != 0 || back.ExtraCapabilities&fuse.CAP_WRITEBACK_CACHE == 0 {
		t.Error("passthrough and write-back cache exclude each other")
	}
	if back.DisabledCapabilities&fuse.CAP_PASSTHROUGH == 0 {
		t.Error("write-back mode must not offer passthrough")
	}
	if follow.ExtraCapabilities&fuse.CAP_WRITEBACK_CACHE != 0 {
		t.Error("a read-only kernel must believe our sizes")
	}
	if pass.EnableLocks {
		t.Error("locks are the kernel's")
	}
}
