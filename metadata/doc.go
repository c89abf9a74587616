// Package metadata keeps a workspace's metadata: the records and their keys, the live overlay with its journal on Badger,
// the committed tree, and the checker.
//
// Nouns: a record is the value of one key (inode, dirent, extent, xattr, superblock). The committed key space is what
// every commit holds; the local key space (journal, content not yet chunked, remembered chunks) never leaves the host.
// A Tree is a committed key space in copy-on-write pages; a Live is a writable overlay over a Tree; an op is one
// mutation of several keys; a Snapshot is the overlay as of one op.
//
// Contract: ops become visible at once and in order, and reach stable storage in order, a whole op at a time. Sync
// makes everything appended before it survive a power loss. A Tree never changes.
//
// Lock order: Live.syncMu before Live.mu. Nothing here waits for the store but Tree reads.
//
// Warning: a Live owns its directory. Two of them on one directory, or one that is not closed, lose data; the workspace
// lock prevents the first.
package metadata
