package rules

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"talos-proxmox/components/tokens"
)

func versionRules(b *builder) []Rule {
	return []Rule{
		perResource(b, Rule{
			Name: "pinned-versions",
			Must: "Versions of Talos and Kubernetes, and of the container images that machine configuration names, " +
				"must be exact.",
			Remedy: "Use the full version, such as v1.12.4, or the digest of an image.",
		}, except{}, pinnedVersions),
		perResource(b, Rule{
			Name:   "pinned-images",
			Must:   "Boot images must have a fixed version: the same URL must not return a different image later.",
			Remedy: "Name the version in the URL and in the file's name, or set a checksum.",
		}, imageSettings{}, pinnedImages),
	}
}

var (
	exactVersion = regexp.MustCompile(`^v?\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)
	// contractVersion is what machine secrets are made for; the patch does not matter there.
	contractVersion = regexp.MustCompile(`^v?\d+\.\d+(\.\d+(-[0-9A-Za-z.-]+)?)?$`)
	versionInside   = regexp.MustCompile(`\d+\.\d+\.\d+`)
	moving          = regexp.MustCompile(`(?i)(^|[^a-z0-9])(latest|current|stable|nightly|main|master)([^a-z0-9]|$)`)
)

func pinnedVersions(_ except, r Resource) []Finding {
	var found []Finding

	exact := func(key string, form *regexp.Regexp, remedy string) {
		if v := r.at(key); known(v) && !form.MatchString(text(v)) {
			found = append(found, r.finding(key, "must be an exact version", text(v), remedy))
		}
	}

	switch r.Type {
	case tokens.TalosCluster:
		exact("talosVersion", exactVersion, "write it like v1.12.4")

		// Empty where the cluster is bootstrapped by others. The property is there all the same.
		if v := r.at("kubernetesVersion"); v.IsNull() || text(v) != "" {
			exact("kubernetesVersion", exactVersion, "write it like v1.34.2")
		}
	case tokens.Secrets:
		exact("talosVersion", contractVersion, "set the version that the cluster begins with")
	case tokens.Configuration:
		paths := [][]any{{"machineConfigurationInput"}}
		for i := range list(r.at("configPatches")) {
			paths = append(paths, []any{"configPatches", i})
		}

		for _, path := range paths {
			for _, image := range movingImages(text(r.at(path...))) {
				found = append(found, r.finding(fmt.Sprint(path[0]), "must name images with an exact tag or a digest", image,
					"add the version after a colon"))
			}
		}
	}

	return found
}

// movingImages are the images of a machine configuration or a patch whose tag may mean another image tomorrow.
func movingImages(documents string) []string {
	var found []string

	for d := yaml.NewDecoder(strings.NewReader(documents)); ; {
		var document any
		if err := d.Decode(&document); errors.Is(err, io.EOF) {
			return found
		} else if err != nil {
			return found // the provider reports what is no YAML
		}

		found = append(found, movingImagesIn(document)...)
	}
}

func movingImagesIn(v any) []string {
	var found []string

	switch v := v.(type) {
	case map[string]any:
		for _, key := range sortedKeys(v) {
			if image, ok := v[key].(string); ok && key == "image" && image != "" && !pinned(image) {
				found = append(found, image)
			}

			found = append(found, movingImagesIn(v[key])...)
		}
	case []any:
		for _, item := range v {
			found = append(found, movingImagesIn(item)...)
		}
	}

	return found
}

// pinned says whether a container image has a digest or a tag that does not move.
func pinned(image string) bool {
	if strings.Contains(image, "@sha256:") {
		return true
	}

	_, tag, ok := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")

	return ok && tag != "" && !moving.MatchString(tag)
}

type imageSettings struct {
	except
	RequireChecksum bool `json:"requireChecksum" jsonschema_description:"Accept downloads only with a checksum, whatever their address says."`
}

func pinnedImages(s imageSettings, r Resource) []Finding {
	var found []Finding

	download := func(path, address, checksum string) {
		switch {
		case address == "" || checksum != "":
		case s.RequireChecksum:
			found = append(found, r.finding(path, "must have a checksum", redacted(address), "set the checksum of the file"))
		case moving.MatchString(address) || !versionInside.MatchString(address):
			found = append(found, r.finding(path, "must name a version", redacted(address),
				"choose the address of one version, or set the file's checksum"))
		}
	}

	volume := func(path, id string) {
		if moving.MatchString(id) {
			found = append(found, r.finding(path, "must name the file of one version", id,
				"name the version in the file's name"))
		}
	}

	switch r.Type {
	case tokens.Download:
		download("url", text(r.at("url")), text(r.at("checksum")))
	case tokens.File:
		if source := text(r.at("sourceFile", "path")); strings.Contains(source, "://") {
			download("sourceFile.path", source, text(r.at("sourceFile", "checksum")))
		}
	case tokens.VM:
		volume("cdrom.fileId", text(r.at("cdrom", "fileId")))

		for i, disk := range list(r.at("disks")) {
			volume(fmt.Sprintf("disks[%d].fileId", i), text(at(disk, "fileId")))
		}
	}

	return found
}

// redacted is an address without the password that may stand in it.
func redacted(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}

	return u.Redacted()
}
