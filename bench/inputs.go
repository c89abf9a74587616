package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"

	"wsfs/e2e/fixture"
)

// inputs are what rows read, made on first use, outside the places, and shared by all of them.
type inputs struct {
	dir   string
	scale float64

	bytes   []byte
	files   []string
	cache   string // npm cache, primed
	tarFile string
}

func newInputs(dir string, scale float64) *inputs { return &inputs{dir: dir, scale: scale} }

// scaled returns n times the scale, at least 1.
func (in *inputs) scaled(n int) int { return max(1, int(math.Round(float64(n)*in.scale))) }

// content is 64 MiB that no compressor shortens.
func (in *inputs) content() []byte {
	if in.bytes == nil {
		n := max(64<<10, in.scaled(64<<20))
		in.bytes = make([]byte, n)
		if _, err := io.ReadFull(fixture.Random(1, int64(n)), in.bytes); err != nil {
			panic(err) // a generator has no errors
		}
	}
	return in.bytes
}

// sources are paths of real source files.
func (in *inputs) sources(ctx context.Context) ([]string, error) {
	if in.files == nil {
		files, err := fixture.ModuleSources(ctx, 1000)
		if err != nil {
			return nil, err
		}
		in.files = files
	}
	return in.files, nil
}

// project is the npm project: the small one in scaled-down runs.
func (in *inputs) project() fixture.Project {
	if in.scale < 0.5 {
		return fixture.Small
	}
	return fixture.Full
}

// npm returns an npm cache that holds all the project needs.
func (in *inputs) npm(ctx context.Context) (string, error) {
	if in.cache == "" {
		cache := filepath.Join(in.dir, "npm-cache")
		if err := in.project().Prime(ctx, cache, in.dir); err != nil {
			return "", err
		}
		in.cache = cache
	}
	return in.cache, nil
}

// tar returns an archive of the project's node_modules.
func (in *inputs) tar(ctx context.Context) (string, error) {
	if in.tarFile != "" {
		return in.tarFile, nil
	}
	cache, err := in.npm(ctx)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(in.dir, "npm-master")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the archive: %w", err)
	}
	if err := in.project().Write(dir); err != nil {
		return "", err
	}
	if out, err := fixture.NPM(ctx, dir, cache, true).CombinedOutput(); err != nil {
		return "", fmt.Errorf("make the archive: npm ci: %w: %s", err, tail(out))
	}
	file := filepath.Join(in.dir, "node_modules.tar")
	if out, err := exec.CommandContext(ctx, "tar", "-C", dir, "-cf", file, "node_modules").CombinedOutput(); err != nil {
		return "", fmt.Errorf("make the archive: tar: %w: %s", err, tail(out))
	}
	in.tarFile = file
	return file, nil
}
