package mem_test

import (
	"testing"

	"wsfs/blobs"
	"wsfs/blobs/blobtest"
	"wsfs/blobs/mem"
)

func TestContract(t *testing.T) {
	blobtest.Run(t, func(*testing.T) blobs.Store { return mem.New() })
}

func TestNamedIsShared(t *testing.T) {
	name := "shared-" + t.Name()
	defer mem.Forget(name)
	if err := mem.Named(name).Put(t.Context(), "k", []byte("v")); err != nil {
		t.Fatal(err)
	}
	got, err := mem.Named(name).Get(t.Context(), "k", 0, -1)
	if err != nil || string(got) != "v" {
		t.Errorf("the second user of the name sees %q, %v", got, err)
	}
	if one, other := mem.Named(""), mem.Named(""); one == other {
		t.Error("two stores without a name are one")
	}
	mem.Forget(name)
	if page, err := mem.Named(name).List(t.Context(), "", "", 0); err != nil || len(page) != 0 {
		t.Errorf("a forgotten name still has %v, %v", page, err)
	}
}
