package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"wsfs/fusefs"
	"wsfs/internal/cli"
)

// settings is all a daemon is told. It travels to the background process as JSON, so paths in it are absolute.
type settings struct {
	Target         cli.Target
	Dir            string // mount point; "" for serve
	Foreground     bool
	ReadOnly       bool
	Takeover       bool
	Create         bool
	AllowOther     bool
	CacheDir       string
	CacheSize      size
	DirtyLimit     size
	CommitInterval time.Duration // latest commit after a change
	CommitQuiet    time.Duration // commit after this long without a change
	Fsync          string        // "local" or "store"
	Passthrough    fusefs.Passthrough
	Verbose        bool
}

// size is a flag.Value for bytes with units.
type size int64

func (s *size) String() string { return cli.Size(int64(*s)) }
func (s *size) Type() string   { return "SIZE" }

func (s *size) Set(v string) error {
	n, err := cli.ParseSize(v)
	*s = size(n)
	return err
}

// Defaults of the daemon.
const (
	defaultCacheSize      = size(10 << 30)
	defaultDirtyLimit     = size(20 << 30)
	defaultCommitInterval = 5 * time.Second
	defaultCommitQuiet    = time.Second
)

func defaults() *settings {
	return &settings{CacheSize: defaultCacheSize, DirtyLimit: defaultDirtyLimit, CommitInterval: defaultCommitInterval,
		CommitQuiet: defaultCommitQuiet, Fsync: "local"}
}

func mountCommand() *cobra.Command {
	s := defaults()
	var options []string
	c := &cobra.Command{
		Use:   "mount [STORE#]WORKSPACE DIR",
		Short: "Mount a workspace and return when it is ready",
		Long: cli.Long(`Mounts a workspace on an empty directory. The daemon goes to the background and logs to the file "log" in the
cache directory; the command returns when the mount is ready, or with the daemon's error and its exit code.

Without STORE# the store is dir:// in the user's data directory; it and the workspace are made on first use. In any
other store the workspace is made with --create, or beforehand with wsctl init.

Stores: s3://bucket/prefix  r2://ACCOUNT/bucket/prefix  minio://host:port/bucket/prefix  dir:///path
Credentials come from the environment and the usual files, never from here.`),
		Example: "  wsfs mount demo ~/demo\n  wsfs mount 's3://bucket/pool?region=eu-central-1#demo' /mnt/demo --create",
		Args:    cli.Args(2, 2, "[STORE#]WORKSPACE DIR"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := s.validate(c.Flags(), options, args[0], args[1]); err != nil {
				return err
			}
			return runMount(s)
		},
	}
	s.flags(c.Flags())
	s.mountFlags(c.Flags())
	c.Flags().StringSliceVarP(&options, "options", "o", nil, "mount(8) options: any flag of this command without its dashes, as ro,cache_size=5G")
	return c
}

// flags are those of every daemon.
func (s *settings) flags(f *pflag.FlagSet) {
	f.BoolVar(&s.ReadOnly, "read-only", false, "follow the workspace without writing to it")
	f.BoolVar(&s.Takeover, "takeover", false, "take the workspace from another writer; that one becomes read-only and keeps its unsynced work")
	f.BoolVar(&s.Create, "create", false, "make the workspace if the store does not have it")
	f.StringVar(&s.CacheDir, "cache-dir", "", "directory for the live state (default: below ~/.cache/wsfs)")
	f.Var(&s.CacheSize, "cache-size", "how much of the store is kept on this host")
	f.Var(&s.DirtyLimit, "dirty-limit", "how much work may wait for the store before writers are held up")
	f.DurationVar(&s.CommitInterval, "commit-interval", s.CommitInterval, "commit at the latest this long after a change")
	f.DurationVar(&s.CommitQuiet, "commit-quiet", s.CommitQuiet, "commit this long after the last change")
	f.StringVar(&s.Fsync, "fsync", s.Fsync, "what fsync waits for: local (the journal) or store (a commit)")
	f.BoolVar(&s.Verbose, "verbose", false, "log more")
}

// mountFlags are those of a mount alone.
func (s *settings) mountFlags(f *pflag.FlagSet) {
	f.BoolVar(&s.Foreground, "foreground", false, "stay in the foreground and log to stderr")
	f.BoolVar(&s.AllowOther, "allow-other", false, "let other users into the mount")
	f.Var(&s.Passthrough, "passthrough", "let the kernel read and write local files itself")
}

// validate completes the settings from -o and the arguments, and makes paths absolute.
func (s *settings) validate(f *pflag.FlagSet, options []string, target, dir string) error {
	if err := applyOptions(f, options); err != nil {
		return err
	}
	var err error
	if s.Target, err = cli.ParseTarget(target); err != nil {
		return err
	}
	if dir != "" {
		if s.Dir, err = filepath.Abs(dir); err != nil {
			return err
		}
	}
	if s.CacheDir == "" {
		s.CacheDir, err = s.Target.CacheDir()
	} else {
		s.CacheDir, err = filepath.Abs(s.CacheDir)
	}
	switch {
	case err != nil:
		return err
	case s.Fsync != "local" && s.Fsync != "store":
		return cli.Usagef("--fsync=%s: want local or store", s.Fsync)
	case s.CommitInterval < 100*time.Millisecond || s.CommitInterval > 24*time.Hour:
		return cli.Usagef("--commit-interval=%v: want 100ms to 24h", s.CommitInterval)
	case s.CommitQuiet < time.Millisecond || s.CommitQuiet > 24*time.Hour:
		return cli.Usagef("--commit-quiet=%v: want 1ms to 24h", s.CommitQuiet)
	case s.CacheSize < 64<<20:
		return cli.Usagef("--cache-size=%s: want at least 64M", s.CacheSize.String())
	case s.DirtyLimit < 16<<20:
		return cli.Usagef("--dirty-limit=%s: want at least 16M", s.DirtyLimit.String())
	case s.ReadOnly && (s.Takeover || s.Create):
		return cli.Usagef("--read-only goes with neither --takeover nor --create: both write")
	}
	return nil
}

