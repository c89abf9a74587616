package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"wsfs/api"
	"wsfs/internal/cli"
)

func lsCommand(a *app) *cobra.Command {
	var o lsFlags
	c := &cobra.Command{
		Use:   "ls [PATH...]",
		Short: "List directories",
		Long:  cli.Long("Lists directories by name, one entry a line. Bytes that are not UTF-8 are escaped on a terminal and raw elsewhere; in\nJSON, name_base64 has them."),
		Args:  cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			paths, err := insideAll(args, "/")
			if err != nil {
				return err
			}
			return a.with(c, true, func(ctx context.Context, conn *cli.Connection) error {
				for i, p := range paths {
					if err := runLs(ctx, a, conn, o, p, len(paths) > 1 || o.recursive, i == 0); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	c.Flags().BoolVarP(&o.long, "long", "l", false, "attributes too")
	c.Flags().BoolVarP(&o.all, "all", "a", false, "names that start with a dot too")
	c.Flags().BoolVarP(&o.recursive, "recursive", "R", false, "what is below too")
	return c
}

type lsFlags struct{ long, all, recursive bool }

// insideAll makes every argument a workspace path; otherwise is taken where there is none.
func insideAll(args []string, otherwise string) ([]string, error) {
	if len(args) == 0 {
		return []string{otherwise}, nil
	}
	var paths []string
	for _, arg := range args {
		p, err := inside(arg)
		if err != nil {
			return nil, err
		}
		paths = append(paths, p)
	}
	return paths, nil
}

func runLs(ctx context.Context, a *app, conn *cli.Connection, o lsFlags, p string, header, first bool) error {
	var entries []*api.Entry
	err := conn.List(ctx, p, false, func(e *api.Entry) error {
		if o.all || !strings.HasPrefix(e.RawName(), ".") || e.RawPath() == p {
			entries = append(entries, e)
		}
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(entries, func(x, y *api.Entry) int { return strings.Compare(x.RawName(), y.RawName()) })
	one := len(entries) == 1 && entries[0].RawPath() == p
	if header && !a.json && !one {
		if !first {
			fmt.Fprintln(a.out)
		}
		fmt.Fprintf(a.out, "%s:\n", a.name(p))
	}
	if err := printEntries(a, o, entries, one); err != nil {
		return err
	}
	for _, e := range entries {
		if o.recursive && e.Type == api.TypeDir {
			if err := runLs(ctx, a, conn, o, e.RawPath(), true, false); err != nil {
				return err
			}
		}
	}
	return nil
}

func printEntries(a *app, o lsFlags, entries []*api.Entry, path bool) error {
	if o.long && !a.json {
		return printLong(a, entries, path)
	}
	for _, e := range entries {
		var err error
		switch {
		case a.json:
			err = a.print(e)
		default:
			_, err = fmt.Fprintln(a.out, a.name(shown(e, path)))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func shown(e *api.Entry, path bool) string {
	if path {
		return e.RawPath()
	}
	return e.RawName()
}

// printLong aligns every column but the names, which may hold any byte.
func printLong(a *app, entries []*api.Entry, path bool) error {
	rows := make([][]string, len(entries))
	var width [6]int
	for i, e := range entries {
		rows[i] = []string{modeString(e), itoa(int64(e.Nlink)), itoa(int64(e.UID)), itoa(int64(e.GID)), sizeColumn(a, e),
			e.Mtime.Local().Format("2006-01-02 15:04")}
		for j, s := range rows[i] {
			width[j] = max(width[j], len(s))
		}
	}
	for i, e := range entries {
		for j, s := range rows[i] {
			fmt.Fprintf(a.out, "%*s ", width[j], s)
		}
		if _, err := fmt.Fprintln(a.out, a.name(shown(e, path)+arrow(e))); err != nil {
			return err
		}
	}
	return nil
}

func arrow(e *api.Entry) string {
	if e.Type == api.TypeSymlink {
		return " -> " + e.RawTarget()
	}
	return ""
}

func sizeColumn(a *app, e *api.Entry) string {
	if e.Type == api.TypeChar || e.Type == api.TypeBlock {
		major, minor := api.DeviceNumbers(e.Rdev)
		return fmt.Sprintf("%d,%d", major, minor)
	}
	return a.size(e.Size)
}

// modeString is the first column of ls -l.
func modeString(e *api.Entry) string {
	bits, err := strconv.ParseUint(e.Mode, 8, 12)
	if err != nil {
		return e.Mode
	}
	b := []byte(map[string]string{api.TypeDir: "d", api.TypeSymlink: "l", api.TypeFifo: "p", api.TypeSocket: "s",
		api.TypeChar: "c", api.TypeBlock: "b", api.TypeFile: "-"}[e.Type] + "rwxrwxrwx")
	for i := range 9 {
		if bits>>(8-i)&1 == 0 {
			b[1+i] = '-'
		}
	}
	for i, c := range []struct {
		bit uint64
		x   byte
	}{{0o4000, 's'}, {0o2000, 's'}, {0o1000, 't'}} {
		if at := 3 + 3*i; bits&c.bit != 0 && b[at] == 'x' {
			b[at] = c.x
		} else if bits&c.bit != 0 {
			b[at] = c.x - 'a' + 'A'
		}
	}
	return string(b)
}
