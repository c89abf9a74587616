package fusefs

import (
	"strconv"
	"sync/atomic"
)

// opNames are the names of the requests that reach this package, by opcode of the FUSE protocol.
var opNames = [...]string{
	1: "LOOKUP", 2: "FORGET", 3: "GETATTR", 4: "SETATTR", 5: "READLINK", 6: "SYMLINK", 8: "MKNOD", 9: "MKDIR", 10: "UNLINK",
	11: "RMDIR", 12: "RENAME", 13: "LINK", 14: "OPEN", 15: "READ", 16: "WRITE", 17: "STATFS", 18: "RELEASE", 20: "FSYNC",
	21: "SETXATTR", 22: "GETXATTR", 23: "LISTXATTR", 24: "REMOVEXATTR", 25: "FLUSH", 27: "OPENDIR", 28: "READDIR",
	29: "RELEASEDIR", 30: "FSYNCDIR", 31: "GETLK", 32: "SETLK", 33: "SETLKW", 34: "ACCESS", 35: "CREATE", 39: "IOCTL",
	43: "FALLOCATE", 44: "READDIRPLUS", 45: "RENAME2", 46: "LSEEK", 47: "COPY_FILE_RANGE", 51: "TMPFILE", 52: "STATX",
}

const opForget = 2

func opName(op uint32) string {
	if op < uint32(len(opNames)) && opNames[op] != "" {
		return opNames[op]
	}
	return "opcode " + strconv.FormatUint(uint64(op), 10)
}

// requestCounts counts requests by opcode; anything unknown is counted at 0.
type requestCounts [64]atomic.Uint64

func (c *requestCounts) count(op uint32) {
	if op >= uint32(len(c)) {
		op = 0
	}
	c[op].Add(1)
}

// Stats are counts since the mount was made.
type Stats struct {
	// Requests is the number of requests by name ("LOOKUP", "GETATTR", ...); names never asked are missing. BATCH_FORGET
	// counts as one FORGET per inode.
	Requests map[string]uint64
	// Passthrough tells whether the kernel may read and write staging files itself; false: write-back mode, or a
	// read-only mount without passthrough.
	Passthrough bool
	// PassthroughOpens and CachedOpens are opens (CREATE and TMPFILE included) by the io mode they got.
	PassthroughOpens, CachedOpens uint64
	// OpenFiles is the number of file handles not yet released.
	OpenFiles int
	// SlowNotifications is the number of invalidations the kernel took longer than a second to take.
	SlowNotifications uint64
}
