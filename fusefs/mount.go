package fusefs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// Server is a mount. The kernel keeps requests waiting until Serve runs.
type Server struct {
	fs    *fileSystem
	cache *kernelCache
	fuse  *fuse.Server
	dir   string // absolute
	own   bool   // mounted by mount(2), not by fusermount3

	start   sync.Once
	serving chan struct{} // closed when Serve begins
	done    chan struct{} // closed when the file system is unmounted and all files are closed
}

// mount mounts c on dir. In PassthroughAuto a mount whose passthrough does not work is replaced by one without.
func mount(c core, dir string, o Options) (*Server, error) {
	abs, err := o.check(dir)
	if err != nil {
		return nil, err
	}
	if err := checkDevice(devFuse); err != nil {
		return nil, err
	}
	if o.Passthrough == PassthroughOff {
		return mountOnce(c, abs, o, false)
	}
	why := passthroughPossible()
	if why == nil {
		var s *Server
		if s, err = mountOnce(c, abs, o, true); err != nil {
			return nil, err
		}
		if why = probePassthrough(s.fuse, s.fuse.KernelSettings().Flags64(), o.CacheDir); why == nil {
			return s, nil
		}
		if err := s.Unmount(); err != nil {
			return nil, fmt.Errorf("passthrough: %w; and the mount made to try it stays: %w", why, err)
		}
	}
	if o.Passthrough == PassthroughOn {
		return nil, fmt.Errorf("passthrough is on, but: %w", why)
	}
	o.Log.Info("no passthrough, using the kernel's write-back cache", "reason", why)
	return mountOnce(c, abs, o, false)
}

// mountOnce mounts and negotiates; the first request waits for Serve.
func mountOnce(c core, dir string, o Options, passthrough bool) (*Server, error) {
	f := newFileSystem(c, o, passthrough)
	s := &Server{
		fs:      f,
		dir:     dir,
		serving: make(chan struct{}),
		done:    make(chan struct{}),
	}
	f.onUnmount = func() { close(s.done) }
	options := mountOptions(o, passthrough)
	fd, err := mountDirect(dir, o, options.MaxWrite)
	point := dir
	switch {
	case err == nil:
		s.own = true
		point = "/dev/fd/" + strconv.Itoa(fd) // go-fuse's name for "mounted already"
	case !errors.Is(err, unix.EPERM):
		return nil, err
	}
	server, fuseErr := fuse.NewServer(f, point, options)
	if fuseErr != nil {
		if s.own {
			return nil, errors.Join(fmt.Errorf("negotiate with the kernel: %w", fuseErr), unix.Unmount(dir, unix.MNT_DETACH))
		}
		return nil, fmt.Errorf("mount %s: %w; fusermount3: %w", dir, err, fuseErr)
	}
	s.fuse, f.kernel = server, server
	s.cache = &kernelCache{kernel: server, log: o.Log, writeback: f.writeback, inodes: &f.inodes}
	if err := tuneCache(dir); err != nil && !errors.Is(err, os.ErrPermission) {
		o.Log.Warn("read-ahead and write-back limits stay at the kernel's defaults", "err", err)
	}
	return s, nil
}

// Serve answers requests until the file system is unmounted, by Unmount, umount(8) or an abort. Only the first call serves;
// any further one waits for the same end.
func (s *Server) Serve() {
	s.start.Do(func() {
		close(s.serving)
		s.fuse.Serve()
	})
	<-s.done
}

// WaitReady returns when Serve answers requests, or with the error of ctx. It does not touch the mount.
func (s *Server) WaitReady(ctx context.Context) error {
	select {
	case <-s.serving:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the mount on %s: %w", s.dir, ctx.Err())
	}
}

// Dir is the mount point, absolute.
func (s *Server) Dir() string { return s.dir }

// Unmount unmounts and waits until the last file is closed. While a program has a file open or its working directory
// below, it fails with EBUSY and nothing has changed.
func (s *Server) Unmount() error {
	select {
	case <-s.done:
		return nil
	default:
	}
	var err error
	for delay := 5 * time.Millisecond; delay < 500*time.Millisecond; delay *= 2 {
		if err = s.unmountOnce(); !errors.Is(err, unix.EBUSY) {
			break
		}
		time.Sleep(delay) // the kernel closes files of programs that have just ended a moment later
	}
	if err != nil {
		return fmt.Errorf("unmount %s: %w", s.dir, err)
	}
	go s.Serve() // if nobody served: it reads the end of the connection and cleans up
	<-s.done
	return nil
}

func (s *Server) unmountOnce() error {
	if !s.own {
		return s.fuse.Unmount()
	}
	err := unix.Unmount(s.dir, unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		// Not mounted here any more: somebody was faster, or detached it. The end of Serve tells.
		return nil
	}
	return err
}

// Stats returns counts since the mount was made.
func (s *Server) Stats() Stats {
	st := Stats{
		Requests:          make(map[string]uint64),
		Passthrough:       s.fs.passthrough,
		PassthroughOpens:  s.fs.passthroughOpens.Load(),
		CachedOpens:       s.fs.cachedOpens.Load(),
		OpenFiles:         s.fs.files.count(),
		SlowNotifications: s.cache.slow.Load(),
	}
	for op := range s.fs.requests {
		if n := s.fs.requests[op].Load(); n > 0 {
			st.Requests[opName(uint32(op))] = n
		}
	}
	return st
}
