package metadata

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// Content logs.
//
// The content of small files that is not chunked yet lies in append-only files beside the database, and the database
// holds a pointer to it under ContentKey. Such content lives for seconds: written once, read by the next commit, dropped.
// A log whose pointers are all gone is removed whole. Rejected: the content as a value in Badger, whose value log gives
// space back only after its tables have been compacted; it grew by every byte ever written, on disk and mapped.
//
// A pointer carries a checksum. A process that is killed loses nothing it appended; after a power loss a pointer that was
// not synced may be ahead of its bytes, and the checksum finds that out.

// contentLogSize is the size at which a new log is begun, bytes.
const contentLogSize = 32 << 20

const contentSuffix = ".content"

var crcTable = crc32.MakeTable(crc32.Castagnoli)

// contentPointer says where content is. Encoding: uvarint log number, offset, length, then crc32c(4, big-endian).
type contentPointer struct {
	log    uint64
	off    int64
	length int64
	sum    uint32
}

func (p contentPointer) append(b []byte) []byte {
	b = binary.AppendUvarint(b, p.log)
	b = binary.AppendUvarint(b, uint64(p.off))
	b = binary.AppendUvarint(b, uint64(p.length))
	return binary.BigEndian.AppendUint32(b, p.sum)
}

func decodePointer(b []byte) (contentPointer, error) {
	d := decoder{b: b}
	p := contentPointer{log: d.uvarint(), off: int64(d.size()), length: int64(d.size())}
	sum := d.bytes(4)
	if err := d.finish(); err != nil {
		return p, fmt.Errorf("content pointer: %w", err)
	}
	p.sum = binary.BigEndian.Uint32(sum)
	return p, nil
}

// contentLogs are the logs of one Live.
type contentLogs struct {
	dir string

	mu       sync.Mutex
	open     map[uint64]*contentLog
	cur      uint64                 // the log appended to, 0: none yet
	next     uint64                 // number of the next log
	owners   map[Ino]contentPointer // what ContentKey says, newest op included
	newNames bool                   // a log was made since the directory was last synced
}

type contentLog struct {
	f     *os.File
	size  int64
	refs  int
	dirty bool // appended to since it was last synced
}

func openContentLogs(dir string) (*contentLogs, error) {
	c := &contentLogs{dir: dir, open: map[uint64]*contentLog{}, next: 1, owners: map[Ino]contentPointer{}}
	names, err := filepath.Glob(filepath.Join(dir, "*"+contentSuffix))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		n, err := strconv.ParseUint(strings.TrimSuffix(filepath.Base(name), contentSuffix), 10, 64)
		if err != nil {
			continue // not ours
		}
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		c.open[n] = &contentLog{f: f, dirty: true}
		c.next = max(c.next, n+1)
	}
	return c, nil
}

func (c *contentLogs) path(n uint64) string {
	return filepath.Join(c.dir, fmt.Sprintf("%08d%s", n, contentSuffix))
}

// own notes what an inode's ContentKey says from now on; nil: nothing.
func (c *contentLogs) own(ino Ino, value []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok := c.owners[ino]; ok {
		delete(c.owners, ino)
		if l := c.open[old.log]; l != nil {
			l.refs--
		}
	}
	if value == nil {
		return nil
	}
	p, err := decodePointer(value)
	if err != nil {
		return err
	}
	c.owners[ino] = p
	if l := c.open[p.log]; l != nil {
		l.refs++
	}
	return nil
}

// add appends content to the current log.
func (c *contentLogs) add(content []byte) (contentPointer, error) {
	p := contentPointer{length: int64(len(content)), sum: crc32.Checksum(content, crcTable)}
	c.mu.Lock()
	l, err := c.current()
	if err != nil {
		c.mu.Unlock()
		return p, err
	}
	p.log, p.off = c.cur, l.size
	l.size += p.length
	l.dirty = true
	l.refs++ // until own takes it over, so that the log is not removed meanwhile
	c.mu.Unlock()
	_, err = l.f.WriteAt(content, p.off)
	if err != nil {
		c.unref(p.log)
	}
	return p, err
}

// unref gives back the reference that add took.
func (c *contentLogs) unref(log uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.open[log]; l != nil {
		l.refs--
	}
}

