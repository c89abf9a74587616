package fusefs

import (
	"bytes"
	"os"
	"testing"
)

func TestSmoke(t *testing.T) {
	eachMode(t, func(t *testing.T, s *served) {
		want := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
		if err := os.WriteFile(s.path("f"), want, 0644); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(s.path("f"))
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("read %d bytes: %v", len(got), err)
		}
		st, err := os.Stat(s.path("f"))
		if err != nil || st.Size() != int64(len(want)) {
			t.Fatal(st, err)
		}
		t.Logf("%+v", s.stats())
	})
}
