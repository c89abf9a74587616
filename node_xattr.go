package wsfs

import (
	"context"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"wsfs/metadata"
)

// Limits of extended attributes, as the kernel's VFS has them.
const (
	MaxXattrName  = 255
	MaxXattrValue = 64 << 10
	maxXattrList  = 64 << 10
)

func checkXattr(name string) error {
	switch {
	case name == "" || strings.Contains(name, "\x00"):
		return syscall.EINVAL
	case len(name) > MaxXattrName:
		return syscall.ERANGE
	case !strings.Contains(name, "."):
		return syscall.EOPNOTSUPP
	}
	return nil
}

// GetXattr returns the value of an extended attribute; ENODATA if the inode has none of this name.
func (w *Workspace) GetXattr(ctx context.Context, ino Ino, name string) ([]byte, error) {
	if err := checkXattr(name); err != nil {
		return nil, err
	}
	var value []byte
	err := w.locked(ctx, func() error {
		n, err := w.inode(ino)
		if err != nil {
			return err
		}
		if n.rec.Xattrs == 0 {
			return syscall.ENODATA
		}
		if value, err = w.get(metadata.XattrKey(ino, name)); err == nil && value == nil {
			err = syscall.ENODATA
		}
		return err
	})
	return value, err
}

// SetXattr sets an extended attribute. flags are those of setxattr(2): XATTR_CREATE, XATTR_REPLACE.
func (w *Workspace) SetXattr(ctx context.Context, ino Ino, name string, value []byte, flags uint32) error {
	if err := w.writable(); err != nil {
		return err
	}
	if err := checkXattr(name); err != nil {
		return err
	}
	if len(value) > MaxXattrValue {
		return syscall.E2BIG
	}
	key := metadata.XattrKey(ino, name)
	value = append(make([]byte, 0, len(value)), value...)
	return w.locked(ctx, func() error {
		n, err := w.inode(ino)
		if err != nil {
			return err
		}
		old, err := w.get(key)
		switch {
		case err != nil:
			return err
		case flags&unix.XATTR_CREATE != 0 && old != nil:
			return syscall.EEXIST
		case flags&unix.XATTR_REPLACE != 0 && old == nil:
			return syscall.ENODATA
		}
		if old == nil {
			names, err := w.xattrNames(n)
			if err != nil {
				return err
			}
			if listSize(names)+len(name)+1 > maxXattrList {
				return syscall.ENOSPC
			}
			n.rec.Xattrs++
		}
		return w.xattrChanged(n, metadata.Mutation{Key: key, Value: value})
	})
}

// RemoveXattr removes an extended attribute; ENODATA if there is none.
func (w *Workspace) RemoveXattr(ctx context.Context, ino Ino, name string) error {
	if err := w.writable(); err != nil {
		return err
	}
	if err := checkXattr(name); err != nil {
		return err
	}
	key := metadata.XattrKey(ino, name)
	return w.locked(ctx, func() error {
		n, err := w.inode(ino)
		if err != nil {
			return err
		}
		old, err := w.get(key)
		if err != nil {
			return err
		}
		if old == nil {
			return syscall.ENODATA
		}
		n.rec.Xattrs--
		return w.xattrChanged(n, metadata.Mutation{Key: key})
	})
}

func (w *Workspace) xattrChanged(n *inode, m metadata.Mutation) error {
	w.refresh(n)
	n.changed(w.now())
	o := w.begin()
	o.muts = append(o.muts, m)
	o.save(n)
	w.notify(Event{Kind: EventAttr, Ino: n.rec.Ino})
	return o.commit()
}

// ListXattr returns the names of an inode's extended attributes in byte order.
func (w *Workspace) ListXattr(ctx context.Context, ino Ino) ([]string, error) {
	var names []string
	err := w.locked(ctx, func() error {
		n, err := w.inode(ino)
		if err != nil {
			return err
		}
		names, err = w.xattrNames(n)
		return err
	})
	return names, err
}

func listSize(names []string) int {
	size := 0
	for _, s := range names {
		size += len(s) + 1
	}
	return size
}

// xattrNames lists the attributes of an inode, a *fault if they must come from the store. w.mu is held.
func (w *Workspace) xattrNames(n *inode) ([]string, error) {
	if n.rec.Xattrs == 0 {
		return nil, nil
	}
	prefix := metadata.XattrKey(n.rec.Ino, "")
	end := metadata.PrefixEnd(prefix)
	if t := w.live.Base(); t != nil && !(t.Cached(prefix) && t.Cached(end)) {
		return nil, &fault{from: prefix, to: end}
	}
	var names []string
	err := w.live.Scan(context.Background(), prefix, end, func(key, _ []byte) error {
		names = append(names, string(key[len(prefix):]))
		return nil
	})
	if err != nil {
		return nil, w.storeFault("list attributes", err)
	}
	return names, nil
}
