// Command bench compares a mounted workspace with a journaled ext4, in one run and in turns, and prints the ratios.
//
// A place is a directory to measure in (ext4, wsfs, a FUSE loopback, tmpfs); a row is one piece of work, prepared,
// timed and cleaned up in each place round after round; a sample is one timed run. docs/performance.md says how to read
// the result.
//
// Warning: it makes and mounts file system images, so it needs root, and one of its rows drops the kernel's caches of
// names and inodes. It never deletes in bulk outside its images.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// options are the command line.
type options struct {
	rows             string // comma-separated parts of row names
	rounds           int
	jsonFile         string
	dir              string
	store            string // "dir" or "versitygw"
	scale            float64
	loopback, tmpfs  bool
	wsfs, wsctl      string // binaries; "" builds them
	mountFlags       string // further flags for `wsfs mount`, space-separated
	plain            bool   // compare with a plain directory instead of images: for machines without loop devices
	imageGiB         int64
	list             bool
	keepDaemonLog    string
	out, diagnostics io.Writer
}

func main() {
	if len(os.Args) == 4 && os.Args[1] == loopbackChild {
		if err := serveLoopback(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := parseFlags(os.Args[1:], os.Stdout, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	if err := bench(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

func parseFlags(args []string, out, diagnostics io.Writer) (options, error) {
	o := options{out: out, diagnostics: diagnostics}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(diagnostics)
	f.StringVar(&o.rows, "rows", "", "only rows whose name contains one of these, comma-separated")
	f.IntVar(&o.rounds, "rounds", 5, "rounds per row")
	f.StringVar(&o.jsonFile, "json", "", "write every sample to this file")
	f.StringVar(&o.dir, "dir", os.TempDir(), "where images, store and inputs lie")
	f.StringVar(&o.store, "store", "dir", "the store behind the workspace: dir or versitygw")
	f.Float64Var(&o.scale, "scale", 1, "sizes and counts times this")
	f.BoolVar(&o.loopback, "loopback", false, "also measure go-fuse's loopback on ext4")
	f.BoolVar(&o.tmpfs, "tmpfs", false, "also measure tmpfs")
	f.StringVar(&o.wsfs, "wsfs", "", "the wsfs binary; built when not given")
	f.StringVar(&o.wsctl, "wsctl", "", "the wsctl binary; built when not given")
	f.StringVar(&o.mountFlags, "mount-flags", "", "further flags for `wsfs mount`, separated by spaces")
	f.BoolVar(&o.plain, "plain", false, "plain directories instead of ext4 images: a smoke test, not a measurement")
	f.Int64Var(&o.imageGiB, "image-gib", 16, "size of each (sparse) image, GiB")
	f.StringVar(&o.keepDaemonLog, "daemon-log", "", "copy the daemon's log to this file at the end")
	f.BoolVar(&o.list, "list", false, "print the names of the rows and leave")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	return o, o.validate(f.Args())
}

func (o options) validate(rest []string) error {
	switch {
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %q", rest[0])
	case o.rounds < 1 || o.rounds > 1000:
		return fmt.Errorf("--rounds %d: want 1 to 1000", o.rounds)
	case !(o.scale > 0 && o.scale <= 100):
		return fmt.Errorf("--scale %v: want more than 0 and at most 100", o.scale)
	case o.store != "dir" && o.store != "versitygw":
		return fmt.Errorf("--store %q: want dir or versitygw", o.store)
	case o.imageGiB < 1:
		return fmt.Errorf("--image-gib %d: want at least 1", o.imageGiB)
	case (o.wsfs == "") != (o.wsctl == ""):
		return errors.New("--wsfs and --wsctl go together")
	}
	_, err := selectRows(o.rows)
	return err
}

// bench is the whole run: places, inputs, rounds, report.
func bench(ctx context.Context, o options) (err error) {
	rows, err := selectRows(o.rows)
	if err != nil {
		return err
	}
	if o.list {
		for _, r := range rows {
			fmt.Fprintln(o.out, r.name)
		}
		return nil
	}
	work, err := os.MkdirTemp(o.dir, "wsfs-bench-")
	if err != nil {
		return fmt.Errorf("make a working directory: %w", err)
	}
	places, err := makePlaces(ctx, o, work)
	defer func() { err = errors.Join(err, cleanUp(places, work)) }()
	if err != nil {
		return err
	}
	m := &measurement{o: o, places: places, inputs: newInputs(work, o.scale)}
	results, err := m.all(ctx, rows)
	printTable(o.out, o, places, results)
	if o.jsonFile != "" {
		err = errors.Join(err, writeJSON(o.jsonFile, o, results))
	}
	return errors.Join(err, failures(results))
}

// cleanUp takes the places down, last made first. The working directory is removed only once nothing is mounted below
// it any more.
func cleanUp(places []place, work string) error {
	var err error
	for i := len(places) - 1; i >= 0; i-- {
		err = errors.Join(err, places[i].close())
	}
	mounts, readErr := os.ReadFile("/proc/mounts")
	if readErr != nil || strings.Contains(string(mounts), " "+work+"/") {
		return errors.Join(err, readErr, fmt.Errorf("something is still mounted below %s; it is left as it is", work))
	}
	return errors.Join(err, os.RemoveAll(work))
}
