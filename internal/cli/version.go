package cli

import "runtime/debug"

// version is the release; a build may set it with -ldflags -X.
var version = "0.1.0"

// Version is the release and, where the build knows it, the source revision.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return version
	}
	rev, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			rev = "+" + s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-modified"
		}
	}
	if rev == "" {
		return version
	}
	return version + rev + dirty
}
