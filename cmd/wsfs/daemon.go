package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"wsfs"
	"wsfs/api"
	"wsfs/fusefs"
	"wsfs/internal/cli"
)

// A daemon's life: mount point checked -> cache directory locked -> workspace open -> mounted -> control socket ->
// registered -> ready. It ends in the reverse order, for one of four reasons: a signal, POST /v1/stop, somebody else's
// umount, or the end of its start. The mount always goes before the workspace is closed, so that the last commit holds
// everything that was written through it.
type mountd struct {
	s   *settings
	log *slog.Logger

	opened *cli.Opened
	mount  *fusefs.Server // nil for serve
	live   cli.Live
	http   *http.Server
	socket net.Listener

	gone chan struct{} // closed when the mount has ended
	done chan struct{} // closed when the workspace is closed

	stopMu sync.Mutex // guards the rest; held while stopping
	ended  bool
	result error

	hurry context.Context // ends when the last commit must not be waited for any longer
	rush  context.CancelFunc
}

// lastLeave is how long a daemon in a hurry may take to close its journal.
const lastLeave = 3 * time.Second

// memoryTarget is what the collector tries to keep the daemon's own memory below, bytes. What lives is far less; without it
// a busy commit's buffers may double before they are collected. GOMEMLIMIT overrides it.
const memoryTarget = 256 << 20

// runDaemon runs until the daemon's end and returns its error. ready is called once, with the line to show.
func runDaemon(s *settings, log *slog.Logger, ready func(line string)) error {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryTarget)
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	d := &mountd{s: s, log: log, gone: make(chan struct{}), done: make(chan struct{})}
	d.hurry, d.rush = context.WithCancel(context.Background())
	defer d.rush()
	if err := d.start(signals); err != nil {
		return err
	}
	line := d.line()
	log.Info("ready", "pid", os.Getpid(), "what", line)
	notify(log, daemon.SdNotifyReady+"\nSTATUS="+line)
	ready(line)
	d.wait(signals)
	shutdown, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := d.http.Shutdown(shutdown); err != nil {
		log.Warn("requests were cut off", "error", err)
	}
	return d.result
}

// notify tells systemd, where it listens.
func notify(log *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("telling systemd", "error", err)
	}
}

func (d *mountd) line() string {
	where, how := "serving without a mount", "read-write"
	if d.s.Dir != "" {
		where = "mounted on " + d.s.Dir
	}
	if d.opened.ReadOnly() {
		how = "read-only"
	}
	if d.passthrough() {
		how += ", passthrough"
	}
	return fmt.Sprintf("%s of %s %s (%s)", d.s.Target.Name, d.s.Target.Store, where, how)
}

func (d *mountd) passthrough() bool { return d.mount != nil && d.mount.Stats().Passthrough }

// start goes through the daemon's start and undoes it where a step fails. A signal meanwhile ends it.
func (d *mountd) start(signals <-chan os.Signal) (err error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	stop := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case sig := <-signals:
			cancel(fmt.Errorf("ended by signal %v", sig))
		case <-stop:
		}
	})
	defer func() {
		close(stop)
		watch.Wait()
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		cancel(nil)
		if err != nil {
			err = errors.Join(err, d.undo())
		}
	}()
	if err := d.openWorkspace(ctx); err != nil {
		return err
	}
	if err := d.mountOn(ctx); err != nil {
		return err
	}
	return d.openDoor()
}

func (d *mountd) openWorkspace(ctx context.Context) (err error) {
	if d.s.Dir != "" {
		if d.s.Dir, err = cli.PrepareMountPoint(d.s.Dir, d.log); err != nil {
			return err
		}
	}
	d.opened, err = cli.OpenWorkspace(ctx, d.s.Target, cli.OpenOptions{LockWait: 2 * time.Second, Workspace: wsfs.Options{
		CacheDir: d.s.CacheDir, CacheSize: int64(d.s.CacheSize), DirtyLimit: int64(d.s.DirtyLimit),
		CommitQuiet: min(d.s.CommitQuiet, d.s.CommitInterval), CommitMax: d.s.CommitInterval,
		FsyncStore: d.s.Fsync == "store", ReadOnly: d.s.ReadOnly, Takeover: d.s.Takeover, Create: d.s.Create, Log: d.log,
	}})
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}

func (d *mountd) mountOn(ctx context.Context) error {
	if d.s.Dir == "" {
		return nil
	}
	m, err := fusefs.Mount(d.opened.Workspace, d.s.Dir, fusefs.Options{
		ReadOnly: d.opened.ReadOnly(), AllowOther: d.s.AllowOther, Passthrough: d.s.Passthrough,
		NoPermissions: os.Getuid() == 0 && !d.s.AllowOther,
		CacheDir:      d.s.CacheDir, FSName: d.s.Target.String(), Log: d.log,
	})
	if err != nil {
		return err
	}
	d.mount = m
	go func() {
		m.Serve()
		close(d.gone)
	}()
	return m.WaitReady(ctx)
}

// openDoor opens the control socket and registers the daemon.
func (d *mountd) openDoor() (err error) {
	socket := cli.Socket(d.s.CacheDir, d.opened.ReadOnly())
	if d.socket, err = api.Listen(socket); err != nil {
		return err
	}
	d.http = &http.Server{
		Handler:           api.NewHandler(d.opened.Workspace, d.apiOptions()),
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(d.log.Handler(), slog.LevelWarn),
	}
	go func() {
		if err := d.http.Serve(d.socket); !errors.Is(err, http.ErrServerClosed) {
			d.log.Error("the control socket is closed", "error", err)
		}
	}()
	d.live = cli.Live{Mount: d.s.Dir, Store: d.s.Target.Store, Workspace: d.s.Target.Name, CacheDir: d.s.CacheDir,
		Socket: socket, ReadOnly: d.opened.ReadOnly()}
	return d.live.Register()
}

func (d *mountd) apiOptions() api.Options {
	o := api.Options{Classify: cli.Classify, Stop: d.stopRequest, Version: cli.Version(), Log: d.log}
	if d.mount != nil {
		o.Requests = func() map[string]uint64 { return d.mount.Stats().Requests }
		o.Mount = api.Mount{Dir: d.s.Dir, ReadOnly: d.opened.ReadOnly(), Passthrough: d.passthrough(), Options: d.s.summary()}
	}
	return o
}

// summary shows the settings that matter for a mount as mount options.
func (s *settings) summary() string {
	return fmt.Sprintf("cache_size=%s,dirty_limit=%s,commit_interval=%v,fsync=%s,passthrough=%v,allow_other=%v",
		s.CacheSize.String(), s.DirtyLimit.String(), s.CommitInterval, s.Fsync, s.Passthrough, s.AllowOther)
}

// undo closes what a failed start has opened.
func (d *mountd) undo() error {
	err := d.live.Unregister()
	if d.http != nil {
		err = errors.Join(err, d.http.Close())
	} else if d.socket != nil {
		err = errors.Join(err, d.socket.Close())
	}
	if d.mount != nil {
		err = errors.Join(err, d.detach())
	}
	if d.opened != nil {
		ctx, cancel := context.WithTimeout(context.Background(), lastLeave)
		defer cancel()
		err = errors.Join(err, d.opened.Close(ctx))
	}
	return err
}
