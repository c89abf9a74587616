// Package fusefs shows a workspace to the Linux kernel as a FUSE file system. It only translates: what an operation means is
// decided by the root package.
//
// Nouns: a node id is an inode number (the root is 1, generation 1: numbers are never used again); a file handle is an open
// file; an inode that is open has one io mode, either cached (READ and WRITE come to us) or passthrough (the kernel reads
// and writes the staging file itself, named to it by a backing id); a mount is in passthrough mode (both io modes occur)
// or in write-back mode (every inode is cached, the kernel collects writes).
//
// Contract with the kernel:
//   - Every entry handed out (LOOKUP, CREATE, TMPFILE, MKDIR, MKNOD, SYMLINK, LINK, and each READDIRPLUS entry that carries
//     a node id) is retained in the core exactly once, and the inode is known to exist after it was retained. FORGET gives
//     the references back.
//   - While an inode is open, every further open has the same io mode and the same backing id; the kernel answers EIO to
//     the program otherwise. The decision is made under the lock of the openInode.
//   - Entries, attributes, directories, symlink targets and pages are cached by the kernel for as long as it likes. What
//     changes by other ways than this mount is told through kernelCache, which the core calls.
//   - OPENDIR and FLUSH are answered with ENOSYS once, and never asked again: a directory needs no handle (cookies are
//     stable) and close(2) has nothing to report (WRITE and the kernel's own write-back report errors).
//
// Lock order: openInode.mu, then inodeTable.mu or fileTable.mu. No lock is held while the kernel is told something.
//
// Warning: the process that serves a mount must never touch it: no stat, no open, no statfs below the mount point. It
// would wait for itself.
package fusefs
