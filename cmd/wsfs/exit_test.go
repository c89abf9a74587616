package main_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"wsfs/api"
	"wsfs/internal/cli"
)

// TestExitCodes: each mistake has its code, one line that names the input, and an answer within seconds.
func TestExitCodes(t *testing.T) {
	h := newHost(t)
	h.env = append(h.env, "AWS_ACCESS_KEY_ID=AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY=example", "AWS_REGION=eu-central-1")
	store := "dir://" + h.mkdir("store")
	h.ok("wsctl", "init", store+"#there")
	busy := h.mount(store + "#there")
	empty, full, bare, newer := h.mkdir("empty"), h.mkdir("full"), h.mkdir("bare"), h.mkdir("newer")
	h.write(full+"/file", "x")
	h.write(newer+"/wsfs.json", `{"version":99}`)
	dead := "s3://bucket?endpoint=http://127.0.0.1:1"
	for _, tc := range []struct {
		code  int
		names string
		args  []string
	}{
		{cli.ExitUsage, "ftp", []string{"wsfs", "mount", "ftp://host/x#demo", empty}},
		{cli.ExitUsage, "bucket", []string{"wsfs", "mount", "s3:///x#demo", empty}},
		{cli.ExitUsage, "a/b", []string{"wsfs", "mount", store + "#a/b", empty}},
		{cli.ExitUsage, `".."`, []string{"wsfs", "mount", "..", empty}},
		{cli.ExitUsage, "nnnn", []string{"wsfs", "mount", strings.Repeat("n", 64), empty}},
		{cli.ExitUsage, "not a directory", []string{"wsfs", "mount", store + "#there", full + "/file"}},
		{cli.ExitUsage, "--fsync", []string{"wsfs", "mount", "--fsync=never", "demo", empty}},
		{cli.ExitUsage, "12 parsecs", []string{"wsfs", "mount", "--cache-size=12 parsecs", "demo", empty}},
		{cli.ExitUsage, "1 arguments", []string{"wsfs", "mount", "demo"}},
		{cli.ExitUsage, "--warp", []string{"wsfs", "mount", "--warp", "demo", empty}},
		{cli.ExitUsage, "warp", []string{"wsctl", "warp"}},
		{cli.ExitUsage, "no workspace named", []string{"wsctl", "ls"}},
		{cli.ExitUsage, "0999", []string{"wsctl", "-w", busy, "mkdir", "-m", "0999", "/x"}},
		{cli.ExitUsage, "255 bytes", []string{"wsctl", "-w", busy, "mkdir", strings.Repeat("x", 300)}},
		{cli.ExitUsage, "into itself", []string{"wsctl", "-w", busy, "cp", "-r", "/", "/copy"}},
		{cli.ExitNotFound, bare, []string{"wsfs", "mount", "dir://" + bare + "#demo", empty}},
		{cli.ExitNotFound, "wsctl init", []string{"wsfs", "mount", "dir:///no/such/store#demo", empty}},
		{cli.ExitNotFound, "wsctl init", []string{"wsfs", "mount", store + "#missing", empty}},
		{cli.ExitNotFound, "/no/such/dir", []string{"wsfs", "mount", store + "#there", "/no/such/dir"}},
		{cli.ExitNotFound, empty, []string{"wsfs", "umount", empty}},
		{cli.ExitNotFound, "/missing", []string{"wsctl", "-w", busy, "cat", "/missing"}},
		{cli.ExitNotFound, "/missing", []string{"wsctl", "-w", busy, "get", "/missing", h.dir + "/x"}},
		{cli.ExitNotFound, "no-such-file", []string{"wsctl", "-w", busy, "put", "no-such-file", "/"}},
		{cli.ExitNotFound, "/no/mount", []string{"wsctl", "-w", "/no/mount", "ls"}},
		{cli.ExitNotFound, "missing", []string{"wsctl", "-w", store + "#missing", "ls"}},
		{cli.ExitNotFound, "missing", []string{"wsctl", "destroy", store + "#missing"}},
		{cli.ExitRefused, busy, []string{"wsfs", "mount", store + "#there", busy}},
		{cli.ExitRefused, busy, []string{"wsfs", "mount", store + "#there", empty}},
		{cli.ExitRefused, full, []string{"wsfs", "mount", store + "#there", full}},
		{cli.ExitRefused, "99", []string{"wsfs", "mount", "dir://" + newer + "#demo", empty}},
		{cli.ExitRefused, "initialised", []string{"wsctl", "init", store}},
		{cli.ExitRefused, "there", []string{"wsctl", "init", store + "#there"}},
		{cli.ExitRefused, "unmount", []string{"wsctl", "destroy", "--yes", store + "#there"}},
		{cli.ExitUnavailable, "127.0.0.1:1", []string{"wsfs", "mount", dead + "#demo", empty}},
		{cli.ExitUnavailable, "127.0.0.1:1", []string{"wsctl", "list", dead}},
		{cli.ExitUnavailable, "127.0.0.1:1", []string{"wsctl", "-w", dead + "#demo", "ls"}},
		{cli.ExitFailure, "is a directory", []string{"wsctl", "-w", busy, "cat", "/"}},
		{cli.ExitFailure, "is a directory", []string{"wsctl", "-w", busy, "rm", "/"}},
	} {
		r := h.run(tc.args[0], tc.args[1:]...)
		if r.code != tc.code || !strings.Contains(r.stderr, tc.names) || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("want exit code %d and one line naming %q: %v", tc.code, tc.names, r)
		}
		if r.took > 10*time.Second {
			t.Errorf("%s took %v", r.cmd, r.took)
		}
	}
	if m, err := cli.MountAt(empty); err != nil || m != nil {
		t.Errorf("something is mounted after all these failures: %v, %v", m, err)
	}
	h.ok("wsfs", "umount", busy)
}

