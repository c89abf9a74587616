package syncer

// Position is where the live side stands: what it keeps with its last settlement.
type Position struct {
	Number uint64 // last settled commit
	Epoch  uint64
	Nonce  string
	Writer string // our writer id
	Seq    uint64 // last op in the local journal
	Dirty  bool   // there are local changes since the settled commit
}

// Adoption is what a live side must do with the head it finds in the store when it starts.
type Adoption int

const (
	// AdoptNothing: the head is the settled commit. Go on.
	AdoptNothing Adoption = iota
	// AdoptRebase: the head is ours, but was not settled: the process ended between the last put and the settlement.
	// Its ops are all in the local journal. Take the head's tree as the base and keep everything dirty that is
	// dirty: a dirty key's live value is at least as new as the head's, so reads stay right, and the next commit
	// stores the difference (its chunks are remembered).
	AdoptRebase
	// AdoptReset: the head is ours and newer than the local journal, whose tail was lost with the power before it was
	// synced. What is left of the journal is a prefix of what the head holds. Take the head's tree as the base and
	// drop the local changes: keeping them would put older values over newer ones.
	AdoptReset
	// AdoptForeign: another writer made the head and there are no local changes. Take the head's tree as the base and
	// drop whatever is cached.
	AdoptForeign
	// AdoptFenced: another writer made the head and there are local changes. Do not write: they must go to a fork.
	AdoptFenced
)

// Resume decides how a live side that stands at p goes on from head.
func Resume(head *Commit, p Position) Adoption {
	if head.Number == p.Number && head.Nonce == p.Nonce {
		return AdoptNothing
	}
	// With the same epoch nobody else can have reigned in between: every other writer begins with a greater one.
	if head.Writer == p.Writer && head.Epoch == p.Epoch && head.Number > p.Number {
		if p.Seq < head.Seq {
			return AdoptReset
		}
		return AdoptRebase
	}
	// Our first commit on top of another writer's begins a new epoch, by one.
	if head.Writer == p.Writer && head.Epoch == p.Epoch+1 && head.Number == p.Number+1 && head.Parent == p.Number {
		if p.Seq < head.Seq {
			return AdoptReset
		}
		return AdoptRebase
	}
	if p.Dirty {
		return AdoptFenced
	}
	return AdoptForeign
}
