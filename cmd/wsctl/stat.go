package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"wsfs/api"
	"wsfs/internal/cli"
)

func statCommand(a *app) *cobra.Command {
	var follow bool
	c := &cobra.Command{
		Use:   "stat PATH...",
		Short: "Show all attributes",
		Long:  cli.Long("Shows all attributes, of the link itself where PATH is one."),
		Args:  cli.Args(1, -1, "PATH..."),
		RunE: func(c *cobra.Command, args []string) error {
			paths, err := insideAll(args, "")
			if err != nil {
				return err
			}
			return a.with(c, true, func(ctx context.Context, conn *cli.Connection) error {
				for _, p := range paths {
					e, err := conn.Stat(ctx, p, follow)
					if err == nil {
						err = printStat(a, e)
					}
					if err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	c.Flags().BoolVarP(&follow, "dereference", "L", false, "follow a link")
	return c
}

func printStat(a *app, e *api.Entry) error {
	if a.json {
		return a.print(e)
	}
	_, err := fmt.Fprintf(a.out, "%s%s\n  %s, %s bytes, %d blocks, inode %d, %d links\n  mode %s %s, owner %d:%d\n  modified %s\n  changed  %s\n  accessed %s\n  born     %s\n",
		a.name(e.RawPath()), a.name(arrow(e)), e.Type, itoa(e.Size), e.Blocks, e.Ino, e.Nlink, e.Mode, modeString(e), e.UID, e.GID,
		when(e.Mtime), when(e.Ctime), when(e.Atime), when(e.Btime))
	return err
}

func when(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05.000000000 -0700") }
