package engine

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// cliReleases is where Pulumi releases its CLI, below its versions. (A variable for the tests.)
var cliReleases = "https://github.com/pulumi/pulumi/releases/download/"

// refused says whether, within the last day, something could not be had from the network.
func (b *builder) refused(what string) error {
	info, err := os.Stat(filepath.Join(b.cache, what+"-refused"))
	if err != nil || time.Since(info.ModTime()) >= refusedFor {
		return nil
	}
	return fmt.Errorf("could not be fetched at %s (asked again from %s)", info.ModTime().Format(time.DateTime),
		info.ModTime().Add(refusedFor).Format(time.DateTime))
}

// remember notes that something could not be had, so that not every run asks again. It returns the error.
func (b *builder) remember(what string, err error) error {
	return errors.Join(err, os.WriteFile(filepath.Join(b.cache, what+"-refused"), []byte(err.Error()+"\n"), 0o644))
}

// fetchCLI downloads the released CLI of a version, which brings its language hosts along, and returns its directory.
func (b *builder) fetchCLI(ctx context.Context, version string) (string, error) {
	const name = "released-cli"
	root := filepath.Join(b.cache, name+"-"+version)
	if b.have(root) {
		return root, nil
	}
	if err := b.refused(name); err != nil {
		return "", err
	}
	what := "the released pulumi CLI " + version
	unlock, err := b.lock(ctx, name, what)
	if err != nil {
		return "", err
	}
	defer unlock()
	if b.have(root) { // another process was faster
		return root, nil
	}
	err = reach(ctx, cliReleases)
	if err == nil {
		stop := b.report("downloading "+what, "downloading")
		err = b.install(ctx, version, root)
		stop()
	}
	if err != nil && ctx.Err() == nil {
		err = b.remember(name, err)
	}
	return root, err
}

// report says that something begins which takes a while, and goes on saying so until the function it returns is called.
func (b *builder) report(begins, goesOn string) (stop func()) {
	started := time.Now()
	fmt.Fprintf(b.log, "%s: once, then it is in %s\n", begins, b.cache)
	return every(progressInterval, func() {
		fmt.Fprintf(b.log, "  %4.0f s: %s\n", time.Since(started).Seconds(), goesOn)
	})
}

// install puts a released CLI into a directory, if it has the checksum that its release names.
func (b *builder) install(ctx context.Context, version, root string) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	tmp, err := os.MkdirTemp(b.cache, "released-cli"+temporary)
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)

	arch := strings.Replace(runtime.GOARCH, "amd64", "x64", 1)
	archive := fmt.Sprintf("pulumi-v%s-%s-%s.tar.gz", version, runtime.GOOS, arch)
	sum, err := checksum(ctx, cliReleases+"v"+version+"/pulumi-"+version+"-checksums.txt", archive)
	if err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(tmp, archive))
	if err != nil {
		return err
	}
	defer file.Close()
	body, err := get(ctx, cliReleases+"v"+version+"/"+archive)
	if err != nil {
		return err
	}
	defer body.Close()
	hash := sha256.New()
	if _, err := io.Copy(io.MultiWriter(file, hash), body); err != nil {
		return err
	}
	if found := hex.EncodeToString(hash.Sum(nil)); found != sum {
		return fmt.Errorf("%s has the checksum %s, and its release says %s", archive, found, sum)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := unpack(file, filepath.Join(tmp, "cli", "bin")); err != nil {
		return err
	}
	return os.Rename(filepath.Join(tmp, "cli"), root)
}

// checksum is that of a file, from a list of a release.
func checksum(ctx context.Context, list, file string) (string, error) {
	body, err := get(ctx, list)
	if err != nil {
		return "", err
	}
	defer body.Close()
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) == 2 && fields[1] == file {
			return fields[0], nil
		}
	}
	return "", errors.Join(lines.Err(), fmt.Errorf("%s has no checksum of %s", list, file))
}

func get(ctx context.Context, url string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("%s: %s", url, resp.Status)
	}
	return resp.Body, nil
}

// unpack puts the executables of a release's archive, which lie in one directory, into dir.
func unpack(archive io.Reader, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	plain, err := gzip.NewReader(archive)
	if err != nil {
		return err
	}
	for files := tar.NewReader(plain); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		out, err := os.OpenFile(filepath.Join(dir, path.Base(header.Name)), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, files) // of the checksum that was compared
		if err = errors.Join(err, out.Close()); err != nil {
			return err
		}
	}
}
