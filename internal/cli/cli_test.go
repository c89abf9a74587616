package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"wsfs"
	"wsfs/api"
	"wsfs/blobs"
	"wsfs/syncer"
)

func TestExitCode(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want int
	}{
		{nil, ExitOK},
		{errors.New("anything"), ExitFailure},
		{Usagef("x"), ExitUsage},
		{syscall.ENOENT, ExitNotFound},
		{&fs.PathError{Op: "stat", Path: "/x", Err: syscall.ENOENT}, ExitNotFound},
		{syscall.EROFS, ExitRefused},
		{syscall.ENOTEMPTY, ExitRefused},
		{fmt.Errorf("w: %w", &syncer.HeldError{}), ExitRefused},
		{fmt.Errorf("w: %w", &syncer.FencedError{}), ExitRefused},
		{syncer.ErrNewerFormat, ExitRefused},
		{syncer.ErrNoWorkspace, ExitNotFound},
		{fmt.Errorf("x: %w", blobs.ErrUnavailable), ExitUnavailable},
		{blobs.ErrDenied, ExitUnavailable},
		{wsfs.ErrDamaged, ExitDamaged},
		{blobs.ErrDamaged, ExitDamaged},
		// The reason for unsynced work is often the store: it is still unsynced work.
		{fmt.Errorf("%w: %w", wsfs.ErrUnsynced, blobs.ErrUnavailable), ExitUnsynced},
		{&api.Error{Code: "ENOENT"}, ExitNotFound},
		{&api.Error{Code: api.CodeFenced}, ExitRefused},
		{&api.Error{Code: api.CodeUnsynced}, ExitUnsynced},
		{Reported(ExitDamaged), ExitDamaged},
		{Exit(42, "x"), 42},
	} {
		if got := ExitCode(tc.err); got != tc.want {
			t.Errorf("%v: exit code %d, want %d", tc.err, got, tc.want)
		}
	}
	var out strings.Builder
	if code := Report(&out, "wsctl", errors.Join(errors.New("a\x1b[31m"), errors.New("b"))); code != 1 || out.String() != "wsctl: a\\x1b[31m; b\n" {
		t.Errorf("report: %d %q", code, out.String())
	}
}

// TestClassifyRoundTrip: an error ends a program with the same code whether it came over the socket or not.
func TestClassifyRoundTrip(t *testing.T) {
	for _, c := range codes {
		if direct, remote := ExitCode(c.err), exitOf(Classify(fmt.Errorf("x: %w", c.err))); direct != remote || direct == ExitFailure {
			t.Errorf("%v: %d directly, %d over the socket", c.err, direct, remote)
		}
	}
}

func TestSizes(t *testing.T) {
	for s, want := range map[string]int64{"0": 0, "512": 512, "64K": 64 << 10, "10m": 10 << 20, "2GiB": 2 << 30, "1TB": 1 << 40, "7B": 7} {
		if got, err := ParseSize(s); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "K", "-1", "1.5G", "1X", "12 parsecs", "99999999999T", "1KK", "0x10", "9223372036854775807K"} {
		if got, err := ParseSize(s); err == nil {
			t.Errorf("%q is %d", s, got)
		}
	}
	for n, want := range map[int64]string{0: "0", 1023: "1023", 1024: "1.0K", 1536: "1.5K", 10240: "10K", 1<<20 - 1: "1.0M", 5 << 30: "5.0G"} {
		if got := Size(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func TestPrintable(t *testing.T) {
	for s, want := range map[string]string{"plain": "plain", "ünï→": "ünï→", "a\xffb": `a\xffb`, "a\nb": `a\x0ab`, "\x1b[2J": `\x1b[2J`, "\u202e": `\xe2\x80\xae`} {
		if got := Printable(s); got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
}

func TestParseTarget(t *testing.T) {
	t.Setenv("XDG_DATA_HOME", "/data")
	t.Setenv("XDG_CACHE_HOME", "/cache")
	got, err := ParseTarget("demo")
	if err != nil || got.Store != "dir:///data/wsfs/store" || got.Name != "demo" || !got.Default {
		t.Errorf("%+v, %v", got, err)
	}
	dir, err := got.CacheDir()
	if err != nil || !strings.HasPrefix(dir, "/cache/wsfs/") || filepath.Base(dir) != "demo" {
		t.Errorf("%s, %v", dir, err)
	}
	a, err := ParseTarget("dir:///x/./y/#w")
	b, err2 := ParseTarget("/x/y#w")
	if err != nil || err2 != nil || a.String() != b.String() || a.Default {
		t.Errorf("one store, two names: %v %v %v %v", a, b, err, err2)
	}
	for _, bad := range []string{"", "#", "a/b", "..", "dir:///x#", "x#y#a b", "ftp://x#w", strings.Repeat("n", 64)} {
		if got, err := ParseTarget(bad); ExitCode(err) != ExitUsage {
			t.Errorf("%q: %+v, %v", bad, got, err)
		}
	}
}

func TestRegistry(t *testing.T) {
	run := filepath.Join(t.TempDir(), "run")
	t.Setenv("WSFS_RUNTIME_DIR", run)
	if all, err := ListLive(); err != nil || len(all) != 0 {
		t.Errorf("without a directory: %v %v", all, err)
	}
	l := Live{Mount: "/m", Store: "mem:", Workspace: "w"}
	if err := l.Register(); err != nil {
		t.Fatal(err)
	}
	stale := l
	stale.Start++
	b, err := json.Marshal(stale)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(run, "1.json"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, found := range map[string]bool{"/m": true, "/m/a/b": true, "/mx": false, "/": false, "/m/../x": false} {
		if got, err := FindMount(path); err != nil || (got != nil) != found {
			t.Errorf("%s: %v, %v; want found %v", path, got, err, found)
		}
	}
	if _, err := os.Stat(filepath.Join(run, "1.json")); err == nil {
		t.Error("the stale entry stays")
	}
	if got, err := FindTarget(Target{Store: "mem:", Name: "w"}); err != nil || got == nil || !got.Running() {
		t.Errorf("by target: %v, %v", got, err)
	}
	if err := errors.Join(l.Unregister(), l.Unregister()); err != nil {
		t.Error(err)
	}
	if got, err := FindName("w"); err != nil || len(got) != 0 {
		t.Errorf("after unregistering: %v, %v", got, err)
	}
}

func TestMountInfo(t *testing.T) {
	for in, want := range map[string]string{`/a`: "/a", `/a\040b`: "/a b", `/a\134040`: `/a\040`, `/x\`: `/x\`, `/\303\274`: "/ü"} {
		if got := unescape(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	all, err := Mounts()
	if err != nil || len(all) == 0 {
		t.Errorf("%v %v", all, err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/f", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, code := range map[string]int{dir + "/none": ExitNotFound, dir + "/f": ExitUsage, dir: ExitRefused} {
		if _, err := PrepareMountPoint(path, nil); ExitCode(err) != code || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want exit code %d", path, err, code)
		}
	}
}
