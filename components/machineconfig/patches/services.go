package patches

import (
	"fmt"
	"net/url"
	"strings"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/cri"
	"github.com/siderolabs/talos/pkg/machinery/config/types/meta"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	"github.com/siderolabs/talos/pkg/machinery/config/types/runtime"
	"github.com/siderolabs/talos/pkg/machinery/config/types/security"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"talos-proxmox/components/plan"
)

// services tells a node of the services around it: time, mirrors of registries, certificate authorities, where logs go.
// What has become a document of its own is one; the rest goes into the machine's configuration.
func services(contract *talosconfig.VersionContract, p *plan.Plan, m *v1alpha1.MachineConfig) ([]config.Document,
	error,
) {
	var docs []config.Document

	if p.TimeServers != nil {
		if contract.MultidocNetworkConfigSupported() {
			doc := network.NewTimeSyncConfigV1Alpha1()
			doc.TimeNTP = &network.NTPConfig{Servers: p.TimeServers}
			docs = append(docs, doc)
		} else {
			m.MachineTime = &v1alpha1.TimeConfig{TimeServers: p.TimeServers}
		}
	}

	if proxy := p.Proxy; proxy != nil {
		m.MachineEnv = map[string]string{"no_proxy": strings.Join(p.NoProxy, ",")}

		for name, url := range map[string]string{"http_proxy": proxy.HTTP, "https_proxy": proxy.HTTPS} {
			if url != "" {
				m.MachineEnv[name] = url
			}
		}
	}

	mirrors, err := registryMirrors(contract, p, m)
	if err != nil {
		return nil, err
	}

	docs = append(docs, mirrors...)

	if len(p.TrustedCAs) > 0 {
		doc := security.NewTrustedRootsConfigV1Alpha1()
		doc.MetaName = p.Cluster

		for _, ca := range p.TrustedCAs {
			doc.Certificates += strings.TrimSpace(ca.Text) + "\n"
		}

		docs = append(docs, doc)
	}

	logs, err := logDestinations(p, m)

	return append(docs, logs...), err
}

// registryMirrors are documents of their own since Talos 1.12, which generates such.
func registryMirrors(contract *talosconfig.VersionContract, p *plan.Plan, m *v1alpha1.MachineConfig) ([]config.Document,
	error,
) {
	var docs []config.Document

	for _, mirror := range p.Mirrors {
		if !contract.MultidocNetworkConfigSupported() {
			if m.MachineRegistries.RegistryMirrors == nil { // what older versions know
				m.MachineRegistries.RegistryMirrors = map[string]*v1alpha1.RegistryMirrorConfig{}
			}

			m.MachineRegistries.RegistryMirrors[mirror.Registry] = &v1alpha1.RegistryMirrorConfig{
				MirrorEndpoints:    mirror.Endpoints,
				MirrorOverridePath: explicit(mirror.Options.OverridePath),
				MirrorSkipFallback: explicit(mirror.Options.SkipFallback),
			}

			continue
		}

		doc := cri.NewRegistryMirrorConfigV1Alpha1(mirror.Registry)
		doc.RegistrySkipFallback = explicit(mirror.Options.SkipFallback)

		for _, endpoint := range mirror.Endpoints {
			u, err := url.Parse(endpoint)
			if err != nil {
				return nil, err
			}

			doc.RegistryEndpoints = append(doc.RegistryEndpoints, cri.RegistryEndpoint{
				EndpointURL: meta.URL{URL: u}, EndpointOverridePath: explicit(mirror.Options.OverridePath),
			})
		}

		docs = append(docs, doc)
	}

	return docs, nil
}

// explicit is nil for what is the default.
func explicit(v bool) *bool {
	if !v {
		return nil
	}

	return &v
}

func logDestinations(p *plan.Plan, m *v1alpha1.MachineConfig) ([]config.Document, error) {
	var docs []config.Document

	for _, text := range p.ServiceLogs {
		u, err := url.Parse(text)
		if err != nil {
			return nil, err
		}

		if m.MachineLogging == nil {
			m.MachineLogging = &v1alpha1.LoggingConfig{}
		}

		m.MachineLogging.LoggingDestinations = append(m.MachineLogging.LoggingDestinations, v1alpha1.LoggingDestination{
			LoggingEndpoint: &v1alpha1.Endpoint{URL: u}, LoggingFormat: constants.LoggingFormatJSONLines,
		})
	}

	for i, text := range p.KernelLogs {
		u, err := url.Parse(text)
		if err != nil {
			return nil, err
		}

		doc := runtime.NewKmsgLogV1Alpha1()
		doc.MetaName = fmt.Sprintf("%s-%d", p.Cluster, i+1)
		doc.KmsgLogURL = meta.URL{URL: u}
		docs = append(docs, doc)
	}

	return docs, nil
}
