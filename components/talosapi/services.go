package talosapi

import (
	"context"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/client"
)

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
