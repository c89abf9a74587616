package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"wsfs/blobs"
	"wsfs/syncer"
)

// Finding is one line of doctor.
type Finding struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy,omitempty"`
}

// DoctorStore is how long doctor waits for a store altogether.
const DoctorStore = 60 * time.Second

// Doctor looks at this host and, where storeURL is not empty, at a store. It changes nothing but probe objects it
// removes again.
func Doctor(ctx context.Context, storeURL string, report func(Finding)) {
	for _, look := range []func() Finding{kernel, device, passthrough, fusermount, cacheSpace} {
		report(look())
	}
	if storeURL == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, DoctorStore)
	defer cancel()
	doctorStore(ctx, storeURL, report)
}

func kernel() Finding {
	f := Finding{Name: "kernel"}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		f.Detail = err.Error()
		return f
	}
	release := unix.ByteSliceToString(u.Release[:])
	f.Detail, f.OK = "Linux "+release, atLeast(release, 5, 4)
	if !f.OK {
		f.Remedy = "wsfs wants Linux 5.4 or newer"
	}
	return f
}

// atLeast compares the start of a kernel release with major.minor.
func atLeast(release string, major, minor int) bool {
	parts := strings.SplitN(release, ".", 3)
	if len(parts) < 2 {
		return false
	}
	a, err := strconv.Atoi(parts[0])
	b, err2 := strconv.Atoi(strings.TrimRight(parts[1], "-+abcdefghijklmnopqrstuvwxyz"))
	return err == nil && err2 == nil && (a > major || a == major && b >= minor)
}

func device() Finding {
	f := Finding{Name: "/dev/fuse"}
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		f.Detail = err.Error()
		f.Remedy = "load the module (modprobe fuse); in a container add --device /dev/fuse. wsctl works without it"
		return f
	}
	f.OK, f.Detail = true, "can be opened"
	if err := unix.Close(fd); err != nil {
		f.OK, f.Detail = false, err.Error()
	}
	return f
}

// passthrough is never a failure: mounts work without it, slower.
func passthrough() Finding {
	f := Finding{Name: "passthrough", OK: true}
	var u unix.Utsname
	switch err := unix.Uname(&u); {
	case err != nil:
		f.Detail = err.Error()
	case !atLeast(unix.ByteSliceToString(u.Release[:]), 6, 9):
		f.Detail = "not available: wants Linux 6.9 or newer; mounts use write-back caching instead"
	case os.Geteuid() != 0:
		f.Detail = "not available: wants root (CAP_SYS_ADMIN); mounts use write-back caching instead"
	default:
		f.Detail = "possible; a mount tries it and wsctl status tells"
	}
	return f
}

func fusermount() Finding {
	f := Finding{Name: "fusermount3"}
	path, err := exec.LookPath("fusermount3")
	switch {
	case err == nil:
		f.OK, f.Detail = true, path
	case os.Geteuid() == 0:
		f.OK, f.Detail = true, "not installed; root does not need it"
	default:
		f.Detail, f.Remedy = "not installed", "install the package fuse3: users other than root mount through it"
	}
	return f
}

// cacheMin is the free space below which doctor complains, in bytes.
const cacheMin = 1 << 30

func cacheSpace() Finding {
	f := Finding{Name: "cache directory"}
	dir, err := xdg("XDG_CACHE_HOME", ".cache")
	if err == nil {
		dir = filepath.Join(dir, "wsfs")
		err = tryWrite(dir)
	}
	var st unix.Statfs_t
	if err == nil {
		err = unix.Statfs(dir, &st)
	}
	if err != nil {
		f.Detail, f.Remedy = err.Error(), "make it writable, or choose another place with --cache-dir"
		return f
	}
	free := int64(st.Bavail) * st.Bsize
	f.OK, f.Detail = free >= cacheMin, fmt.Sprintf("%s: writable, %sB free", dir, Size(free))
	if !f.OK {
		f.Remedy = "free some space: work not yet in the store lives there"
	}
	return f
}

func tryWrite(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	file, err := os.CreateTemp(dir, ".doctor-")
	if err != nil {
		return err
	}
	_, err = file.WriteString("x")
	return errors.Join(err, file.Sync(), file.Close(), os.Remove(file.Name()))
}

// doctorStore asks a store for one thing after another, with the reason and the remedy of what fails.
func doctorStore(ctx context.Context, raw string, report func(Finding)) {
	store, err := Reach(ctx, raw, false)
	if err != nil {
		report(Finding{Name: "store", Detail: err.Error(), Remedy: "correct the URL, or create the store with wsctl init"})
		return
	}
	failed := false
	for _, c := range blobs.Permissions(ctx, store) {
		report(Finding{Name: "store " + c.Name, OK: c.OK, Detail: c.Detail, Remedy: c.Remedy})
		failed = failed || !c.OK
	}
	if failed {
		return // a probe would only repeat it
	}
	report(conditionalPuts(ctx, store))
	report(pool(ctx, store))
}

func conditionalPuts(ctx context.Context, store blobs.Store) Finding {
	f := Finding{Name: "store conditional puts, 16 at once"}
	r, err := blobs.Probe(ctx, store, 0)
	switch {
	case err != nil:
		f.Detail, f.Remedy = err.Error(), "try again; if it stays, the store cannot be trusted with two writers"
	case !r.OK():
		f.Detail, f.Remedy = r.String(), "use another store, or wsctl init --single-writer and never mount twice"
	default:
		f.OK, f.Detail = true, r.String()
	}
	return f
}

func pool(ctx context.Context, store blobs.Store) Finding {
	f := Finding{Name: "pool"}
	repo, err := syncer.OpenRepo(ctx, store, syncer.RepoOptions{})
	switch {
	case errors.Is(err, syncer.ErrNotInitialised):
		f.OK, f.Detail = true, fmt.Sprintf("none yet; wsctl init '%s' makes one", store.URL())
	case errors.Is(err, syncer.ErrNewerFormat):
		f.Detail, f.Remedy = err.Error(), "use a newer wsfs"
	case err != nil:
		f.Detail, f.Remedy = err.Error(), "see the detail"
	default:
		f.OK, f.Detail = true, fmt.Sprintf("format %d, id %s", repo.Format().Version, repo.Format().Pool)
	}
	return f
}

// PrintFinding writes a line, and the remedy below it.
func PrintFinding(f Finding) string {
	word := "OK  "
	if !f.OK {
		word = "FAIL"
	}
	s := fmt.Sprintf("%s  %s: %s\n", word, f.Name, Printable(f.Detail))
	if !f.OK && f.Remedy != "" {
		s += "      " + f.Remedy + "\n"
	}
	return s
}

// RunDoctor is the doctor command of both programs: args is empty or one store URL.
func RunDoctor(ctx context.Context, args []string, asJSON bool, w io.Writer) error {
	if ctx == nil {
		ctx = context.Background()
	}
	store := ""
	if len(args) > 0 {
		var err error
		if store, err = CanonicalStore(args[0]); err != nil {
			return err
		}
	}
	failed := false
	var werr error
	Doctor(ctx, store, func(f Finding) {
		failed = failed || !f.OK
		text := []byte(PrintFinding(f))
		if asJSON {
			text, werr = json.Marshal(f)
			text = append(text, '\n')
		}
		if werr == nil {
			_, werr = w.Write(text)
		}
	})
	if werr == nil && failed {
		return Reported(ExitFailure)
	}
	return werr
}
