package syncer

import (
	"math/rand/v2"
	"time"
)

const (
	firstBackoff = time.Second
	lastBackoff  = time.Minute
)

// backoff yields growing pauses, each drawn between half of its bound and the bound, so that many hosts that lost the
// same store do not come back together.
type backoff struct{ tries int }

func (b *backoff) next() time.Duration {
	bound := lastBackoff
	if b.tries < 6 {
		bound = min(firstBackoff<<b.tries, lastBackoff)
	}
	b.tries++
	return bound/2 + rand.N(bound/2+1)
}

func (b *backoff) reset() { b.tries = 0 }