// ignored are mount(8) options that mean nothing to us but stand in fstab for other programs.
var ignored = map[string]bool{"rw": true, "defaults": true, "auto": true, "noauto": true, "user": true, "users": true, "nouser": true,
	"owner": true, "group": true, "nofail": true, "_netdev": true, "exec": true, "noexec": true, "suid": true, "nosuid": true,
	"dev": true, "nodev": true, "async": true, "relatime": true, "noatime": true, "nodiratime": true, "default_permissions": true}

// applyOptions sets flags from mount(8) options: names may have '_' for '-'.
func applyOptions(f *pflag.FlagSet, options []string) error {
	for _, o := range options {
		name, value, given := strings.Cut(o, "=")
		if o == "" || ignored[o] || strings.HasPrefix(o, "x-") || strings.HasPrefix(o, "comment=") {
			continue
		}
		if name == "ro" {
			name = "read-only"
		}
		flag := f.Lookup(strings.ReplaceAll(name, "_", "-"))
		if flag == nil || flag.Name == "options" || flag.Name == "help" {
			return unknownOption(o)
		}
		if !given {
			if flag.NoOptDefVal == "" {
				return cli.Usagef("mount option %q: wants a value, as %s=...", o, name)
			}
			value = flag.NoOptDefVal
		}
		if err := f.Set(flag.Name, value); err != nil {
			return cli.Usagef("mount option %q: %v", o, err)
		}
	}
	return nil
}

// unknownOptionError lets mount.wsfs -s overlook it.
type unknownOptionError struct{ error }

func unknownOption(o string) error {
	return unknownOptionError{cli.Usagef("mount option %q is unknown; wsfs mount --help lists them", o)}
}

// Unwrap keeps the exit code.
func (e unknownOptionError) Unwrap() error { return e.error }

func runMount(s *settings) error {
	// Checked here too, so that the common mistakes are told without starting a process.
	dir, err := cli.PrepareMountPoint(s.Dir, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		return err
	}
	s.Dir = dir
	if s.Foreground {
		return runDaemon(s, foregroundLog(s), func(line string) { fmt.Fprintln(os.Stderr, line) })
	}
	line, err := background(s)
	if err == nil {
		fmt.Println(line)
	}
	return err
}

func foregroundLog(s *settings) *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: s.level()}))
}

func (s *settings) level() slog.Level {
	if s.Verbose {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// mountHelperArgs turns mount(8)'s call `mount.wsfs SRC DIR [-sfnv] [-N ns] [-t type] [-o opts]` into ours; nil where nothing is
// to be done (-f).
func mountHelperArgs(args []string) ([]string, error) {
	f := pflag.NewFlagSet("mount.wsfs", pflag.ContinueOnError)
	f.Usage = func() {}
	sloppy := f.BoolP("sloppy", "s", false, "")
	fake := f.BoolP("fake", "f", false, "")
	f.BoolP("no-mtab", "n", false, "")
	verbose := f.BoolP("verbose", "v", false, "")
	namespace := f.StringP("namespace", "N", "", "")
	f.StringP("type", "t", "", "")
	options := f.StringSliceP("options", "o", nil, "")
	if err := f.Parse(args); err != nil {
		return nil, cli.Usagef("%v; want: mount.wsfs [STORE#]WORKSPACE DIR [-sfnv] [-N namespace] [-o options]", err)
	}
	if f.NArg() != 2 {
		return nil, cli.Usagef("%d arguments given; want: mount.wsfs [STORE#]WORKSPACE DIR [-sfnv] [-N namespace] [-o options]", f.NArg())
	}
	if *namespace != "" {
		return nil, cli.Usagef("-N %s: mounting into another namespace is not supported; run mount there (nsenter --mount)", *namespace)
	}
	if *sloppy {
		*options = known(*options)
	}
	if *fake {
		s := defaults()
		check := pflag.NewFlagSet("", pflag.ContinueOnError)
		s.flags(check)
		s.mountFlags(check)
		return nil, s.validate(check, *options, f.Arg(0), f.Arg(1))
	}
	out := []string{"mount", "-o", strings.Join(*options, ",")}
	if *verbose {
		out = append(out, "--verbose")
	}
	return append(out, "--", f.Arg(0), f.Arg(1)), nil
}

// known drops the options that nobody knows.
func known(options []string) []string {
	var keep []string
	for _, o := range options {
		s := defaults()
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		s.flags(f)
		s.mountFlags(f)
		var unknown unknownOptionError
		if err := applyOptions(f, []string{o}); !errors.As(err, &unknown) {
			keep = append(keep, o)
		}
	}
	return keep
}
