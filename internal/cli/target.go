package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"wsfs/blobs"
	"wsfs/syncer"
)

// Target is a workspace of a store.
type Target struct {
	Store   string // canonical URL
	Name    string
	Default bool // the store was not named: the embedded one in the user's data directory
}

// String is STORE#NAME.
func (t Target) String() string { return t.Store + "#" + t.Name }

// ParseTarget parses [STORE#]WORKSPACE. Without a store it is the default one. The error says what is wrong and what
// would be right.
func ParseTarget(arg string) (Target, error) {
	store, name, explicit := CutTarget(arg)
	t := Target{Name: name, Default: !explicit}
	if err := syncer.ValidName(name); err != nil {
		return t, Usagef("workspace %q: %v", arg, err)
	}
	var err error
	if explicit {
		t.Store, err = CanonicalStore(store)
	} else {
		t.Store, err = DefaultStore()
	}
	return t, err
}

// CutTarget splits STORE#NAME at the last '#'. explicit is false where there is none.
func CutTarget(arg string) (store, name string, explicit bool) {
	i := strings.LastIndexByte(arg, '#')
	if i < 0 {
		return "", arg, false
	}
	return arg[:i], arg[i+1:], true
}

// CanonicalStore gives a store URL its one spelling.
func CanonicalStore(raw string) (string, error) {
	loc, err := blobs.ParseURL(raw)
	if err != nil {
		return "", Usagef("%v", err)
	}
	return loc.String(), nil
}

// DefaultStore is the URL of the embedded store: wsfs/store in the user's data directory.
func DefaultStore() (string, error) {
	dir, err := xdg("XDG_DATA_HOME", ".local/share")
	if err != nil {
		return "", err
	}
	return CanonicalStore("dir://" + filepath.Join(dir, "wsfs", "store"))
}

// xdg is a directory of the XDG base directory specification; a relative value is ignored, as it demands.
func xdg(env, fallback string) (string, error) {
	if dir := os.Getenv(env); filepath.IsAbs(dir) {
		return dir, nil
	}
	home, err := os.UserHomeDir()
	if err != nil || !filepath.IsAbs(home) {
		return "", Usagef("neither %s nor HOME is set; set one, or name the store and --cache-dir", env)
	}
	return filepath.Join(home, fallback), nil
}

// CacheDir is where the live state of a workspace is unless --cache-dir says otherwise: below the user's cache
// directory, by a hash of the store's URL (so it is known while the store cannot be reached) and the name.
func (t Target) CacheDir() (string, error) {
	dir, err := xdg("XDG_CACHE_HOME", ".cache")
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(t.Store))
	return filepath.Join(dir, "wsfs", hex.EncodeToString(sum[:8]), t.Name), nil
}

// RuntimeDir is where live mounts register themselves: $WSFS_RUNTIME_DIR, or /run/wsfs for root, or wsfs in
// $XDG_RUNTIME_DIR, or run in wsfs of the user's cache directory.
func RuntimeDir() (string, error) {
	if dir := os.Getenv("WSFS_RUNTIME_DIR"); dir != "" {
		if !filepath.IsAbs(dir) {
			return "", Usagef("WSFS_RUNTIME_DIR=%q: want an absolute path", dir)
		}
		return dir, nil
	}
	if os.Geteuid() == 0 {
		return "/run/wsfs", nil
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "wsfs"), nil
	}
	dir, err := xdg("XDG_CACHE_HOME", ".cache")
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "wsfs", "run"), nil
}

// InitHint is the advice where a store or workspace is missing.
func InitHint(t Target) string { return fmt.Sprintf("create it with: wsctl init '%s'", t) }
