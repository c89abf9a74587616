// Package wsfs is the file system itself: a Workspace is a directory tree kept in a local Badger journal and in chunks
// and numbered commits in a store. Front ends (FUSE, the control API, shells) translate to it and decide nothing.
//
// Nouns: an inode has a number (Ino) and attributes (Attr); a Handle is an open file; an orphan is an unlinked inode
// that something still holds (an open Handle, or a kernel reference taken with Retain); content is inline, in the
// journal (small and dirty), in a staging file (large and dirty, or a whole local copy) or in chunks (clean).
//
// There are two levels. Inode-level operations (Lookup, Create, Rename, ...) are what a kernel speaks; their errors are
// syscall.Errno values and they never tell a kernel about the change. Path-level operations (OpenFile, WriteFile,
// MkdirAll, ... and fs.FS) are what programs speak; their errors are *fs.PathError and they invalidate the caches of
// every kernel that has the workspace mounted.
//
// Permissions are not checked here: the kernel does that for a mount (default_permissions), the API by its own rules.
//
// Lock order: Handle's file lock (file.mu), then Workspace.mu, then the journal's own lock. Nothing waits for the store
// with Workspace.mu held.
//
// Warning: a process must never touch its own mount; everything here works without one.
package wsfs
