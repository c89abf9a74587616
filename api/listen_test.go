package api

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMayControl(t *testing.T) {
	for _, tc := range []struct {
		peer uint32
		self int
		want bool
	}{{0, 0, true}, {0, 1000, true}, {1000, 1000, true}, {1000, 0, false}, {1000, 1001, false}} {
		if got := mayControl(tc.peer, tc.self); got != tc.want {
			t.Errorf("peer %d of a daemon of %d: %v, want %v", tc.peer, tc.self, got, tc.want)
		}
	}
}

func TestListen(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{filepath.Join(dir, "sock"), filepath.Join(dir, strings.Repeat("deep", 40), "sock")} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		// What a dead daemon left is replaced.
		if err := viaShortPath(path, func(p string) error {
			old, err := net.ListenUnix("unix", &net.UnixAddr{Name: p, Net: "unix"})
			if err != nil {
				return err
			}
			old.SetUnlinkOnClose(false)
			return old.Close()
		}); err != nil {
			t.Fatal(err)
		}
		l, err := Listen(path)
		if err != nil {
			t.Fatal(err)
		}
		fi, err := os.Stat(path)
		if err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v", path, fi.Mode(), err)
		}
		accepted := make(chan error, 1)
		go func() {
			for range 2 { // ours, and the probe of the second Listen
				c, err := l.Accept()
				if err == nil {
					err = c.Close()
				}
				accepted <- err
			}
		}()
		c, err := dialUnix(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := <-accepted; err != nil {
			t.Error(err)
		}
		c.Close()
		if _, err := Listen(path); err == nil {
			t.Error("a second listener on a live socket")
		}
		if err := <-accepted; err != nil {
			t.Error(err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("the socket stays: %v", err)
		}
	}
}
