package talosapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/siderolabs/talos/pkg/machinery/client"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"talos-proxmox/components/wait"
)

// probe asks one control plane, step by step, how far it has come.
type probe struct {
	target Target
	api    *client.Client
	// kubernetes is made from the node's own kubeconfig as soon as there is one.
	kubernetes *http.Client
}

// probes asks several control planes at the same time.
type probes []*probe

func open(ctx context.Context, nodes []Target, c Credentials) (probes, error) {
	ps := make(probes, 0, len(nodes))

	for _, t := range nodes {
		api, err := dial(ctx, t, c)
		if err != nil {
			ps.close()

			return nil, err
		}

		ps = append(ps, &probe{target: t, api: api})
	}

	return ps, nil
}

func (ps probes) close() {
	for _, p := range ps {
		_ = p.api.Close() // nothing is left to be written
	}
}

// missing says what the nodes still lack, in one line and in a steady order.
func (ps probes) missing(ctx context.Context) error {
	answers := make([]error, len(ps))

	var asked sync.WaitGroup
	for i, p := range ps {
		asked.Go(func() { answers[i] = p.missing(ctx) })
	}

	asked.Wait()

	if err := errors.Join(answers...); err != nil {
		return wait.For("%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}

	return nil
}

// missing says what the node still lacks.
func (p *probe) missing(ctx context.Context) error {
	found, err := services(ctx, p.api)
	if err != nil {
		return wait.For("%s: the Talos API (%s)", p.target.Name, brief(err))
	}

	for _, name := range []string{"etcd", "kubelet"} {
		if s := found[name]; !s.up() {
			return wait.For("%s: %s (%s)", p.target.Name, name, s)
		}
	}

	if err := p.ready(ctx); err != nil {
		return wait.For("%s: the Kubernetes API server (%s)", p.target.Name, wait.Reason(err))
	}

	return nil
}

// ready asks the API server of this very node, whatever the cluster's endpoint is.
func (p *probe) ready(ctx context.Context) error {
	if p.kubernetes == nil {
		raw, err := p.api.Kubeconfig(ctx)
		if err != nil {
			return fmt.Errorf("no kubeconfig yet: %s", brief(err)) // its words are enough
		}

		config, err := clientcmd.RESTConfigFromKubeConfig(raw)
		if err != nil {
			return err
		}

		if p.kubernetes, err = rest.HTTPClientFor(config); err != nil {
			return err
		}
	}

	ready := url.URL{Scheme: "https", Host: net.JoinHostPort(p.target.Address, "6443"), Path: "/readyz"}

	request, err := http.NewRequestWithContext(ctx, http.MethodGet, ready.String(), nil)
	if err != nil {
		return err
	}

	response, err := p.kubernetes.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()

	if response.StatusCode == http.StatusOK {
		return nil
	}

	body, _ := io.ReadAll(io.LimitReader(response.Body, 200)) // the status says enough

	return fmt.Errorf("%s %s", response.Status, strings.Join(strings.Fields(string(body)), " "))
}

// service is one Talos service, as far as it is waited for: those that are have a health check.
type service struct {
	state   string
	healthy bool
}

func (s service) up() bool { return s.state == "Running" && s.healthy }

// String is what a service does that is not up.
func (s service) String() string {
	if s.state == "Running" {
		return "running, not healthy yet"
	}

	return orNot(s.state)
}

// services lists the services of the node that api is connected to.
func services(ctx context.Context, api *client.Client) (map[string]service, error) {
	reply, err := api.ServiceList(ctx)
	if err != nil {
		return nil, err
	}

	found := map[string]service{}

	for _, message := range reply.GetMessages() {
		for _, s := range message.GetServices() {
			h := s.GetHealth()
			found[s.GetId()] = service{state: s.GetState(), healthy: h.GetHealthy() && !h.GetUnknown()}
		}
	}

	return found, nil
}

func orNot(state string) string {
	if state == "" {
		return "not started yet"
	}

	return strings.ToLower(state)
}
