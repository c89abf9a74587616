package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"wsfs/internal/cli"
)

func catCommand(a *app) *cobra.Command {
	var o catFlags
	c := &cobra.Command{
		Use:   "cat PATH...",
		Short: "Write files to stdout",
		Long:  cli.Long("Writes files, or a range of each, to stdout."),
		Args:  cli.Args(1, -1, "PATH..."),
		RunE: func(c *cobra.Command, args []string) error {
			paths, err := o.validate(a, args)
			if err != nil {
				return err
			}
			return a.with(c, true, func(ctx context.Context, conn *cli.Connection) error {
				for _, p := range paths {
					if err := runCat(ctx, conn, p, o.offset, o.length, a.out); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	c.Flags().Int64Var(&o.offset, "offset", 0, "start at this byte")
	c.Flags().Int64Var(&o.length, "length", -1, "write at most this many bytes")
	return c
}

type catFlags struct{ offset, length int64 }

func (o catFlags) validate(a *app, args []string) ([]string, error) {
	if a.json {
		return nil, cli.Usagef("cat has no JSON form: it writes the file's bytes")
	}
	if o.offset < 0 || o.length < -1 {
		return nil, cli.Usagef("--offset=%d --length=%d: want numbers of bytes from 0 on", o.offset, o.length)
	}
	return insideAll(args, "")
}

func runCat(ctx context.Context, conn *cli.Connection, p string, offset, length int64, w io.Writer) error {
	e, err := conn.Stat(ctx, p, true)
	if err != nil {
		return err
	}
	if e.Type == "file" && offset >= e.Size && offset > 0 {
		return nil
	}
	r, err := conn.Cat(ctx, p, offset, length)
	if err != nil {
		return err
	}
	if _, err := io.Copy(w, r); err != nil {
		return errors.Join(fmt.Errorf("cat %s: %w", p, err), r.Close())
	}
	return r.Close()
}
