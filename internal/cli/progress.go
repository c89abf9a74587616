package cli

import (
	"fmt"
	"os"
	"sync"
	"time"
)

// Progress is one line on the terminal that long work keeps up to date. It is silent where stderr is no terminal.
// Safe for concurrent use.
type Progress struct {
	mu    sync.Mutex
	what  string
	shown time.Time
	start time.Time
	on    bool
	drawn bool
}

// NewProgress starts a line about what is being done; quiet turns it off.
func NewProgress(what string, quiet bool) *Progress {
	now := time.Now()
	return &Progress{what: what, start: now, shown: now, on: !quiet && IsTerminal(os.Stderr)}
}

// Bytes tells how much is done; total 0 is unknown. It draws at most five times a second.
func (p *Progress) Bytes(files, done, total int64) {
	p.draw(func() string {
		s := Size(done) + "B"
		if total > 0 {
			s = fmt.Sprintf("%3d%% of %sB", min(100, 100*done/total), Size(total))
		}
		if files > 0 {
			s = fmt.Sprintf("%d files, %s", files, s)
		}
		if sec := time.Since(p.start).Seconds(); sec > 0.5 {
			s += fmt.Sprintf(", %sB/s", Size(int64(float64(done)/sec)))
		}
		return s
	})
}

// Text tells anything else.
func (p *Progress) Text(s string) { p.draw(func() string { return s }) }

func (p *Progress) draw(text func() string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.on || time.Since(p.shown) < 200*time.Millisecond {
		return
	}
	p.shown, p.drawn = time.Now(), true
	fmt.Fprintf(os.Stderr, "\r\x1b[K%s: %s", p.what, text())
}

// Done clears the line.
func (p *Progress) Done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drawn {
		fmt.Fprint(os.Stderr, "\r\x1b[K")
	}
	p.on, p.drawn = false, false
}
