package fusefs

import (
	"os"
	"testing"

	"github.com/hanwen/go-fuse/v2/posixtest"
)

// TestPosix runs go-fuse's suite for any POSIX file system in every mode.
func TestPosix(t *testing.T) {
	eachMode(t, func(t *testing.T, s *served) {
		for name, fn := range posixtest.All {
			if name == "FcntlFlockLocksFile" {
				// It wants two descriptors of one process to exclude each other by fcntl locks, which belong to
				// the process: it fails on every local file system, and locks are the kernel's own here.
				continue
			}
			t.Run(name, func(t *testing.T) {
				dir := s.path(name)
				if err := os.Mkdir(dir, 0755); err != nil {
					t.Fatal(err)
				}
				fn(t, dir)
			})
		}
	})
}
