package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"wsfs/api"
	"wsfs/internal/cli"
)

func putCommand(a *app) *cobra.Command {
	var mode string
	c := &cobra.Command{
		Use:   "put LOCAL... REMOTE",
		Short: "Copy files and directories into the workspace",
		Long: cli.Long(`Copies from this host into the workspace, as cp -a would: directories with all they hold, modes, owners, times to the
nanosecond, extended attributes, hard and symbolic links, holes, devices and fifos. If REMOTE is a directory, LOCAL goes
into it under its own name; LOCAL/. is what LOCAL holds. LOCAL - is stdin. A file is replaced when all of the new one
is there; directories are merged.`),
		Example: "  wsctl put ./src /backup\n  wsctl put ./site/. /www\n  tar c . | wsctl put - /a.tar",
		Args:    cli.Args(2, -1, "LOCAL... REMOTE"),
		RunE: func(c *cobra.Command, args []string) error {
			bits, err := validatePut(args, mode)
			if err != nil {
				return err
			}
			return a.with(c, false, func(ctx context.Context, conn *cli.Connection) error {
				return runPut(ctx, a, conn, args[:len(args)-1], args[len(args)-1], bits)
			})
		},
	}
	c.Flags().StringVarP(&mode, "mode", "m", "", "with -: permission bits, octal (default 0644, or as they are)")
	return c
}

func validatePut(args []string, mode string) (uint32, error) {
	locals := args[:len(args)-1]
	for _, local := range locals {
		if local == "-" && len(locals) > 1 {
			return 0, cli.Usagef("- (stdin) cannot be put together with other files")
		}
		if local == "-" {
			continue
		}
		if _, err := os.Lstat(local); err != nil {
			return 0, err
		}
	}
	if mode == "" {
		return 0, nil
	}
	if locals[0] != "-" {
		return 0, cli.Usagef("--mode goes with - (stdin) only: files keep their own")
	}
	return parseMode(mode)
}

func runPut(ctx context.Context, a *app, conn *cli.Connection, locals []string, remote string, mode uint32) error {
	d, err := resolveDestination(ctx, conn, remote, len(locals))
	if err != nil {
		return err
	}
	if locals[0] == "-" {
		if d.isDir {
			return &fs.PathError{Op: "put", Path: d.path, Err: syscall.EISDIR}
		}
		t, err := conn.PutFile(ctx, d.path, mode, os.Stdin)
		if err == nil && a.json {
			err = a.print(t)
		}
		return err
	}
	return putTrees(ctx, a, conn, locals, d)
}

// putTrees sends all sources in one stream. Reading happens in a goroutine of its own, so that it overlaps with
// storing.
func putTrees(ctx context.Context, a *app, conn *cli.Connection, locals []string, d destination) error {
	bar := cli.NewProgress("put", a.json)
	pr, pw := io.Pipe()
	result := make(chan error, 1)
	var skipped int
	go func() {
		var err error
		skipped, err = sendTrees(pw, locals, d, bar)
		pw.CloseWithError(err)
		result <- err
	}()
	totals, err := conn.PutTree(ctx, d.path, pr)
	pr.Close()
	if rerr := <-result; rerr != nil && !errors.Is(rerr, io.ErrClosedPipe) {
		err = rerr // what went wrong here is the cause, whatever the other side made of it
	}
	bar.Done()
	if err != nil {
		return err
	}
	if a.json {
		err = a.print(totals)
	}
	if err == nil && skipped > 0 {
		return cli.Reported(cli.ExitFailure)
	}
	return err
}

// sendTrees writes the stream and returns how many files it had to leave out; each was reported on stderr.
func sendTrees(w io.Writer, locals []string, d destination, bar *cli.Progress) (int, error) {
	out, err := api.NewTreeWriter(w)
	if err != nil {
		return 0, err
	}
	r := newTreeSource(out, bar)
	for _, local := range locals {
		rel := ""
		if d.isDir && !contents(local) {
			abs, err := filepath.Abs(local)
			if err != nil {
				return 0, err
			}
			rel = path.Base(abs)
		}
		if err := r.add(local, rel); err != nil {
			return 0, err
		}
	}
	return r.skipped, out.Close()
}
