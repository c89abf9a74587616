package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"wsfs/api"
	"wsfs/internal/cli"
)

func umountCommand() *cobra.Command {
	var o umountFlags
	c := &cobra.Command{
		Use:     "umount DIR|WORKSPACE",
		Aliases: []string{"unmount"},
		Short:   "Unmount, wait until everything is in the store, and end the daemon",
		Long: cli.Long(`Unmounts a workspace, commits what is not in the store yet, and ends its daemon. While the store cannot be reached it
waits; with --no-wait, after --timeout, or when interrupted twice, the rest stays in the cache directory, the command
says so and exits with 7, and the next mount on this host goes on with it. WORKSPACE ends a daemon without a mount.`),
		Args: cli.Args(1, 1, "DIR"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			return runUmount(o, args[0])
		},
	}
	c.Flags().BoolVar(&o.noWait, "no-wait", false, "do not wait for the store")
	c.Flags().DurationVar(&o.timeout, "timeout", 0, "how long to wait for the store (default: as long as it takes)")
	c.Flags().BoolVar(&o.lazy, "lazy", false, "detach the mount even if programs use it")
	return c
}

type umountFlags struct {
	noWait, lazy bool
	timeout      time.Duration
}

func (o umountFlags) validate() error {
	if o.timeout < 0 {
		return cli.Usagef("--timeout=%v: want a positive duration", o.timeout)
	}
	if o.noWait && o.timeout > 0 {
		return cli.Usagef("--no-wait and --timeout exclude each other")
	}
	return nil
}

func (o umountFlags) stop() api.StopOptions {
	s := api.StopOptions{Wait: o.timeout, Lazy: o.lazy}
	if o.noWait {
		s.Wait = -1
	}
	return s
}

func runUmount(o umountFlags, arg string) error {
	live, err := findDaemon(arg)
	if err != nil {
		return err
	}
	if live == nil {
		return umountDead(arg)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	bar := cli.NewProgress("unmounting "+arg, false)
	err = api.Dial(live.Socket).Stop(ctx, o.stop(), func(e api.StopEvent) {
		if e.State == "committing" {
			bar.Text(cli.Size(e.DirtyBytes) + "B to go to the store")
		}
	})
	bar.Done()
	if ctx.Err() != nil {
		return cli.Exit(cli.ExitUnsynced, "interrupted; the daemon (process %d) goes on unmounting and committing", live.PID)
	}
	if err != nil {
		return err
	}
	return awaitExit(*live)
}

// findDaemon finds the daemon whose mount point is exactly arg, or the only one that serves a workspace of that name
// without a mount.
func findDaemon(arg string) (*cli.Live, error) {
	dir, err := cli.RealDir(arg)
	if err == nil {
		live, err := cli.FindMount(dir)
		if err != nil {
			return nil, err
		}
		if live != nil && live.Mount == dir {
			return live, nil
		}
	}
	found, err := cli.FindName(arg)
	if err != nil {
		return nil, err
	}
	for i := range found {
		if found[i].Mount == "" {
			return &found[i], nil
		}
	}
	return nil, nil
}

// umountDead deals with a mount point that no live daemon answers for.
func umountDead(arg string) error {
	dir, err := cli.RealDir(arg)
	if err != nil {
		return err
	}
	at, err := cli.MountAt(dir)
	if err != nil {
		return err
	}
	if at == nil || at.Type != cli.MountType {
		return cli.NotFoundf("%s is not a mount point of wsfs", arg)
	}
	if !cli.Dead(dir) {
		return cli.NotFoundf("%s is mounted, but its daemon is not registered here; it belongs to another user, or WSFS_RUNTIME_DIR differs", arg)
	}
	if err := cli.Detach(dir); err != nil {
		return fmt.Errorf("detaching the dead mount %s: %w", arg, err)
	}
	fmt.Fprintf(os.Stderr, "wsfs: the daemon of %s had died; the mount point is free again. Work that was not in the store yet is in the cache directory; mount %s again to go on with it\n", arg, at.Source)
	return nil
}

// awaitExit waits until the daemon's process is gone, so that its cache directory is free.
func awaitExit(live cli.Live) error {
	for deadline := time.Now().Add(15 * time.Second); live.Running(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("everything is in the store, but the daemon (process %d) does not end", live.PID)
		}
	}
	return nil
}
