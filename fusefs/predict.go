package fusefs

import "sync/atomic"

const (
	predictSlots = 1024
	predictUnit  = 64        // bytes per unit of a running size
	predictBig   = 128 << 10 // bytes; larger files are worth a slot
	predictClamp = 1 << 20   // bytes; one huge file must not hide many small ones that follow
)

// predictor guesses, from the files a process has created, whether its next one is worth a passthrough slot: small files
// lose by it (registering costs more than it saves), large ones win.
//
// It is a direct-mapped table without locks: a slot is pid<<32 | running size in units of 64 bytes. Two processes that
// share a slot forget each other, which costs a wrong guess and nothing else.
type predictor struct {
	slots [predictSlots]atomic.Uint64
}

func (p *predictor) slot(pid uint32) *atomic.Uint64 {
	return &p.slots[(pid*2654435761)>>22] // Fibonacci hashing, top 10 bits
}

// wants tells whether a file that pid creates now should ask for passthrough. A process first seen gets one.
func (p *predictor) wants(pid uint32) bool {
	v := p.slot(pid).Load()
	return uint32(v>>32) != pid || uint32(v) > predictBig/predictUnit
}

// saw takes the final size in bytes of a file that pid created: an exponentially weighted average, the new size
// counting a quarter.
func (p *predictor) saw(pid uint32, size int64) {
	s := p.slot(pid)
	units := int64(min(max(size, 0), predictClamp) / predictUnit)
	for {
		old := s.Load()
		next := units
		if uint32(old>>32) == pid {
			was := int64(uint32(old))
			next = was + (units-was)/4
			if next == was && units != was { // the division must not make it stick
				next += (units - was) / max(units-was, was-units)
			}
		}
		if s.CompareAndSwap(old, uint64(pid)<<32|uint64(next)) {
			return
		}
	}
}
