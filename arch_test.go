package wsfs_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The architecture test: which package may import which, where third-party libraries are allowed, and how large
// files and functions may grow. docs/design.md explains the table; this file enforces it.

const module = "wsfs"

// Size limits of hand-written code, tests excluded. The aim is well below them.
const (
	maxFunctionLines = 70
	maxFileLines     = 600
)

// layer is one line of the import table. Names are import paths below the module, "" is the root package; a name
// that ends in "/..." covers a package and everything below it. A package may always import its own layer's
// packages where the pattern says "/...".
type layer struct {
	packages string
	may      []string
}

var layers = []layer{
	{"blobs", nil},
	{"blobs/...", []string{"blobs/..."}},
	{"metadata", []string{"blobs"}},
	{"syncer", []string{"blobs", "metadata"}},
	{"", []string{"blobs", "metadata", "syncer"}},
	{"fusefs", []string{""}},
	{"exec", []string{""}},
	{"exec/...", []string{"", "exec"}},
	{"api", []string{"", "exec"}},
	{"api/...", []string{"", "exec", "api"}},
	{"internal/cli", []string{"..."}},
	{"cmd/...", []string{"..."}},
	{"bench", []string{"..."}},
	{"e2e/...", []string{"blobs/blobtest", "e2e/..."}},
}

// libraries names the only packages that may import a third-party library, tests included. The rest of the module
// must not know that the library exists.
var libraries = []struct {
	library string
	only    []string
}{
	{"github.com/aws/", []string{"blobs/s3/..."}},
	{"github.com/minio/minio-go", []string{"blobs/minio"}},
	{"github.com/hanwen/go-fuse", []string{"fusefs", "bench"}},
	{"github.com/dgraph-io/badger", []string{"metadata"}},
	{"github.com/restic/chunker", []string{"blobs"}},
	{"github.com/spf13/cobra", []string{"cmd/...", "internal/cli"}},
}

// goPackage is the part of `go list -json` that the rules look at.
type goPackage struct {
	ImportPath, Dir, Name, Doc                  string
	GoFiles, Imports, TestImports, XTestImports []string
}

// path returns the import path below the module, "" for the root package.
func (p goPackage) path() string {
	return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
}

func listPackages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Dir,Name,Doc,GoFiles,Imports,TestImports,XTestImports", "./...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list ./...: %v\n%s", err, stderr.Bytes())
	}
	var packages []goPackage
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("decode go list: %v", err)
		}
		packages = append(packages, p)
	}
	if len(packages) < 5 {
		t.Fatalf("go list found %d packages; the rules would prove nothing", len(packages))
	}
	return packages
}

// covers tells whether the import path below the module matches the pattern.
func covers(pattern, path string) bool {
	if pattern == "..." {
		return true
	}
	if base, ok := strings.CutSuffix(pattern, "/..."); ok {
		return path == base || strings.HasPrefix(path, base+"/")
	}
	return path == pattern
}

func coversAny(patterns []string, path string) bool {
	for _, pattern := range patterns {
		if covers(pattern, path) {
			return true
		}
	}
	return false
}

// layerOf returns the first line of the table that covers the package.
func layerOf(path string) (layer, bool) {
	for _, l := range layers {
		if covers(l.packages, path) {
			return l, true
		}
	}
	return layer{}, false
}

// checkImports applies the table and the library rule to one package and returns what it breaks.
func checkImports(p goPackage) []string {
	var broken []string
	l, ok := layerOf(p.path())
	if !ok {
		return []string{fmt.Sprintf("package %s: not in the import table of arch_test.go", p.ImportPath)}
	}
	for _, imported := range p.Imports {
		if imported != module && !strings.HasPrefix(imported, module+"/") {
			continue
		}
		path := strings.TrimPrefix(strings.TrimPrefix(imported, module), "/")
		if !coversAny(l.may, path) {
			broken = append(broken, fmt.Sprintf("package %s imports %s, which its layer may not", p.ImportPath, imported))
		}
	}
	all := append(append(append([]string(nil), p.Imports...), p.TestImports...), p.XTestImports...)
	for _, imported := range all {
		for _, rule := range libraries {
			if strings.HasPrefix(imported, rule.library) && !coversAny(rule.only, p.path()) {
				broken = append(broken, fmt.Sprintf("package %s imports %s; only %v may", p.ImportPath, imported, rule.only))
			}
		}
	}
	return broken
}

