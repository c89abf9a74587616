package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Live is a daemon of this host and user, as it registered itself: one JSON file per daemon in RuntimeDir, named by
// its pid. A file whose process is gone (or whose pid now belongs to a process started at another time) is stale and
// removed by whoever sees it.
type Live struct {
	PID       int       `json:"pid"`
	Start     uint64    `json:"start"` // of the process, clock ticks since boot: field 22 of /proc/PID/stat
	Mount     string    `json:"mount"` // absolute; "" without a mount
	Store     string    `json:"store"`
	Workspace string    `json:"workspace"`
	CacheDir  string    `json:"cache_dir"`
	Socket    string    `json:"socket"`
	ReadOnly  bool      `json:"read_only"`
	Since     time.Time `json:"since"`

	file string
}

// Register writes this process's entry. Unregister removes it.
func (l *Live) Register() error {
	dir, err := RuntimeDir()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("registering the daemon: %w", err)
	}
	l.PID, l.Since = os.Getpid(), time.Now().UTC()
	if l.Start, err = processStart(l.PID); err != nil {
		return fmt.Errorf("registering the daemon: %w", err)
	}
	b, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("registering the daemon: %w", err)
	}
	l.file = filepath.Join(dir, strconv.Itoa(l.PID)+".json")
	tmp := l.file + ".new"
	if err := os.WriteFile(tmp, append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("registering the daemon: %w", err)
	}
	return os.Rename(tmp, l.file)
}

// Unregister removes what Register wrote.
func (l *Live) Unregister() error {
	if l.file == "" {
		return nil
	}
	err := os.Remove(l.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// processStart reads when a process started.
func processStart(pid int) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The command name, in parentheses, may hold anything; fields are counted after its end.
	rest := string(b[strings.LastIndexByte(string(b), ')')+1:])
	fields := strings.Fields(rest)
	if len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat: %d fields", pid, len(fields))
	}
	if fields[0] == "Z" {
		return 0, fs.ErrNotExist // dead, not yet reaped
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// ListLive returns the live daemons and removes stale entries.
func ListLive() ([]Live, error) {
	dir, err := RuntimeDir()
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var all []Live
	for _, file := range files {
		b, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // unregistered meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("reading the list of live mounts: %w", err)
		}
		l := Live{file: file}
		start := uint64(0)
		if err = json.Unmarshal(b, &l); err == nil {
			start, err = processStart(l.PID)
		}
		if err != nil || start != l.Start {
			if err := l.Unregister(); err != nil {
				return nil, fmt.Errorf("removing a stale entry of the list of live mounts: %w", err)
			}
			continue
		}
		all = append(all, l)
	}
	return all, nil
}

// FindMount returns the daemon whose mount holds path; nil if there is none. The innermost mount wins.
func FindMount(path string) (*Live, error) {
	all, err := ListLive()
	if err != nil {
		return nil, err
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	best := within(all, abs)
	if best == nil {
		if real, err := filepath.EvalSymlinks(abs); err == nil {
			best = within(all, real)
		}
	}
	return best, nil
}

func within(all []Live, path string) *Live {
	var best *Live
	for i, l := range all {
		if l.Mount == "" || path != l.Mount && !strings.HasPrefix(path, strings.TrimSuffix(l.Mount, "/")+"/") {
			continue
		}
		if best == nil || len(l.Mount) > len(best.Mount) {
			best = &all[i]
		}
	}
	return best
}

// FindTarget returns the daemon that has a workspace open for writing, else any that has it open; nil if there is
// none.
func FindTarget(t Target) (*Live, error) {
	all, err := ListLive()
	if err != nil {
		return nil, err
	}
	var found *Live
	for i, l := range all {
		if l.Store == t.Store && l.Workspace == t.Name && (found == nil || found.ReadOnly) {
			found = &all[i]
		}
	}
	return found, nil
}

// FindName returns the daemons that have a workspace of this name open, whatever its store.
func FindName(name string) ([]Live, error) {
	all, err := ListLive()
	if err != nil {
		return nil, err
	}
	var found []Live
	for _, l := range all {
		if l.Workspace == name {
			found = append(found, l)
		}
	}
	return found, nil
}

// Running tells whether the daemon's process still exists.
func (l *Live) Running() bool {
	start, err := processStart(l.PID)
	return err == nil && start == l.Start
}
