package fusefs

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// requestContext is a context.Context made of a request's cancel channel. It is a channel and no struct so that putting it
// into an interface allocates nothing.
type requestContext <-chan struct{}

func (c requestContext) Deadline() (time.Time, bool) { return time.Time{}, false }
func (c requestContext) Done() <-chan struct{}       { return c }
func (c requestContext) Value(any) any               { return nil }
func (c requestContext) Err() error {
	if c.interrupted() {
		return context.Canceled
	}
	return nil
}

func (c requestContext) interrupted() bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// do counts the request, runs op and maps its error. op must not be kept by anybody: closures given to do then live on the
// stack. op is run a second time where a signal cut it short that does not end the caller.
func (f *fileSystem) do(cancel <-chan struct{}, h *fuse.InHeader, op func(context.Context) error) fuse.Status {
	f.requests.count(h.Opcode)
	ctx := requestContext(cancel)
	err := op(ctx)
	if err != nil && ctx.interrupted() && cutShort(err) && h.Pid != 0 {
		err = f.again(h, op)
	}
	return f.status(h, err)
}

func cutShort(err error) bool {
	return err == syscall.EINTR || errors.Is(err, context.Canceled)
}

// again runs op for a caller that got a signal. The kernel reports any signal, once, and a program does not expect EINTR
// from a file: only a caller that is dying (or no longer waits) makes us give up. Without giving up, kill -9 could not end
// a process that waits for a store that is away.
func (f *fileSystem) again(h *fuse.InHeader, op func(context.Context) error) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go watchCaller(ctx, stop, h.Pid)
	return op(ctx)
}

// watchCaller calls stop when the thread pid has SIGKILL pending or is not asleep in the kernel any more, seen twice.
// It looks 20 times a second and ends with ctx.
func watchCaller(ctx context.Context, stop context.CancelFunc, pid uint32) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	path := "/proc/" + strconv.FormatUint(uint64(pid), 10) + "/status"
	awake := 0
	for {
		status, err := os.ReadFile(path)
		dying, asleep := callerState(status)
		if asleep {
			awake = 0
		} else {
			awake++
		}
		if err != nil || dying || awake >= 2 {
			stop()
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// callerState reads /proc/PID/status: whether SIGKILL is pending, and whether the thread is in uninterruptible sleep.
func callerState(status []byte) (dying, asleep bool) {
	for line := range bytes.Lines(status) {
		key, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch string(key) {
		case "State":
			asleep = bytes.HasPrefix(value, []byte("D"))
		case "SigPnd", "ShdPnd":
			mask, err := strconv.ParseUint(string(value), 16, 64)
			dying = dying || err == nil && mask&(1<<(syscall.SIGKILL-1)) != 0
		}
	}
	return dying, asleep
}
