package engine

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strings"
)

// module is the path of this module, which a fork may change.
var module = strings.TrimSuffix(reflect.TypeFor[Engine]().PkgPath(), "/tests/engine")

// findSource is the directory of this module's go.mod. The compiler left the path of this file in the binary; after a
// build with -trimpath it is no path, and the go command knows where the current directory's module is.
func findSource(ctx context.Context) (string, error) {
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		root := filepath.Dir(filepath.Dir(filepath.Dir(file)))
		if _, err := os.Stat(filepath.Join(root, "tests", "engine", "cli", "go.mod")); err == nil {
			return root, nil
		}
	}
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if root := strings.TrimSpace(string(out)); err == nil && root != "" {
		if _, err := os.Stat(filepath.Join(root, "tests", "engine", "cli", "go.mod")); err == nil {
			return root, nil
		}
	}
	return "",
		fmt.Errorf("the source of module %s was not found: the CLI and the plugins are built from its nested modules, "+
			"so run this from a checkout of the repository", module)
}

// requiredVersion is the version of a module that the go.mod in dir requires, so that no version is written twice.
func requiredVersion(dir, path string) (string, error) {
	return versionIn(filepath.Join(dir, "go.mod"), path)
}

// versionIn is the version that a file like go.mod requires of a module.
func versionIn(file, path string) (string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	match := regexp.MustCompile(`(?m)^(?:require)?\s+` + regexp.QuoteMeta(path) + `\s+(v\S+)`).FindSubmatch(content)
	if match == nil {
		return "", fmt.Errorf("%s does not require %s", file, path)
	}
	return string(match[1]), nil
}
