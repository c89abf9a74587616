package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"wsfs/api"
	"wsfs/internal/cli"
)

// wait returns when the workspace is closed. The first signal ends the daemon properly; the second makes it leave at
// once, keeping the journal.
func (d *mountd) wait(signals <-chan os.Signal) {
	stopping := false
	gone := d.gone
	for {
		select {
		case <-d.done:
			return
		case <-gone:
			gone = nil
			d.log.Info("the mount has ended")
			go d.end(api.StopOptions{Lazy: true}, func(api.StopEvent) {})
		case sig := <-signals:
			d.log.Info("signal", "signal", sig.String())
			if stopping {
				d.leave()
			} else {
				stopping = true
				go d.end(api.StopOptions{Lazy: true}, func(api.StopEvent) {})
			}
		}
	}
}

// leave cuts the last commit short. If the journal does not close in time the process ends as if killed: the journal
// survives that too.
func (d *mountd) leave() {
	d.log.Warn("leaving at once; work that is not in the store stays in the cache directory", "dir", d.s.CacheDir)
	d.rush()
	select {
	case <-d.done:
	case <-time.After(lastLeave):
		if d.mount != nil {
			if err := cli.Detach(d.s.Dir); err != nil {
				d.log.Warn("the mount point stays dead until the next mount", "error", err)
			}
		}
		os.Exit(cli.ExitUnsynced)
	}
}

// stopRequest is POST /v1/stop.
func (d *mountd) stopRequest(_ context.Context, o api.StopOptions, progress func(api.StopEvent)) error {
	d.log.Info("asked to stop", "wait", o.Wait, "lazy", o.Lazy)
	return d.end(o, progress)
}

// end unmounts and closes. A mount in use is an error and nothing has changed, unless o.Lazy. Whoever comes while it
// runs, or later, gets the same result.
func (d *mountd) end(o api.StopOptions, progress func(api.StopEvent)) error {
	d.stopMu.Lock()
	defer d.stopMu.Unlock()
	if d.ended {
		return d.result
	}
	progress(api.StopEvent{State: "unmounting"})
	if err := d.unmount(o.Lazy); err != nil {
		return err
	}
	d.ended = true
	notify(d.log, daemon.SdNotifyStopping)
	if err := d.live.Unregister(); err != nil {
		d.log.Warn("removing this daemon from the list of live mounts", "error", err)
	}
	d.result = d.closeWorkspace(o.Wait, progress)
	if d.result != nil {
		d.log.Error("closing the workspace", "error", d.result)
	}
	close(d.done)
	return d.result
}

func (d *mountd) unmount(lazy bool) error {
	if d.mount == nil {
		return nil
	}
	err := d.mount.Unmount()
	if err == nil || !errors.Is(err, syscall.EBUSY) {
		return err
	}
	if !lazy {
		return &api.Error{Code: "EBUSY", Path: d.s.Dir,
			Message: fmt.Sprintf("%s is in use by a program (fuser -vm %s shows which); end it, or use --lazy", d.s.Dir, d.s.Dir)}
	}
	d.log.Warn("the mount is in use; detaching it", "dir", d.s.Dir)
	return d.detach()
}

// detach takes the mount away whoever uses it. Programs that still have files open there get errors once this process
// has ended.
func (d *mountd) detach() error {
	if err := cli.Detach(d.s.Dir); err != nil && !errors.Is(err, syscall.EINVAL) {
		return fmt.Errorf("detaching %s: %w", d.s.Dir, err)
	}
	return nil
}

// closeWorkspace commits and closes; wait 0 waits for ever, < 0 not at all. Progress goes to the requester and to
// systemd.
func (d *mountd) closeWorkspace(wait time.Duration, progress func(api.StopEvent)) error {
	ctx := d.hurry
	var cancel context.CancelFunc
	switch {
	case wait < 0:
		ctx, cancel = context.WithCancel(ctx)
		cancel()
	case wait > 0:
		ctx, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	closed := make(chan error, 1)
	go func() { closed <- d.opened.Close(ctx) }()
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-closed:
			return err
		case <-tick.C:
			dirty := d.opened.Status().DirtyBytes
			progress(api.StopEvent{State: "committing", DirtyBytes: dirty, CacheDir: d.s.CacheDir})
			notify(d.log, fmt.Sprintf("STATUS=committing, %sB to go", cli.Size(dirty)))
		}
	}
}
