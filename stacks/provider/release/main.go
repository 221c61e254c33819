// Command release writes what a release of the Pulumi package would contain to a directory: the archive of the plugin
// for each platform, as pulumi looks for it, their checksums, the schema, and the pages for Pulumi's registry. It
// publishes nothing.
//
//	go run ./stacks/provider/release
package main

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/gzip"
)

// usual are the platforms that Pulumi's own packages are released for.
const usual = "darwin/amd64,darwin/arm64,linux/amd64,linux/arm64,windows/amd64"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// release is one release of the package.
type release struct {
	project, out  string
	name, version string
	// plugin is a plugin that was built already; empty: it is built.
	plugin string
	// files are those of the release that have a checksum.
	files []string
}

func run(ctx context.Context, args []string, printed io.Writer) error {
	var (
		r         release
		platforms string
	)

	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.StringVar(&r.project, "project", ".", "directory of the checkout")
	flags.StringVar(&r.out, "out", "dist", "directory to write to, which is created")
	flags.StringVar(&platforms, "platforms", usual, "operating systems and architectures, separated by commas")
	flags.StringVar(&r.plugin, "plugin", "", "plugin that was built already, for a single platform")

	if err := flags.Parse(args); err != nil {
		return err
	}

	all := strings.Split(platforms, ",")

	if r.plugin != "" && len(all) != 1 {
		return fmt.Errorf("--plugin: is the plugin of one platform (given: %s); name that one in --platforms", platforms)
	}

	for _, platform := range all {
		if system, architecture, _ := strings.Cut(platform, "/"); system == "" || architecture == "" {
			return fmt.Errorf("--platforms: must be platforms like linux/amd64, separated by commas (given: %q)", platform)
		}
	}

	if err := r.begin(); err != nil {
		return err
	}

	for _, platform := range all {
		if err := r.archive(ctx, platform); err != nil {
			return fmt.Errorf("--platforms: %s: %w", platform, err)
		}
	}

	if err := r.finish(); err != nil {
		return err
	}

	fmt.Fprintf(printed, "%s has version %s of %s: %d archives, the schema, and the pages for the registry\n", r.out,
		r.version, r.name, len(all))

	return nil
}

// begin makes the directory, and reads what the package is called.
func (r *release) begin() error {
	schema, err := os.ReadFile(filepath.Join(r.project, "stacks/provider/schema.json"))
	if err != nil {
		return fmt.Errorf("--project: is not a checkout of this project: %w", err)
	}

	var about struct{ Name, Version string }
	if err := json.Unmarshal(schema, &about); err != nil {
		return err
	}

	r.name, r.version = about.Name, about.Version

	if err := os.MkdirAll(r.out, 0o755); err != nil { //nolint:gosec // a release is for everyone
		return err
	}

	// What an earlier version left would look like a part of this one.
	left, err := os.ReadDir(r.out)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("--out: must be an empty directory (given: %s); delete it, or name another one", r.out)
	}

	if err != nil {
		return err
	}

	return r.write("schema.json", schema)
}

// archive writes the archive of the plugin for a platform.
func (r *release) archive(ctx context.Context, platform string) error {
	system, architecture, _ := strings.Cut(platform, "/")
	binary := "pulumi-resource-" + r.name
	name := fmt.Sprintf("%s-v%s-%s-%s.tar.gz", binary, r.version, system, architecture)

	if system == "windows" {
		binary += ".exe"
	}

	plugin := r.plugin
	if plugin == "" {
		dir, err := os.MkdirTemp("", "release-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)

		plugin = filepath.Join(dir, binary)

		//nolint:gosec // the platform is the caller's
		build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", plugin, "./stacks/provider")
		build.Dir = r.project
		build.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+architecture, "CGO_ENABLED=0")

		if output, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("%w\n%s", err, output)
		}
	}

	if err := pack(filepath.Join(r.out, name), binary, plugin); err != nil {
		return err
	}

	r.files = append(r.files, name)

	return nil
}

// pack writes an archive that holds a plugin under its name, and no time, so that the same plugin is the same archive.
func pack(archive, name, plugin string) (err error) {
	from, err := os.Open(plugin)
	if err != nil {
		return err
	}
	defer from.Close()

	about, err := from.Stat()
	if err != nil {
		return err
	}

	to, err := os.Create(archive)
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, to.Close()) }()

	compressed := gzip.NewWriter(to)
	files := tar.NewWriter(compressed)

	if err := files.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: about.Size()}); err != nil {
		return err
	}

	if _, err := io.Copy(files, from); err != nil {
		return err
	}

	return errors.Join(files.Close(), compressed.Close())
}

// finish adds the pages for the registry, and the checksums of all.
func (r *release) finish() error {
	pages := filepath.Join(r.project, "stacks/provider/docs")

	if err := fs.WalkDir(os.DirFS(pages), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}

		text, err := os.ReadFile(filepath.Join(pages, path))
		if err != nil {
			return err
		}

		return r.write(filepath.Join("docs", path), text)
	}); err != nil {
		return err
	}

	var sums strings.Builder

	for _, name := range r.files {
		sum, err := sumOf(filepath.Join(r.out, name))
		if err != nil {
			return err
		}

		fmt.Fprintf(&sums, "%x  %s\n", sum, filepath.ToSlash(name))
	}

	return r.write(fmt.Sprintf("pulumi-%s_%s_checksums.txt", r.name, r.version), []byte(sums.String()))
}

func sumOf(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()

	sum := sha256.New()
	_, err = io.Copy(sum, file)

	return sum.Sum(nil), err
}

// write adds a file to the release.
func (r *release) write(name string, text []byte) error {
	path := filepath.Join(r.out, name)

	r.files = append(r.files, name)

	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, text, 0o644)) //nolint:gosec // as above
}