// current returns the log to append to. c.mu is held.
func (c *contentLogs) current() (*contentLog, error) {
	if l := c.open[c.cur]; l != nil && l.size < contentLogSize {
		return l, nil
	}
	n := c.next
	f, err := os.OpenFile(c.path(n), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	c.next, c.cur, c.newNames = n+1, n, true
	l := &contentLog{f: f}
	c.open[n] = l
	return l, nil
}

// read returns the content a pointer leads to; ErrDamaged if it is not what was written.
func (c *contentLogs) read(value []byte) ([]byte, error) {
	p, err := decodePointer(value)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	l := c.open[p.log]
	c.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("content log %d: %w: it is gone", p.log, ErrDamaged)
	}
	b := make([]byte, p.length)
	if _, err := l.f.ReadAt(b, p.off); err != nil {
		return b, fmt.Errorf("content log %d at %d: %w: %w", p.log, p.off, ErrDamaged, err)
	}
	if crc32.Checksum(b, crcTable) != p.sum {
		return b, fmt.Errorf("content log %d at %d: %w: wrong checksum", p.log, p.off, ErrDamaged)
	}
	return b, nil
}

// sync makes everything added so far durable.
func (c *contentLogs) sync() error {
	c.mu.Lock()
	var dirty []*contentLog
	for _, l := range c.open {
		if l.dirty {
			l.dirty = false
			dirty = append(dirty, l)
		}
	}
	names := c.newNames
	c.newNames = false
	c.mu.Unlock()
	var err error
	for _, l := range dirty {
		if e := l.f.Sync(); e != nil && !errors.Is(e, fs.ErrClosed) {
			err = errors.Join(err, e)
		}
	}
	if err == nil && names {
		err = syncPath(c.dir)
	}
	if err != nil {
		c.mu.Lock()
		c.newNames = true
		for _, l := range dirty {
			l.dirty = true
		}
		c.mu.Unlock()
	}
	return err
}

// removable takes the logs without references, but for the one appended to, out of use and returns their numbers.
func (c *contentLogs) removable() []uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []uint64
	for n, l := range c.open {
		if l.refs == 0 && (n != c.cur || l.size >= contentLogSize) {
			out = append(out, n)
		}
	}
	return out
}

func (c *contentLogs) remove(numbers []uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var err error
	for _, n := range numbers {
		l := c.open[n]
		if l == nil || l.refs > 0 {
			continue // somebody else was faster
		}
		delete(c.open, n)
		err = errors.Join(err, l.f.Close(), os.Remove(c.path(n)))
	}
	return err
}

// bytes is the length of all content that is pointed to.
func (c *contentLogs) bytes() (total int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.owners {
		total += p.length
	}
	return total
}

func (c *contentLogs) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var err error
	for _, l := range c.open {
		err = errors.Join(err, l.f.Close())
	}
	return err
}

// StoreContent puts the content of a small file where the next op can point to it, and returns the mutation of its
// ContentKey for that op. The content is copied.
func (l *Live) StoreContent(ino Ino, content []byte) (Mutation, error) {
	p, err := l.content.add(content)
	if err != nil {
		return Mutation{}, fmt.Errorf("store content of inode %d: %w", ino, err)
	}
	return Mutation{Key: ContentKey(ino), Value: p.append(nil), content: p.log}, nil
}

// Content returns what StoreContent stored for an inode.
func (l *Live) Content(ino Ino) ([]byte, error) {
	v, _, err := l.GetLocal(ContentKey(ino))
	if err == nil && v == nil {
		err = fmt.Errorf("inode %d: %w: its content is not in the journal", ino, ErrDamaged)
	}
	if err != nil {
		return nil, err
	}
	return l.content.read(v)
}

// ContentBytes is the length of all content stored and not dropped.
func (l *Live) ContentBytes() int64 { return l.content.bytes() }

// loadContent reads all pointers at the start and returns the inodes whose content is not what was written: after a power
// loss, content that was never synced.
func (l *Live) loadContent() (lost []Ino, err error) {
	err = l.ScanLocal([]byte{KeyContent}, func(key, value []byte) error {
		ino, err := ParseInoKey(key)
		if err != nil {
			return err
		}
		if err := l.content.own(ino, value); err != nil {
			return err
		}
		if _, err := l.content.read(value); err != nil {
			l.log.Error("content that was never synced is lost", "ino", ino, "err", err)
			lost = append(lost, ino)
		}
		return nil
	})
	return lost, err
}

// DropContentLogs removes logs that nothing points to any more, once that is on stable storage. It does nothing while a
// snapshot is open.
func (l *Live) DropContentLogs() error {
	numbers := l.content.removable()
	l.mu.Lock()
	busy := l.snapshots > 0
	l.mu.Unlock()
	if busy || len(numbers) == 0 {
		return nil
	}
	if err := l.Sync(); err != nil {
		return err
	}
	l.mu.Lock() // no snapshot begins meanwhile
	defer l.mu.Unlock()
	if l.snapshots > 0 {
		return nil
	}
	if err := l.content.remove(numbers); err != nil {
		return fmt.Errorf("remove content logs: %w", err)
	}
	return nil
}
