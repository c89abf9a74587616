package main

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"wsfs/api"
	"wsfs/internal/cli"
)

func statusCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "What is not in the store yet, and how the mount is doing",
		Long:  cli.Long("Shows the state of a workspace: its newest commit, work not in the store yet, the last error and since when, who\nholds it, and how it is mounted."),
		Args:  cli.Args(0, 0, ""),
		RunE: func(c *cobra.Command, _ []string) error {
			return a.with(c, true, func(ctx context.Context, conn *cli.Connection) error {
				st, err := conn.Status(ctx, true)
				if err != nil {
					return err
				}
				if a.json {
					return a.print(st)
				}
				return printStatus(a, st, conn.Live != nil)
			})
		},
	}
}

func printStatus(a *app, s *api.Status, daemon bool) error {
	t := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(t, "%s\t%s\n", name, a.name(fmt.Sprintf(format, args...)))
	}
	line("workspace", "%s#%s", s.Store, s.Workspace)
	switch {
	case s.Mount.Dir != "":
		line("mount", "%s (process %d, %s)", s.Mount.Dir, s.PID, mode(s))
		line("options", "%s", s.Mount.Options)
	case daemon:
		line("mount", "none (served by process %d, %s)", s.PID, mode(s))
	default:
		line("mount", "none (opened by this command, %s)", mode(s))
	}
	line("content", "%d files, %sB", s.Inodes, cli.Size(int64(s.Bytes)))
	line("commit", "%d, %s ago, epoch %d, from %s", s.Head.Number, age(s.Head.Time), s.Head.Epoch, dash(s.Head.Host))
	line("not in the store", "%sB, %d operations (limit %sB)", cli.Size(s.DirtyBytes), s.DirtyOps, cli.Size(s.DirtyLimit))
	if s.Committing {
		line("committing", "%sB of %sB read", cli.Size(s.Done), cli.Size(s.Total))
	}
	if s.Unstable > 0 {
		line("unstable", "%d files kept changing and are in the last commit as they were before", s.Unstable)
	}
	if s.Error != "" {
		since := ""
		if s.ErrorSince != nil {
			since = fmt.Sprintf(" (since %s, %s ago)", s.ErrorSince.Local().Format(time.DateTime), age(*s.ErrorSince))
		}
		line("store trouble", "%s%s", s.Error, since)
	}
	if s.Fenced != "" {
		line("fenced", "%s", s.Fenced)
	}
	if l := s.Lease; l != nil {
		line("held by", "%s", lease(l))
	}
	line("cache", "%s, %sB of %sB", s.CacheDir, cli.Size(s.CacheBytes), cli.Size(s.CacheLimit))
	return t.Flush()
}

func mode(s *api.Status) string {
	m := "read-write"
	if s.ReadOnly {
		m = "read-only"
	}
	if s.Mount.Passthrough {
		m += ", passthrough"
	}
	return m
}

func lease(l *api.Lease) string {
	switch {
	case l.Error != "":
		return "unknown: " + l.Error
	case l.Holder == "":
		return "nobody"
	}
	return fmt.Sprintf("%s (host %s, pid %d), seen %s ago", l.Holder, l.Host, l.PID, age(l.Renewed))
}

func age(t time.Time) string { return max(0, time.Since(t)).Round(time.Second).String() }
