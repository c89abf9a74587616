package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

func errnoName(err error) string {
	var no syscall.Errno
	if errors.As(err, &no) {
		return unix.ErrnoName(no)
	}
	return ""
}

// IsTerminal tells whether f is one.
func IsTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// Printable escapes what could confuse a terminal or a log: control characters and bytes that are not UTF-8.
func Printable(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 || !unicode.IsPrint(r) {
			for _, c := range []byte(s[i : i+n]) {
				fmt.Fprintf(&b, `\x%02x`, c)
			}
		} else {
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// Name prepares a file name for printing: escaped on a terminal, raw bytes otherwise.
func Name(s string, terminal bool) string {
	if terminal {
		return Printable(s)
	}
	return s
}

// Size formats bytes for people: 1536 is "1.5K". Below 1024 it is the number itself.
func Size(n int64) string {
	if n < 1024 {
		return fmt.Sprint(n)
	}
	v, unit := float64(n), 0
	for v >= 1023.95 && unit < 6 {
		v /= 1024
		unit++
	}
	if v < 10 {
		return fmt.Sprintf("%.1f%c", v, " KMGTPE"[unit])
	}
	return fmt.Sprintf("%.0f%c", v, " KMGTPE"[unit])
}

// ParseSize reads "512", "64K", "10M", "2GiB": a number with an optional binary unit. The result is in bytes.
func ParseSize(s string) (int64, error) {
	num := strings.TrimRight(strings.TrimSuffix(strings.TrimSuffix(strings.ToUpper(s), "B"), "I"), "KMGT")
	unit := strings.TrimPrefix(strings.ToUpper(s), num)
	shift, ok := map[string]uint{"": 0, "B": 0, "K": 10, "KB": 10, "KIB": 10, "M": 20, "MB": 20, "MIB": 20, "G": 30, "GB": 30, "GIB": 30, "T": 40, "TB": 40, "TIB": 40}[unit]
	var n int64
	if _, err := fmt.Sscanf(num, "%d", &n); err != nil || !ok || fmt.Sprint(n) != num || n < 0 || n > 1<<62>>shift {
		return 0, Usagef("size %q: want a number of bytes with K, M, G or T, such as 64M", s)
	}
	return n << shift, nil
}
