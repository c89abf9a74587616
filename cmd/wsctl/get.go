package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"wsfs/api"
	"wsfs/internal/cli"
)

func getCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "get REMOTE... LOCAL",
		Short: "Copy files and directories out of the workspace",
		Long: cli.Long(`Copies from the workspace to this host, as cp -a would; see put for what is kept (owners only as root). If LOCAL is a
directory, REMOTE goes into it under its own name; REMOTE/. and / are what they hold. LOCAL - is stdout, for one file. A
file is replaced when all of the new one is there; directories are merged; links in them are not followed.`),
		Example: "  wsctl get /src ./src\n  wsctl get / ./everything\n  wsctl get /a.tar - | tar x",
		Args:    cli.Args(2, -1, "REMOTE... LOCAL"),
		RunE: func(c *cobra.Command, args []string) error {
			remotes, local := args[:len(args)-1], args[len(args)-1]
			if err := validateGet(a, remotes, local); err != nil {
				return err
			}
			return a.with(c, true, func(ctx context.Context, conn *cli.Connection) error {
				return runGet(ctx, a, conn, remotes, local)
			})
		},
	}
}

func validateGet(a *app, remotes []string, local string) error {
	if _, err := insideAll(remotes, ""); err != nil {
		return err
	}
	if local == "-" {
		if len(remotes) > 1 {
			return cli.Usagef("- (stdout) takes one file, %d are given", len(remotes))
		}
		if a.json {
			return cli.Usagef("--json and - (stdout) exclude each other")
		}
		return nil
	}
	fi, err := os.Stat(local)
	switch {
	case errors.Is(err, fs.ErrNotExist) && len(remotes) == 1 && !strings.HasSuffix(local, "/"):
		_, err = os.Stat(filepath.Dir(local))
		return err
	case errors.Is(err, fs.ErrNotExist) && strings.HasSuffix(local, "/") && len(remotes) == 1:
		return nil // made as a directory, if it is one
	case err != nil:
		return err
	case len(remotes) > 1 && !fi.IsDir():
		return &fs.PathError{Op: "get", Path: local, Err: syscall.ENOTDIR}
	}
	return nil
}

func runGet(ctx context.Context, a *app, conn *cli.Connection, remotes []string, local string) error {
	if local == "-" {
		p, err := inside(remotes[0])
		if err != nil {
			return err
		}
		return runCat(ctx, conn, p, 0, -1, a.out)
	}
	isDir := false
	if fi, err := os.Stat(local); err == nil {
		isDir = fi.IsDir()
	}
	var sum api.Totals
	failed := 0
	for _, remote := range remotes {
		target := strings.TrimSuffix(local, "/")
		if local == "/" {
			target = "/"
		}
		if isDir && !contents(remote) {
			target = filepath.Join(local, path.Base(path.Clean("/"+remote)))
		}
		t, n, err := getTree(ctx, a, conn, remote, target)
		if err != nil {
			return err
		}
		sum.Nodes, sum.Bytes, sum.Errors, failed = sum.Nodes+t.Nodes, sum.Bytes+t.Bytes, append(sum.Errors, t.Errors...), failed+n
	}
	if a.json {
		if err := a.print(sum); err != nil {
			return err
		}
	}
	if failed > 0 {
		return cli.Reported(cli.ExitFailure)
	}
	return nil
}

// getTree receives one tree and returns how many files could not be written; each was reported on stderr.
func getTree(ctx context.Context, a *app, conn *cli.Connection, remote, target string) (api.Totals, int, error) {
	p, err := inside(remote)
	if err != nil {
		return api.Totals{}, 0, err
	}
	body, err := conn.GetTree(ctx, p)
	if err != nil {
		return api.Totals{}, 0, err
	}
	bar := cli.NewProgress("get", a.json)
	defer bar.Done()
	t, n, err := receiveTree(body, target, bar)
	if cerr := body.Close(); err == nil {
		err = cerr
	}
	return t, n, err
}
