package disk

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestImageIsAnExt4OfItsOwn(t *testing.T) {
	dir := t.TempDir()
	m, err := NewExt4(context.Background(), dir, "one", 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var fs unix.Statfs_t
	if err := unix.Statfs(m.Dir, &fs); err != nil {
		t.Fatal(err)
	}
	if fs.Type != unix.EXT4_SUPER_MAGIC {
		t.Errorf("file system type %#x, want ext4", fs.Type)
	}
	if err := os.WriteFile(filepath.Join(m.Dir, "f"), []byte("x"), 0o600); err != nil {
		t.Error(err)
	}
	if err := m.Sync(); err != nil {
		t.Error(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestImageWhileInUseIsDetached(t *testing.T) {
	m, err := NewExt4(context.Background(), t.TempDir(), "busy", 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(m.Dir, "open"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := m.Close(); err == nil {
		t.Error("closing an image in use said nothing")
	}
	if mounted(m.Dir) {
		t.Error("still mounted")
	}
}

func TestFailedImageLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	if _, err := NewExt4(context.Background(), dir, "tiny", 4<<10); err == nil {
		t.Fatal("an image of 4 KiB was made")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
