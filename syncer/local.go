package syncer

import (
	"context"
	"io"

	"wsfs/blobs"
	"wsfs/metadata"
)

// Local is the live side of a workspace as the syncer needs it; the root package implements it.
type Local interface {
	// Freeze returns everything changed since the last settled commit, as one consistent state.
	Freeze(ctx context.Context) (Frozen, error)
	// OpenStaging opens a staging file for reading. It stays readable until closed, even if it is dropped meanwhile.
	OpenStaging(number uint64) (Staging, error)
	// Settle tells that a commit is durable: what it contains is clean from now on unless it changed since.
	Settle(ctx context.Context, s Settlement) error
	// Locate finds a chunk known to be in the store (committed by anybody, or uploaded by us and not yet committed).
	Locate(id blobs.ID) (blobs.Ref, bool, error)
	// Remember records chunks that are in the store. It is called as soon as a pack is durable, so that an
	// interrupted commit does not upload it again.
	Remember(refs []blobs.Ref) error
	// Mark and SetMark keep small facts of the syncer (how far the store's indexes are loaded). "" if unset.
	Mark(name string) (string, error)
	SetMark(name, value string) error
}

// Frozen is the state of the live side at one sequence number. Nothing it answers changes until Close, except that
// staging files may be written meanwhile: Stamp tells how they were.
type Frozen interface {
	// Seq is the journal sequence number of the last op in the state.
	Seq() uint64
	// Dirty calls fn for each key of the committed key space that may differ from the last settled commit,
	// in ascending order, each once. The key is valid only during the call.
	Dirty(fn func(key []byte) error) error
	// Get returns the live value of a dirty key; false: the key is deleted.
	Get(key []byte) ([]byte, bool, error)
	// Content returns the content of an inode with ContentJournal.
	Content(ino metadata.Ino) ([]byte, error)
	// Stamp returns how a staging file was at the freeze, if it may be written behind our back (Live inodes).
	Stamp(number uint64) (Stamp, bool)
	// Settled tells that the staging file has not changed since the commit that stored it: the tree's content of
	// the inode is still right and need not be read again.
	Settled(ino metadata.Ino, number uint64) bool
	Close()
}

// Stamp identifies a state of a staging file.
type Stamp struct {
	Size  int64
	Mtime int64 // ns
	Ctime int64 // ns
}

// Staging is an open staging file.
type Staging interface {
	io.ReaderAt
	io.Closer
	Stamp() (Stamp, error)
	// Data returns the first range at or after off that is not a hole; start == the file's size if there is none.
	Data(off int64) (start, end int64, err error)
	// Sync writes mapped pages back, so that every later store through a mapping moves the stamp.
	Sync() error
}

// Settlement is what a durable commit means to the live side.
//
// Orphans are not in Tree, nor are their attributes and extents: what they need while they are open must stay in the
// live overlay, and stay dirty, because a link may bring an O_TMPFILE inode back.
type Settlement struct {
	Commit Commit
	Seq    uint64         // ops up to here are in the commit; 0: it settles none (a takeover)
	Tree   *metadata.Tree // the new base
	Files  []SettledFile
	// Unstable are inodes whose staging file kept changing while it was read: the commit holds their last
	// committed content (or none), and they stay dirty.
	Unstable []metadata.Ino
}

// SettledFile is a file whose local content is now in the store as of Version.
type SettledFile struct {
	Ino     metadata.Ino
	Version uint64 // Inode.Version that was stored
	Stamp   Stamp  // of the staging file that was stored, zero for ContentJournal
	Size    int64
	Alloc   int64
	Content metadata.ContentKind // None, Inline, One, Extents
	Inline  []byte
	Ref     blobs.Ref
	// Extents is set for ContentExtents. All extent keys of the inode that are not among them are gone.
	Extents []metadata.Extent
}
