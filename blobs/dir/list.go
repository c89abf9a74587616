package dir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"wsfs/blobs"
)

// List implements blobs.Store.
//
// The order of a directory walk is the byte order of keys if a directory sorts by its name with a slash behind it:
// every key below it starts with exactly that, no file name contains a slash, and so no two sort keys of one
// directory are prefixes of each other in a way that could interleave. ("a-b" < "a/b" < "a0": '-' sorts before the
// slash and '0' behind it.)
//
// Only directories that can hold a key below prefix and after after are read; the walk ends with the page.
func (s *Store) List(ctx context.Context, prefix, after string, limit int) ([]blobs.Object, error) {
	w := &walk{store: s, readDir: os.ReadDir, ctx: ctx, prefix: prefix, after: after, limit: blobs.ListLimit(limit)}
	return w.run()
}

// run returns the page.
func (w *walk) run() ([]blobs.Object, error) {
	start := w.prefix[:strings.LastIndexByte(w.prefix, '/')+1] // the deepest directory that holds all of prefix
	if start != "" && blobs.CheckKey(strings.TrimSuffix(start, "/")) != nil {
		start = "" // no key can have this prefix; the walk below finds none, and ".." leads nowhere
	}
	if err := w.dir(start); err != nil {
		return nil, err
	}
	return w.page, nil
}

type walk struct {
	store   *Store
	readDir func(path string) ([]fs.DirEntry, error) // os.ReadDir; the seam that shows a test what is read

	ctx           context.Context
	prefix, after string
	limit         int

	page []blobs.Object
}

// name is a directory entry with the string it sorts by.
type name struct {
	key   string // full; a directory's ends with a slash
	entry fs.DirEntry
}

// dir adds the keys below base, which is empty or ends with a slash.
func (w *walk) dir(base string) error {
	if err := w.ctx.Err(); err != nil {
		return fmt.Errorf("list %s: %w", w.prefix, err)
	}
	entries, err := w.readDir(filepath.Join(w.store.root, base))
	if err != nil {
		err = w.store.fail("list", w.prefix, err)
		if errors.Is(err, blobs.ErrNotExist) {
			return nil // no key below it
		}
		return err
	}
	for _, n := range w.wanted(base, entries) {
		if n.entry.IsDir() {
			err = w.dir(n.key)
		} else {
			err = w.add(n)
		}
		if err != nil || len(w.page) == w.limit {
			return err
		}
	}
	return nil
}

// wanted selects and sorts the entries that are or can hold keys of this page.
func (w *walk) wanted(base string, entries []fs.DirEntry) []name {
	names := make([]name, 0, len(entries))
	for _, e := range entries {
		n := name{base + e.Name(), e}
		if blobs.CheckKey(n.key) != nil {
			continue // nothing of ours, such as the temporary directory
		}
		if !e.IsDir() {
			if e.Type().IsRegular() && n.key > w.after && strings.HasPrefix(n.key, w.prefix) {
				names = append(names, n)
			}
			continue
		}
		n.key += "/"
		inPrefix := strings.HasPrefix(n.key, w.prefix) || strings.HasPrefix(w.prefix, n.key)
		behind := n.key > w.after || strings.HasPrefix(w.after, n.key)
		if inPrefix && behind {
			names = append(names, n)
		}
	}
	slices.SortFunc(names, func(a, b name) int { return cmp.Compare(a.key, b.key) })
	return names
}

func (w *walk) add(n name) error {
	info, err := n.entry.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // deleted since the directory was read
	}
	if err != nil {
		return w.store.fail("list", n.key, err)
	}
	w.page = append(w.page, blobs.Object{Key: n.key, Size: info.Size(), Modified: info.ModTime()})
	return nil
}
