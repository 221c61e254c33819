package planner

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"go.yaml.in/yaml/v3"

	"talos-proxmox/components/planner/checks"
	"talos-proxmox/components/spec"
)

// oldNames is the kernel argument that makes Linux call network interfaces eth0 and so on.
const oldNames = "net.ifnames=0"

// inMeta says whether the image of each node holds its address.
func (r *resolver) inMeta() bool {
	s := r.Spec

	return s.Image.Source == spec.SourceFactory && s.Image.Platform == spec.PlatformMetal &&
		s.Network.Addressing == spec.AddressingStatic
}

// checkKernelArgs quotes the argument that is wrong, and none that is next to it: that may be a token.
func (r *resolver) checkKernelArgs(path string, args []string) {
	for i, arg := range args {
		fields := strings.Fields(arg)
		renames := slices.IndexFunc(fields,
			func(f string) bool { return strings.HasPrefix(f, "net.ifnames=") && f != oldNames })

		switch {
		case len(fields) == 0:
			r.Problems.Add(checks.At(path, i), "must be a kernel argument", arg, "write it like console=ttyS0, or leave it out")
		case r.inMeta() && renames >= 0:
			r.Problems.Add(checks.At(path, i),
				"must not rename the network interface eth0, because the address in the image is for that name",
				fields[renames], "leave it out")
		case r.Spec.Cluster.Bootstrap != spec.BootstrapExternal:
			r.checkConfigurationArgs(checks.At(path, i), fields)
		}
	}
}

// checkConfigurationArgs: a node that has its configuration from kernel arguments never waits for ours. They may hold
// credentials.
func (r *resolver) checkConfigurationArgs(path string, args []string) {
	for _, arg := range args {
		name, value, given := strings.Cut(arg, "=")
		rule := ""

		switch {
		case !given:
		case name == constants.KernelParamConfig:
			rule = "makes the node fetch a machine configuration, and this program sends one"
		case name == constants.KernelParamConfigInline || name == constants.KernelParamConfigEarly:
			if completeConfiguration(value) {
				rule = "gives the node a machine configuration, and this program sends one"
			}
		}

		if rule != "" {
			r.Problems.Add(path, rule, name+"=...", "leave it out, or set cluster.bootstrap to external")

			return
		}
	}
}

// completeConfiguration says that Talos boots with the configuration in a kernel argument, or fails at it. With parts
// of one, such as the alias of a link, it waits for the rest as without: what is complete holds a document without a
// kind.
func completeConfiguration(value string) bool {
	packed, err := base64.StdEncoding.DecodeString(value)
	if err != nil {
		return true
	}

	reader, err := zstd.NewReader(bytes.NewReader(packed), zstd.WithDecoderMaxMemory(maxConfiguration))
	if err != nil {
		return true
	}
	defer reader.Close()

	for documents := yaml.NewDecoder(io.LimitReader(reader, maxConfiguration)); ; {
		var document map[string]any

		switch err := documents.Decode(&document); {
		case errors.Is(err, io.EOF):
			return false
		case err != nil || document != nil && document["kind"] == nil:
			return true
		}
	}
}

// maxConfiguration is more than the kernel takes for all of its arguments.
const maxConfiguration = 1 << 20

// oldLink is how Linux calls a link with net.ifnames=0.
var oldLink = regexp.MustCompile(`^eth[0-9]+$`)

// checkKubeVIPLink: kube-vip ends where no link has the name that it is told. Talos gives its images for nocloud
// net.ifnames=0, and the program those that hold addresses. With it, a link keeps its other names as alternatives. What
// is in a template or an ISO file is not known.
func (r *resolver) checkKubeVIPLink() {
	link := r.Spec.Cluster.Endpoint.Interface
	if r.IsK3s() || r.Spec.Cluster.Endpoint.Mode != spec.EndpointKubeVIP || !oldLink.MatchString(link) ||
		r.Spec.Cluster.Bootstrap == spec.BootstrapExternal || r.Spec.Image.Source != spec.SourceFactory ||
		r.Spec.Image.Platform != spec.PlatformMetal {
		return
	}

	for _, p := range r.pools {
		if p.Role == spec.RoleControlPlane && !r.patchesLink(p, link) && !hasOldNames(p) {
			r.addProblemOnce("cluster.endpoint.interface", "is not a link of the image: without net.ifnames=0, Talos calls "+
				"links ens18, enp6s18 and so on", link, "set the name of a control plane's link, as talosctl get links shows it, "+
				"or add net.ifnames=0 to the kernel arguments of the image")
		}
	}
}

// hasOldNames says whether Linux calls the links of a pool's nodes eth0 and so on, as the kernel arguments of their
// image for metal say.
func hasOldNames(p *pool) bool {
	old := false

	for _, arg := range strings.Fields(strings.Join(p.planned.Image.KernelArgs, " ")) {
		if strings.HasPrefix(arg, "net.ifnames=") {
			old = arg == oldNames
		}
	}

	return old
}

// patchesLink says whether a patch may give a link its name.
func (r *resolver) patchesLink(p *pool, link string) bool {
	all := slices.Concat(r.Spec.Cluster.Patches, p.Patches)
	for _, m := range p.members {
		all = append(all, m.Patches...)
	}

	return slices.ContainsFunc(all, func(p spec.Patch) bool {
		return strings.Contains(p.Text, link) || strings.Contains(p.Text, "net.ifnames")
	})
}
