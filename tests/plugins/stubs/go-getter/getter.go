// Package getter takes the place of hashicorp/go-getter: the bridge imports it to fetch Terraform modules while it
// converts Terraform programs, which no plugin built here does. The real one brings the clients of three clouds, a sixth
// of all that is compiled for the plugins.
package getter

import "errors"

var errNone = errors.New("Terraform modules are not fetched by this build of the bridge")

// Detector is what the bridge hands over again.
type Detector any

// Detectors are none.
var Detectors []Detector

// FolderStorage keeps nothing.
type FolderStorage struct{ StorageDir string }

// Dir finds nothing.
func (*FolderStorage) Dir(string) (string, bool, error) { return "", false, nil }

// Get refuses.
func (*FolderStorage) Get(_, _ string, _ bool) error { return errNone }

// Get refuses.
func Get(_, _ string) error { return errNone }

// Detect refuses.
func Detect(_, _ string, _ []Detector) (string, error) { return "", errNone }

// SourceDirSubdir leaves the source as it is.
func SourceDirSubdir(source string) (string, string) { return source, "" }

// SubdirGlob refuses.
func SubdirGlob(_, _ string) (string, error) { return "", errNone }
