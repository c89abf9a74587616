// Package api is the control door of a workspace: HTTP and JSON over a unix socket, or over nothing at all when a command
// opens the workspace in its own process. Like every front end it translates and decides nothing.
//
// Nouns: a route is one method and path under /v1/; a [Client] speaks to a handler through a socket ([Dial]) or in
// memory ([InProcess]); a node is one file, directory or link of a tree stream ([Node]); an [Error] is what every
// failed request answers.
//
// Paths in requests are absolute in the workspace, cleaned ("." and ".." are resolved before the workspace is asked, so
// ".." never leaves it and never follows a link), and bytes: percent-encode what is not plain. Names in answers come as
// JSON strings, with the exact bytes in name_base64 where they are not UTF-8.
//
// Access: the socket has mode 0600 and the kernel's peer credentials are checked on every connection: the daemon's own
// user or root, nobody else. Whoever may connect may do everything; file permissions are not checked here.
//
// Warning: put replaces what it finds: a non-directory is replaced as a whole (a new inode renamed over the old name),
// directories are merged.
package api
