package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	// The SDKs are read as source; importing a package of each keeps them in go.mod.
	_ "github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/config"
	_ "github.com/pulumiverse/pulumi-talos/sdk/go/talos/config"
	"github.com/stretchr/testify/require"
)

// sdk is what a Go SDK knows of its provider, read from its source: for each token, the properties of its inputs and
// outputs by path.
type sdk map[string]map[string]property

// property is one property on one side.
type property struct {
	typ      string // string, integer, number, boolean, array, map, object
	required bool   // of an input; of arrays and maps a Go SDK does not tell
}

// sdkPackage is one Go package of an SDK.
type sdkPackage struct {
	structs map[string]*ast.StructType
	// calls has the token and the name of each function that registers a resource or invokes a function.
	calls map[string]string
}

// readSDK parses all packages of a module.
func readSDK(t *testing.T, module string) sdk {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	require.NoError(t, err)
	packages := map[string]*sdkPackage{}
	root := strings.TrimSpace(string(out))
	require.NoError(t, fs.WalkDir(os.DirFS(root), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := filepath.Dir(path)
		if packages[dir] == nil {
			packages[dir] = &sdkPackage{structs: map[string]*ast.StructType{}, calls: map[string]string{}}
		}
		packages[dir].read(file)
		return nil
	}))

	result := sdk{}
	for _, p := range packages {
		for tok, function := range p.calls {
			result[tok] = map[string]property{}
			name, resource := strings.CutPrefix(function, "New")
			if resource {
				p.flatten(result[tok], "inputs", name+"Args")
				p.flatten(result[tok], "outputs", name+"State")
			} else {
				p.flatten(result[tok], "inputs", name+"Args")
				p.flatten(result[tok], "outputs", name+"Result")
			}
		}
	}
	return result
}

func (p *sdkPackage) read(file *ast.File) {
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				if spec, ok := spec.(*ast.TypeSpec); ok {
					if s, ok := spec.Type.(*ast.StructType); ok {
						p.structs[spec.Name.Name] = s
					}
				}
			}
		case *ast.FuncDecl:
			if decl.Body == nil {
				continue
			}
			ast.Inspect(decl.Body, func(node ast.Node) bool {
				call, ok := node.(*ast.CallExpr)
				if !ok {
					return true
				}
				method, ok := call.Fun.(*ast.SelectorExpr)
				if !ok || method.Sel.Name != "RegisterResource" && method.Sel.Name != "Invoke" {
					return true
				}
				if literal, ok := call.Args[0].(*ast.BasicLit); ok {
					tok, _ := strconv.Unquote(literal.Value)
					p.calls[tok] = decl.Name.Name
				}
				return true
			})
		}
	}
}

// flatten adds the properties of a struct. A resource has two of each name, and the one whose fields are plain values
// has a lower-case name, spelled by rules of its own.
func (p *sdkPackage) flatten(into map[string]property, path, name string) {
	for other := range p.structs {
		if strings.EqualFold(other, name) && other != name {
			name = other
			break
		}
	}
	s, ok := p.structs[name]
	if !ok {
		return // a function without arguments
	}
	for _, field := range s.Fields.List {
		if field.Tag == nil {
			continue
		}
		tag, _ := strconv.Unquote(field.Tag.Value)
		if name := reflect.StructTag(tag).Get("pulumi"); name != "" && path+name != "outputsid" {
			p.add(into, path+"."+name, field.Type, true)
		}
	}
}

func (p *sdkPackage) add(into map[string]property, path string, expr ast.Expr, required bool) {
	switch expr := expr.(type) {
	case *ast.StarExpr:
		p.add(into, path, expr.X, false)
	case *ast.ArrayType:
		into[path] = property{"array", false}
		p.add(into, path+"[]", expr.Elt, false)
	case *ast.MapType:
		into[path] = property{"map", false}
		p.add(into, path+"{}", expr.Value, false)
	case *ast.Ident:
		types := map[string]string{"string": "string", "int": "integer", "float64": "number", "bool": "boolean"}
		if typ, ok := types[expr.Name]; ok {
			into[path] = property{typ, required}
			return
		}
		into[path] = property{"object", required}
		p.flatten(into, path, expr.Name)
	default:
		into[path] = property{fmt.Sprintf("%T", expr), required}
	}
}
