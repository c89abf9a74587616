package fusefs

// cores are the file systems the mount tests run over.
var cores = []string{"mem"}

// openCore makes the core of a serving child, and how to end it after the commands are over (s is nil where the mount failed).
func openCore(cfg childConfig) (core, func(s *Server) error, error) {
	m := newMemCore(cfg.Cache)
	m.refuse = cfg.Refuse
	return m, func(*Server) error { return nil }, nil
}
