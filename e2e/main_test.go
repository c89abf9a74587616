package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"wsfs/e2e/fixture"
)

var full = flag.Bool("full", false, "run at full size, the long tests too (an hour, 30 GiB of disk)")

// built are the commands under test, made once.
var built struct{ dir, wsfs, wsctl string }

func TestMain(m *testing.M) {
	if dir := os.Getenv(syncerChild); dir != "" {
		os.Exit(writeSynced(dir))
	}
	flag.Parse()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if built.dir, err = os.MkdirTemp("", "wsfs-e2e-"); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(built.dir)) }()
	built.wsfs, built.wsctl = filepath.Join(built.dir, "wsfs"), filepath.Join(built.dir, "wsctl")
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "go", "build", "-o", built.dir+"/", "wsfs/cmd/wsfs", "wsfs/cmd/wsctl").CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("build the commands: %w\n%s", err, out)
	}
	return m.Run(), nil
}

// project is the npm project of this run.
func project() fixture.Project {
	if *full {
		return fixture.Full
	}
	return fixture.Small
}

// size picks a number by the size of the run.
func size[N ~int | ~int64](normal, long N) N {
	if *full {
		return long
	}
	return normal
}

// primedCache is an npm cache that holds the project; filled once per run of the test binary.
var primedCache = sync.OnceValues(func() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cache := filepath.Join(built.dir, "npm-cache")
	return cache, project().Prime(ctx, cache, built.dir)
})

func npmCache(t *testing.T) string {
	t.Helper()
	cache, err := primedCache()
	if err != nil {
		t.Fatal(err)
	}
	return cache
}

// longTest skips unless the run is at full size.
func longTest(t *testing.T) {
	t.Helper()
	if !*full {
		t.Skip("runs with -full")
	}
}
