package fusefs

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Passthrough says whether the kernel may read and write staging files itself. It is a flag.Value.
type Passthrough int

const (
	// PassthroughAuto uses it where kernel, privilege and cache directory allow it, and write-back caching elsewhere.
	PassthroughAuto Passthrough = iota
	// PassthroughOn makes Mount fail, with the reason, where it cannot be had.
	PassthroughOn
	// PassthroughOff uses write-back caching.
	PassthroughOff
)

var passthroughNames = [...]string{"auto", "on", "off"}

// String returns auto, on or off.
func (p Passthrough) String() string {
	if p < 0 || int(p) >= len(passthroughNames) {
		return fmt.Sprintf("Passthrough(%d)", int(p))
	}
	return passthroughNames[p]
}

// Set takes auto, on or off.
func (p *Passthrough) Set(s string) error {
	for i, name := range passthroughNames {
		if s == name {
			*p = Passthrough(i)
			return nil
		}
	}
	return fmt.Errorf("passthrough %q: want %s", s, strings.Join(passthroughNames[:], ", "))
}

// Type names the type in usage texts.
func (p Passthrough) Type() string { return "auto|on|off" }

// Options say how to mount. The zero value is a good choice.
type Options struct {
	ReadOnly   bool // mount ro
	AllowOther bool // let users other than the mounting one in; the kernel checks permissions either way
	// NoPermissions has the kernel check no permissions, which saves a GETATTR of the directory after every change in it.
	// Only for a mount by root without AllowOther: who gets in may do everything anyway.
	NoPermissions bool
	NoXattrs      bool // answer every request for extended attributes with ENOSYS, so the kernel stops asking
	Passthrough   Passthrough
	// CacheDir is where staging files live; it is probed for passthrough. Empty: the directory for temporary files.
	CacheDir string
	// EntryTimeout and AttrTimeout are how long the kernel believes names and attributes, 0: a day. They may be long,
	// because all changes go through the workspace, which invalidates.
	EntryTimeout, AttrTimeout time.Duration
	FSName                    string       // source shown in /proc/mounts, "" means wsfs
	Debug                     bool         // log every request and answer
	Log                       *slog.Logger // nil: slog.Default()
}

// check fills in defaults and returns dir, the mount point, made absolute.
func (o *Options) check(dir string) (string, error) {
	if o.EntryTimeout < 0 || o.AttrTimeout < 0 {
		return "", fmt.Errorf("mount options: negative timeout (entry %v, attr %v)", o.EntryTimeout, o.AttrTimeout)
	}
	if o.Passthrough < PassthroughAuto || o.Passthrough > PassthroughOff {
		return "", fmt.Errorf("mount options: %v", o.Passthrough)
	}
	if o.NoPermissions && (o.AllowOther || os.Geteuid() != 0) {
		return "", errors.New("mount options: NoPermissions is for mounts of root without AllowOther")
	}
	if o.EntryTimeout == 0 {
		o.EntryTimeout = 24 * time.Hour
	}
	if o.AttrTimeout == 0 {
		o.AttrTimeout = 24 * time.Hour
	}
	if o.FSName == "" {
		o.FSName = "wsfs"
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.CacheDir == "" {
		o.CacheDir = os.TempDir()
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("mount point %q: %w", dir, err)
	}
	// Resolved, so that it is the name under which /proc/self/mountinfo lists it.
	abs, err = filepath.EvalSymlinks(abs)
	if err != nil {
		return "", fmt.Errorf("mount point %q: %w", dir, err)
	}
	st, err := os.Stat(abs)
	if err != nil {
		return "", fmt.Errorf("mount point %q: %w", dir, err)
	}
	if !st.IsDir() {
		return "", fmt.Errorf("mount point %q: not a directory", dir)
	}
	return abs, nil
}
