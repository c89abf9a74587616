package main

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"syscall"

	"wsfs/internal/cli"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// inside gives an argument its absolute form in the workspace.
func inside(arg string) (string, error) {
	if arg == "" {
		return "", cli.Usagef("an empty path; the workspace's root is /")
	}
	if strings.IndexByte(arg, 0) >= 0 {
		return "", cli.Usagef("path %q contains a NUL byte", arg)
	}
	return path.Clean("/" + arg), nil
}

// contents tells whether an argument names what a directory holds rather than the directory: ".", "x/." and "/".
func contents(arg string) bool {
	return arg == "." || arg == ".." || strings.HasSuffix(arg, "/.") || strings.HasSuffix(arg, "/..") || strings.Trim(arg, "/") == ""
}

// destination is where cp, mv and put write: the names below dir that the sources get, or, where there is one source
// and the destination is not a directory, the destination itself.
type destination struct {
	path  string
	isDir bool
}

func resolveDestination(ctx context.Context, c *cli.Connection, arg string, sources int) (destination, error) {
	p, err := inside(arg)
	if err != nil {
		return destination{}, err
	}
	d := destination{path: p}
	e, err := c.Stat(ctx, p, true)
	switch {
	case err == nil:
		d.isDir = e.Type == "dir"
	case !errors.Is(err, fs.ErrNotExist):
		return d, err
	}
	if !d.isDir && (sources > 1 || strings.HasSuffix(arg, "/")) {
		if err == nil {
			err = &fs.PathError{Op: "stat", Path: p, Err: syscall.ENOTDIR}
		}
		return d, err
	}
	return d, nil
}

// of is the path a source is written to.
func (d destination) of(source string) string {
	if !d.isDir || contents(source) {
		return d.path
	}
	return path.Join(d.path, path.Base(source))
}
