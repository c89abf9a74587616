// Command wsctl looks into workspaces and works on them, with a daemon or without one.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"wsfs/internal/cli"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := rootCommand().ExecuteContext(ctx)
	cancel()
	os.Exit(cli.Report(os.Stderr, "wsctl", err))
}

// app is what every subcommand is given.
type app struct {
	workspace string
	json      bool
	out       io.Writer
	terminal  bool // out is one: names are escaped, sizes are for people
}

func rootCommand() *cobra.Command {
	a := &app{out: os.Stdout, terminal: cli.IsTerminal(os.Stdout)}
	root := cli.Root(&cobra.Command{
		Use:   "wsctl",
		Short: "Look into workspaces and work on them",
		Long: `wsctl talks to the daemon that has a workspace open. Where none has, it opens the workspace itself, does the work,
commits it and closes. A workspace is named with -w: a path inside its mount, its name, or STORE#NAME; else by
WSFS_WORKSPACE, else it is the one whose mount the working directory is in. A name means an open workspace, or one in
the default store.

Paths in a workspace start at its root, with or without a leading slash.

With --json every command prints JSON: listings one object a line, anything else one object.`,
		Example: "  wsctl -w ~/demo status\n  wsctl -w dir:///srv/store#demo ls -l /\n  wsctl -w demo put ./src /backup",
		RunE:    cli.NoCommand, Args: cobra.ArbitraryArgs,
	})
	root.PersistentFlags().StringVarP(&a.workspace, "workspace", "w", "", "DIR, NAME or STORE#NAME")
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print JSON")
	root.AddCommand(
		initCommand(a), listCommand(a), destroyCommand(a), doctorCommand(a), rescueCommand(a),
		statusCommand(a), syncCommand(a), logCommand(a), checkCommand(a), dfCommand(a),
		lsCommand(a), statCommand(a), catCommand(a), putCommand(a), getCommand(a),
		cpCommand(a), mvCommand(a), rmCommand(a), mkdirCommand(a))
	return root
}

// with connects, works, and closes: without a daemon the work is committed then. reader tells that nothing is changed.
func (a *app) with(c *cobra.Command, reader bool, work func(context.Context, *cli.Connection) error) error {
	ctx := c.Context()
	conn, err := cli.Connect(ctx, a.workspace, reader, cli.Version())
	if err != nil {
		return err
	}
	return errors.Join(work(ctx, conn), conn.Close(ctx))
}

// print writes one value as a line of JSON.
func (a *app) print(v any) error { return json.NewEncoder(a.out).Encode(v) }

// name prepares a file name for printing.
func (a *app) name(s string) string { return cli.Name(s, a.terminal) }

// size is bytes for people on a terminal, the number elsewhere.
func (a *app) size(n int64) string {
	if a.terminal {
		return cli.Size(n)
	}
	return itoa(n)
}
