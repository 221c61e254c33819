package pve

import (
	"net/url"
	"strings"

	"talos-proxmox/tests/lab/recording"
	"talos-proxmox/tests/lab/world"
)

// route is one call of the API.
type route struct {
	method string
	// path has variables in braces; one that ends in dots takes the rest, slashes included.
	path string
	// params are the parameters besides those in the path.
	params params
	// needs is the privilege that every use of the call needs; more may be asked for when its effects are known.
	needs privilege
	// open calls need no authentication.
	open bool
	// since is the first number of the version that the call came with; 0: all have it.
	since  int
	handle func(*request) (any, error)
}

// privilege is a path, with variables, and the privileges of which one is enough. The zero value asks for none.
type privilege struct {
	path string
	any  []string
}

func need(path string, any ...string) privilege { return privilege{path, any} }

// on is the path with the call's variables and parameters in it.
func (p privilege) on(r *request) string {
	path := p.path

	for name, value := range r.vars {
		path = strings.ReplaceAll(path, "{"+name+"}", value)
	}

	for name := range r.values.Values {
		path = strings.ReplaceAll(path, "{"+name+"}", r.values.Get(name))
	}

	return path
}

// match finds the route of a call and the variables of its path.
func (s *Server) match(version world.Version, method, path string) (*route, map[string]string) {
	for i := range s.routes {
		if s.routes[i].method != method || s.routes[i].since > version.Major() {
			continue
		}

		if vars, ok := vars(s.routes[i].path, path); ok {
			return &s.routes[i], vars
		}
	}

	return nil, nil
}

// vars matches an escaped path against a pattern.
func vars(pattern, path string) (map[string]string, bool) {
	found := map[string]string{}
	want, have := strings.Split(pattern, "/"), strings.Split(path, "/")

	for i, segment := range want {
		if i >= len(have) {
			return nil, false
		}

		name, variable := strings.CutPrefix(segment, "{")
		if !variable {
			if segment != have[i] {
				return nil, false
			}

			continue
		}

		name, value := strings.TrimSuffix(name, "}"), have[i]

		name, rest := strings.CutSuffix(name, "...")
		if rest {
			value = strings.Join(have[i:], "/")
		}

		plain, err := url.PathUnescape(value)
		if err != nil || plain == "" {
			return nil, false
		}

		found[name] = plain

		if rest {
			return found, true
		}
	}

	return found, len(want) == len(have)
}

// table is every call the lab knows.
func (s *Server) table() []route {
	var all []route

	for _, part := range [][]route{
		accessRoutes(), clusterRoutes(), nodeRoutes(), qemuRoutes(), powerRoutes(), agentRoutes(), taskRoutes(),
		storageRoutes(), poolRoutes(),
		mappingRoutes(), hardwareRoutes(), haRoutes(), firewallRoutes(), ipsetRoutes(),
	} {
		all = append(all, part...)
	}

	return all
}

// recordedRoutes are the routes of which the answers of a real server are known, with the names of the parameters.
func (s *Server) recordedRoutes(version world.Version) map[string]map[string]bool {
	found := map[string]map[string]bool{}

	for _, call := range recording.Asked(string(version)) {
		route, _ := s.match(version, call.Method, call.Path)
		if route == nil {
			continue
		}

		if found[route.String()] == nil {
			found[route.String()] = map[string]bool{}
		}

		for _, name := range call.Parameters {
			found[route.String()][unnumbered(name)] = true
		}
	}

	return found
}

// unnumbered is a parameter without the number that tells it from others of its kind: net0, net1.
func unnumbered(name string) string { return strings.TrimRight(name, "0123456789") }

func (rt route) String() string { return rt.method + " " + rt.path }