// TestDamage: a damaged pack is found by check, damaged local metadata refuses to open; both are exit code 6.
func TestDamage(t *testing.T) {
	h := newHost(t)
	store := h.mkdir("store")
	target := "dir://" + store + "#demo"
	h.ok("wsctl", "init", target)
	if r := h.runIn(h.dir, bytes.Repeat([]byte("content "), 1000), "wsctl", "-w", target, "put", "-", "/f"); r.code != 0 {
		t.Fatal(r)
	}
	h.ok("wsctl", "-w", target, "check", "--read-data")
	packs, err := filepath.Glob(store + "/packs/*/*")
	if err != nil || len(packs) == 0 {
		t.Fatal(packs, err)
	}
	for _, p := range packs {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		b[20] ^= 0xff // in the first chunk
		if err := os.WriteFile(p, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if r := h.run("wsctl", "-w", target, "check", "--read-data"); r.code != cli.ExitDamaged || !strings.Contains(r.stdout+r.stderr, "pack") {
		t.Errorf("damaged packs: %v", r)
	}
}

// TestDamagedLocalState: metadata on this host that cannot be trusted is not opened and not touched.
func TestDamagedLocalState(t *testing.T) {
	h := newHost(t)
	h.ok("wsctl", "-w", "demo", "mkdir", "/d")
	files, err := filepath.Glob(filepath.Join(h.dir, ".cache", "wsfs", "*", "demo", "meta", "MANIFEST"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	h.write(files[0], "this is no manifest of anything")
	for _, args := range [][]string{{"wsctl", "-w", "demo", "ls"}, {"wsfs", "mount", "demo", h.mkdir("mnt")}} {
		r := h.run(args[0], args[1:]...)
		if r.code != cli.ExitDamaged || !strings.Contains(r.stderr, "demo") || !strings.Contains(r.stderr, ".cache/wsfs") {
			t.Error(r)
		}
	}
	h.wantFile(files[0], "this is no manifest of anything")
}

func TestDoctor(t *testing.T) {
	h := newHost(t)
	h.env = append(h.env, "AWS_ACCESS_KEY_ID=AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY=example", "AWS_REGION=eu-central-1")
	store := "dir://" + h.mkdir("store")
	h.ok("wsctl", "init", store)
	for _, program := range []string{"wsfs", "wsctl"} {
		out := h.ok(program, "doctor", store)
		for _, want := range []string{"kernel", "/dev/fuse", "passthrough", "fusermount3", "cache directory", "put", "conditional put", "list", "delete", "clock", "pool"} {
			if !strings.Contains(out, want) {
				t.Errorf("%s doctor says nothing of %s:\n%s", program, want, out)
			}
		}
		if strings.Contains(out, "FAIL") {
			t.Errorf("%s doctor: %s", program, out)
		}
	}
	r := h.run("wsfs", "doctor", "s3://bucket?endpoint=http://127.0.0.1:1")
	if r.code != cli.ExitFailure || !strings.Contains(r.stdout, "FAIL") || !strings.Contains(r.stdout, "check the endpoint") {
		t.Errorf("doctor of a dead store: %v", r)
	}
}

// TestJSON: what every command prints with --json is JSON, line by line.
func TestJSON(t *testing.T) {
	h := newHost(t)
	h.ok("wsctl", "-w", "demo", "mkdir", "/d\xff")
	h.write(h.dir+"/local", "x")
	for _, args := range [][]string{
		{"init", "dir://" + h.dir + "/other#w"}, {"list"}, {"-w", "demo", "status"}, {"-w", "demo", "sync"}, {"-w", "demo", "log"},
		{"-w", "demo", "check"}, {"-w", "demo", "df"}, {"-w", "demo", "put", h.dir + "/local", "/"}, {"-w", "demo", "ls", "-l", "/"},
		{"-w", "demo", "stat", "/d\xff"}, {"-w", "demo", "get", "/local", h.dir + "/got"}, {"-w", "demo", "cp", "/local", "/c"},
		{"-w", "demo", "mv", "/c", "/e"}, {"-w", "demo", "mkdir", "/n"}, {"-w", "demo", "rm", "/e"}, {"destroy", "dir://" + h.dir + "/other#w"},
		{"doctor"},
	} {
		out := h.ok("wsctl", append([]string{"--json"}, args...)...)
		lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
		for _, line := range lines {
			if !json.Valid([]byte(line)) {
				t.Errorf("%q printed %q", args, line)
			}
		}
	}
	var e api.Entry
	if err := json.Unmarshal([]byte(h.ok("wsctl", "--json", "-w", "demo", "stat", "/d\xff")), &e); err != nil || e.RawName() != "d\xff" || e.NameBase64 == nil {
		t.Errorf("stat of a name that is not UTF-8: %+v, %v", e, err)
	}
	if got := h.ok("wsctl", "-w", "demo", "ls", "/"); got != "d\xff\nlocal\nn\n" {
		t.Errorf("ls into a pipe: %q", got)
	}
}

// TestDestroy is a dry run until told otherwise.
func TestDestroy(t *testing.T) {
	h := newHost(t)
	h.ok("wsctl", "-w", "demo", "mkdir", "/d")
	if out := h.ok("wsctl", "destroy", "demo"); !strings.Contains(out, "--yes") {
		t.Errorf("dry run: %s", out)
	}
	if out := h.ok("wsctl", "list"); !strings.Contains(out, "demo") {
		t.Errorf("after the dry run: %s", out)
	}
	h.ok("wsctl", "destroy", "--yes", "demo")
	if out := h.ok("wsctl", "list"); strings.Contains(out, "demo") {
		t.Errorf("after destroy: %s", out)
	}
	// The name is free again, and nothing of the old one comes back.
	h.ok("wsctl", "-w", "demo", "mkdir", "/new")
	if got := h.ok("wsctl", "-w", "demo", "ls", "/"); got != "new\n" {
		t.Errorf("a new workspace of the old name holds %q", got)
	}
}
