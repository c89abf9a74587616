package metadata

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"wsfs/blobs"
)

// Ino is an inode number. It is never reused within a workspace, also not across forks. The root directory is 1.
type Ino uint64

// RootIno is the root directory of every workspace.
const RootIno Ino = 1

// Key prefixes. The first group is the committed key space: the live overlay and every committed tree hold the same
// keys with the same values. The second group is local to one host and never reaches a tree.
const (
	KeySuper  = 's' // s                                   -> Super
	KeyDirent = 'd' // d parent(8) hash(8) name            -> Dirent
	KeyExtent = 'e' // e ino(8) file offset(8)             -> Extent
	KeyInode  = 'i' // i ino(8)                            -> Inode
	KeyXattr  = 'a' // a ino(8) name                       -> the attribute's bytes

	KeyContent = 'c' // c ino(8)                           -> where the content of a small file not yet chunked is
	KeyJournal = 'j' // j last seq(8)                      -> JournalRecord
	KeyIndex   = 'k' // k chunk id(32)                     -> locator, for dedup
	KeyLocal   = 'm' // m name                             -> local facts (base commit, writer, ...)
	KeyStaging = 't' // t staging number(8)                -> ino(8) of the inode that owns the staging file
	KeyOrphan  = 'o' // o ino(8)                           -> nothing: the inode has no links and waits to be deleted
)

// Committed tells whether key belongs to the committed key space.
func Committed(key []byte) bool {
	if len(key) == 0 {
		return false
	}
	switch key[0] {
	case KeySuper, KeyDirent, KeyExtent, KeyInode, KeyXattr:
		return true
	}
	return false
}

// SuperKey returns the key of the superblock record.
func SuperKey() []byte { return []byte{KeySuper} }

func inoKey(prefix byte, ino Ino, extra int) []byte {
	b := make([]byte, 0, 9+extra)
	b = append(b, prefix)
	return binary.BigEndian.AppendUint64(b, uint64(ino))
}

// InodeKey returns the key of an inode record.
func InodeKey(ino Ino) []byte { return inoKey(KeyInode, ino, 0) }

// ContentKey returns the local key of a small file's content not yet chunked.
func ContentKey(ino Ino) []byte { return inoKey(KeyContent, ino, 0) }

// StagingKey returns the local key that names the owner of a staging file.
func StagingKey(number uint64) []byte { return inoKey(KeyStaging, Ino(number), 0) }

// OrphanKey returns the local key that marks an inode without links.
func OrphanKey(ino Ino) []byte { return inoKey(KeyOrphan, ino, 0) }

// IndexKey returns the local key under which a stored chunk is remembered.
func IndexKey(id blobs.ID) []byte { return append([]byte{KeyIndex}, id[:]...) }

// LocalKey returns the key of a local fact.
func LocalKey(name string) []byte { return append([]byte{KeyLocal}, name...) }

// XattrKey returns the key of one extended attribute; with an empty name it is the prefix of all of them.
func XattrKey(ino Ino, name string) []byte {
	return append(inoKey(KeyXattr, ino, len(name)), name...)
}

// ExtentKey returns the key of the extent that starts at the given file offset.
func ExtentKey(ino Ino, offset int64) []byte {
	return binary.BigEndian.AppendUint64(inoKey(KeyExtent, ino, 8), uint64(offset))
}

// ExtentPrefix is the common prefix of all extents of a file.
func ExtentPrefix(ino Ino) []byte { return inoKey(KeyExtent, ino, 0) }

// DirentPrefix is the common prefix of all entries of a directory.
func DirentPrefix(parent Ino) []byte { return inoKey(KeyDirent, parent, 0) }

// NameHash orders the entries of a directory: the first 63 bits of the name's SHA-256, at least 3. It is the readdir
// cookie, so a position in a directory stays valid while entries come and go (cookies 1 and 2 are "." and "..").
func NameHash(name string) uint64 {
	sum := sha256.Sum256([]byte(name))
	return max(binary.BigEndian.Uint64(sum[:])>>1, 3)
}

// DirentKey returns the key of one directory entry.
func DirentKey(parent Ino, name string) []byte {
	b := inoKey(KeyDirent, parent, 8+len(name))
	b = binary.BigEndian.AppendUint64(b, NameHash(name))
	return append(b, name...)
}

// DirentFrom is the smallest key of the directory's entries with a cookie of at least hash.
func DirentFrom(parent Ino, hash uint64) []byte {
	return binary.BigEndian.AppendUint64(inoKey(KeyDirent, parent, 8), hash)
}

// ParseDirentKey takes a dirent key apart.
func ParseDirentKey(key []byte) (parent Ino, hash uint64, name string, err error) {
	if len(key) < 18 || key[0] != KeyDirent {
		return 0, 0, "", fmt.Errorf("dirent key %x: malformed", key)
	}
	return Ino(binary.BigEndian.Uint64(key[1:])), binary.BigEndian.Uint64(key[9:]), string(key[17:]), nil
}

// ParseInoKey takes the inode number out of any key that starts with a prefix byte and an inode number.
func ParseInoKey(key []byte) (Ino, error) {
	if len(key) < 9 {
		return 0, fmt.Errorf("key %x: too short for an inode number", key)
	}
	return Ino(binary.BigEndian.Uint64(key[1:])), nil
}

// ParseExtentKey takes an extent key apart.
func ParseExtentKey(key []byte) (Ino, int64, error) {
	if len(key) != 17 || key[0] != KeyExtent {
		return 0, 0, fmt.Errorf("extent key %x: malformed", key)
	}
	return Ino(binary.BigEndian.Uint64(key[1:])), int64(binary.BigEndian.Uint64(key[9:])), nil
}

// PrefixEnd returns the smallest key greater than every key with the prefix.
func PrefixEnd(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xff {
			end[i]++
			return end[:i+1]
		}
	}
	return nil
}
