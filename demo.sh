#!/usr/bin/env bash
# The main job in one go, on the embedded store: mount a workspace, work in it, lose the host's copy, and have
# everything back from the store. `make demo` builds the commands first. Needs /dev/fuse; everything it makes lies in
# one temporary directory that it removes at the end.
set -euo pipefail

bin=$(cd "${1:-bin}" && pwd)
work=$(mktemp -d)
export XDG_DATA_HOME=$work/data XDG_CACHE_HOME=$work/cache XDG_RUNTIME_DIR=$work/run
mkdir -p "$XDG_RUNTIME_DIR" "$work/mnt"

cleanup() {
	mountpoint -q "$work/mnt" && { "$bin/wsfs" umount "$work/mnt" || umount -l "$work/mnt"; }
	rm -rf --one-file-system "$work"
}
trap cleanup EXIT

say() { printf '\n== %s\n' "$*"; }
run() { printf '$ %s\n' "$*"; "$@"; }

say "mount the workspace demo from the store in $XDG_DATA_HOME"
run "$bin/wsfs" mount demo "$work/mnt"

say "work in it: a git repository and a program"
cd "$work/mnt"
run git init -q project
cd project
git config user.name demo
git config user.email demo@example.com
printf '#!/bin/sh\necho "hello from commit $(git rev-parse --short HEAD)"\n' >hello
chmod +x hello
run git add hello
run git commit -q -m "say hello"
run ./hello
before=$(git rev-parse HEAD)

say "unmount (waits until the store has everything), then lose this host's copy"
cd "$work"
run "$bin/wsfs" umount "$work/mnt"
run rm -rf "$XDG_CACHE_HOME"

say "mount again, from the store alone"
run "$bin/wsfs" mount demo "$work/mnt"
cd "$work/mnt/project"
run ./hello
run git fsck --strict
[ "$(git rev-parse HEAD)" = "$before" ]
cd "$work"
run "$bin/wsctl" -w "$work/mnt" status
run "$bin/wsctl" -w "$work/mnt" check

say "everything was back"
