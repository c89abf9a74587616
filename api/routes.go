package api

// pathParam is the parameter most routes take.
var pathParam = param{Name: "path", Kind: "path", Must: true, Text: "absolute path in the workspace; bytes, percent-encoded"}

// routes is every route there is. It is filled in init because openapi's handler reads it.
var routes []route

func init() {
	routes = append(routes, stateRoutes...)
	routes = append(routes, treeRoutes...)
	routes = append(routes, fileRoutes...)
	routes = append(routes, route{Method: "GET", Path: "/v1/openapi.json", Summary: "This document", Schema: "OpenAPI", run: (*server).openapi})
}

var stateRoutes = []route{
	{Method: "GET", Path: "/v1/status", Summary: "State of the workspace and its mount", Schema: "Status",
		Params: []param{{Name: "lease", Kind: "bool", Text: "also ask the store who holds the workspace; waits for it at most 2 s"}}, run: (*server).status},
	{Method: "POST", Path: "/v1/sync", Summary: "Commit everything to the store and wait for it", Schema: "Commit",
		Params: []param{{Name: "timeout", Kind: "duration", Text: "give up waiting after this long; default: wait"}}, run: (*server).sync},
	{Method: "GET", Path: "/v1/log", Summary: "Commits, newest first", Schema: "Log",
		Params: []param{{Name: "n", Kind: "int", Text: "at most this many; default 20, 0 is all"}}, run: (*server).log},
	{Method: "POST", Path: "/v1/check", Summary: "Check the workspace; lines of CheckEvent, the last one has the report", Answer: ndjson, Schema: "CheckEvent",
		Params: []param{{Name: "read_data", Kind: "bool", Text: "also read and verify every chunk"}}, run: (*server).check},
	{Method: "GET", Path: "/v1/df", Summary: "Space and inodes", Schema: "Space", run: (*server).df},
	{Method: "POST", Path: "/v1/stop", Summary: "Unmount, commit and end the daemon; lines of StopEvent", Answer: ndjson, Schema: "StopEvent",
		Params: []param{{Name: "wait", Kind: "duration", Text: "how long to wait for the last commit; default and 0: for ever, negative: not at all"},
			{Name: "lazy", Kind: "bool", Text: "detach a mount that is in use"}}, run: (*server).stop},
}

var treeRoutes = []route{
	{Method: "GET", Path: "/v1/ls", Summary: "Entries of a directory (or the one file); lines of ListLine, the last one has end or error", Answer: ndjson, Schema: "ListLine",
		Params: []param{pathParam, {Name: "recursive", Kind: "bool", Text: "everything below, directories before their entries"}}, run: (*server).list},
	{Method: "GET", Path: "/v1/stat", Summary: "Attributes", Schema: "Entry",
		Params: []param{pathParam, {Name: "follow", Kind: "bool", Text: "follow a symbolic link in the last component"}}, run: (*server).stat},
	{Method: "POST", Path: "/v1/mkdir", Summary: "Make a directory", Schema: "Entry",
		Params: []param{pathParam, {Name: "mode", Kind: "octal", Text: "permission bits; default 0755"}, {Name: "parents", Kind: "bool", Text: "make missing parents, accept an existing directory"}}, run: (*server).mkdir},
	{Method: "POST", Path: "/v1/rm", Summary: "Remove", Schema: "Done",
		Params: []param{pathParam, {Name: "recursive", Kind: "bool", Text: "directories with all they hold"}, {Name: "force", Kind: "bool", Text: "a missing path is no error"}}, run: (*server).remove},
	{Method: "POST", Path: "/v1/mv", Summary: "Rename, replacing what is there", Schema: "Done", Params: fromTo("no_replace"), run: (*server).rename},
	{Method: "POST", Path: "/v1/cp", Summary: "Copy inside the workspace, keeping modes, owners, times and attributes", Schema: "Totals", Params: fromTo("recursive"), run: (*server).copy},
}

func fromTo(flag string) []param {
	from, to := pathParam, pathParam
	from.Name, to.Name = "from", "to"
	return []param{from, to, {Name: flag, Kind: "bool"}}
}

var fileRoutes = []route{
	{Method: "GET", Path: "/v1/file", Summary: "Content of a file; honours Range", Answer: octets, Params: []param{pathParam}, run: (*server).cat},
	{Method: "PUT", Path: "/v1/file", Summary: "Store the body as a file, replacing what is there once all of it has come", Body: octets, Schema: "Totals",
		Params: []param{pathParam, {Name: "mode", Kind: "octal", Text: "permission bits; default 0644, or those of the file replaced"}}, run: (*server).putFile},
	{Method: "GET", Path: "/v1/tree", Summary: "A file or directory with all it holds, as a tree stream", Answer: ContentType, Params: []param{pathParam}, run: (*server).getTree},
	{Method: "PUT", Path: "/v1/tree", Summary: "Store a tree stream", Body: ContentType, Schema: "Totals", Params: []param{pathParam}, run: (*server).putTree},
}

const (
	ndjson = "application/x-ndjson"
	octets = "application/octet-stream"
)
