// Command wsfs mounts a workspace and keeps it in step with its store: the daemon.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"wsfs/internal/cli"
)

func main() {
	os.Exit(run())
}

// run is main with an exit code. A process that was started to go to the background has its orders in the environment;
// one called mount.wsfs speaks mount(8)'s language.
func run() int {
	if orders, ok := os.LookupEnv(ordersEnv); ok {
		return runBackground(orders)
	}
	root := rootCommand()
	if base := filepath.Base(os.Args[0]); base == "mount.wsfs" || base == "mount.fuse.wsfs" {
		args, err := mountHelperArgs(os.Args[1:])
		if err != nil {
			return cli.Report(os.Stderr, base, err)
		}
		if args == nil {
			return cli.ExitOK
		}
		root.SetArgs(args)
	}
	return cli.Report(os.Stderr, "wsfs", root.Execute())
}

func rootCommand() *cobra.Command {
	root := cli.Root(&cobra.Command{
		Use:   "wsfs",
		Short: "Mount workspaces that live in an S3-compatible store",
		Long: `wsfs mounts a workspace: a directory tree that outlives the host it runs on. Its truth is a local journal and
numbered commits in a store. wsctl is the command for everything but mounting.`,
		RunE: cli.NoCommand, Args: cobra.ArbitraryArgs,
	})
	root.AddCommand(mountCommand(), umountCommand(), serveCommand(), doctorCommand(), versionCommand())
	return root
}

func versionCommand() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print the version", Args: cli.Args(0, 0, ""),
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(c.OutOrStdout(), "wsfs", cli.Version())
			return err
		}}
}