func TestArchitectureImports(t *testing.T) {
	for _, p := range listPackages(t) {
		for _, broken := range checkImports(p) {
			t.Error(broken)
		}
	}
}

// TestArchitectureRulesBite shows that each rule refuses what it is there to refuse.
func TestArchitectureRulesBite(t *testing.T) {
	bad := []goPackage{
		{ImportPath: "wsfs/blobs", Imports: []string{"wsfs/metadata"}},
		{ImportPath: "wsfs/metadata", Imports: []string{"wsfs/syncer"}},
		{ImportPath: "wsfs/metadata", Imports: []string{"wsfs/blobs/s3"}},
		{ImportPath: "wsfs/fusefs", Imports: []string{"wsfs/metadata"}},
		{ImportPath: "wsfs", Imports: []string{"wsfs/fusefs"}},
		{ImportPath: "wsfs/api", Imports: []string{"wsfs/syncer"}},
		{ImportPath: "wsfs/syncer", Imports: []string{"github.com/aws/aws-sdk-go-v2/service/s3"}},
		{ImportPath: "wsfs/blobs/minio", Imports: []string{"github.com/aws/aws-sdk-go-v2/aws"}},
		{ImportPath: "wsfs/syncer", TestImports: []string{"github.com/dgraph-io/badger/v4"}},
		{ImportPath: "wsfs", XTestImports: []string{"github.com/hanwen/go-fuse/v2/fuse"}},
		{ImportPath: "wsfs/helpers"},
	}
	for _, p := range bad {
		if len(checkImports(p)) != 1 {
			t.Errorf("%+v: want one complaint, have %q", p, checkImports(p))
		}
	}
	good := goPackage{ImportPath: "wsfs/cmd/wsfs", Imports: []string{"wsfs/fusefs", "wsfs/blobs/s3", "github.com/spf13/cobra"}}
	if broken := checkImports(good); len(broken) != 0 {
		t.Errorf("%+v: %q", good, broken)
	}
}

func TestArchitecturePackageDocs(t *testing.T) {
	for _, p := range listPackages(t) {
		if len(p.GoFiles) == 0 {
			continue // tests only
		}
		if want := "Package " + p.Name + " "; p.Name != "main" && !strings.HasPrefix(p.Doc, want) {
			t.Errorf("package %s: its doc comment must start with %q, has %q", p.ImportPath, want, p.Doc)
		}
		if p.Name == "main" && p.Doc == "" {
			t.Errorf("command %s: no doc comment", p.ImportPath)
		}
	}
}

func TestArchitectureSizes(t *testing.T) {
	eachFile(t, func(name string, fset *token.FileSet, file *ast.File) {
		if lines := fset.File(file.Pos()).LineCount(); lines > maxFileLines {
			t.Errorf("%s: %d lines, at most %d", name, lines, maxFileLines)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			decl, ok := n.(*ast.FuncDecl)
			if !ok {
				return true
			}
			from, to := fset.Position(decl.Pos()), fset.Position(decl.End())
			if lines := to.Line - from.Line + 1; lines > maxFunctionLines {
				t.Errorf("%s:%d: function %s has %d lines, at most %d", name, from.Line, decl.Name.Name, lines, maxFunctionLines)
			}
			return true
		})
	})
}

// emptyNames are words that say nothing about what a type is.
var emptyNames = regexp.MustCompile(`(Manager|Helper|Util|Utils|Service|Data|Info|Base|Impl|Common)$`)

func TestArchitectureNames(t *testing.T) {
	eachFile(t, func(name string, fset *token.FileSet, file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok && emptyNames.MatchString(spec.Name.Name) {
				t.Errorf("%s: type %s: the name says nothing", fset.Position(spec.Pos()), spec.Name.Name)
			}
			return true
		})
	})
}

// TestArchitectureExportedDocs wants a doc comment on every exported type, function, variable and constant of the
// library packages. Methods are left to judgement: those of an interface are documented there.
func TestArchitectureExportedDocs(t *testing.T) {
	for _, p := range listPackages(t) {
		if p.Name == "main" || len(p.GoFiles) == 0 {
			continue
		}
		fset := token.NewFileSet()
		var files []*ast.File
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.ParseComments)
			if err != nil {
				t.Fatalf("parse: %v", err)
			}
			files = append(files, file)
		}
		documented, err := doc.NewFromFiles(fset, files, p.ImportPath)
		if err != nil {
			t.Fatalf("package %s: %v", p.ImportPath, err)
		}
		for _, missing := range undocumented(documented) {
			t.Errorf("package %s: exported %s has no doc comment", p.ImportPath, missing)
		}
	}
}

// undocumented returns the names without a comment. Functions that stand together may share the comment of the first if
// it names each of them.
func undocumented(p *doc.Package) []string {
	var missing []string
	shared := ""
	for _, f := range p.Funcs {
		shared += f.Doc
	}
	functions := func(list []*doc.Func) {
		for _, f := range list {
			if f.Doc == "" && !strings.Contains(shared, f.Name+" and ") && !strings.Contains(shared, "and "+f.Name+" ") &&
				!strings.Contains(shared, f.Name+", ") {
				missing = append(missing, f.Name)
			}
		}
	}
	values := func(list []*doc.Value) {
		for _, v := range list {
			if v.Doc == "" && !specsDocumented(v.Decl) {
				missing = append(missing, strings.Join(v.Names, ", "))
			}
		}
	}
	functions(p.Funcs)
	values(p.Consts)
	values(p.Vars)
	for _, typ := range p.Types {
		if typ.Doc == "" {
			missing = append(missing, typ.Name)
		}
		functions(typ.Funcs)
		values(typ.Consts)
		values(typ.Vars)
	}
	return missing
}

// specsDocumented tells whether each line of a declaration block has a comment of its own, before or behind it.
func specsDocumented(decl *ast.GenDecl) bool {
	for _, spec := range decl.Specs {
		v, ok := spec.(*ast.ValueSpec)
		if ok && v.Names[0].IsExported() && v.Doc.Text() == "" && v.Comment.Text() == "" {
			return false
		}
	}
	return true
}

// eachFile parses every non-test Go file of the module.
func eachFile(t *testing.T, fn func(name string, fset *token.FileSet, file *ast.File)) {
	t.Helper()
	for _, p := range listPackages(t) {
		for _, name := range p.GoFiles {
			path := filepath.Join(p.Dir, name)
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
			if err != nil {
				t.Fatalf("parse: %v", err)
			}
			if !ast.IsGenerated(file) {
				fn(path, fset, file)
			}
		}
	}
}

// TestSemanticsNameTests wants every statement of docs/semantics.md to name tests that exist: a list item without a
// `TestX` in backquotes, or with one that no test file of the named package declares, is a promise nobody checks.
func TestSemanticsNameTests(t *testing.T) {
	text, err := os.ReadFile("docs/semantics.md")
	if err != nil {
		t.Fatalf("read the semantics: %v", err)
	}
	reference := regexp.MustCompile("`([a-z0-9/]+|\\.) (Test[A-Za-z0-9_]+)`")
	checked := 0
	for _, item := range listItems(string(text)) {
		found := reference.FindAllStringSubmatch(item, -1)
		if len(found) == 0 {
			t.Errorf("docs/semantics.md: no test named in %q", item)
		}
		for _, f := range found {
			checked++
			if !declaresTest(t, f[1], f[2]) {
				t.Errorf("docs/semantics.md: package %s has no test %s", f[1], f[2])
			}
		}
	}
	if checked == 0 {
		t.Error("docs/semantics.md names no test at all")
	}
}

// listItems returns the "- " items of a Markdown page, each joined to one line.
func listItems(text string) []string {
	var items []string
	open := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "- "):
			items, open = append(items, line), true
		case open && strings.HasPrefix(line, "  "):
			items[len(items)-1] += " " + strings.TrimSpace(line)
		default:
			open = false
		}
	}
	return items
}

func declaresTest(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(filepath.FromSlash(dir), "*_test.go"))
	if err != nil {
		t.Fatalf("list the tests of %s: %v", dir, err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatalf("read a test file: %v", err)
		}
		if bytes.Contains(text, []byte("func "+name+"(t *testing.T)")) {
			return true
		}
	}
	return false
}
