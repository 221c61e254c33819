package talos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"talos-proxmox/tests/lab/journal"
)

// manifestRetry is how soon a manifest is asked for again that did not come, at first; each time it takes twice as
// long.
const (
	manifestRetry    = 2 * time.Second
	manifestRetryMax = time.Minute
)

// maxManifest is more than any manifest has.
const maxManifest = 16 << 20

// fetchManifests fetches the manifests that the configuration names, until each is there (Talos:
// controllers/k8s/extra_manifest.go). What a lab's node reaches is on loopback: of anything else it says that it failed.
func (n *node) fetchManifests(ctx context.Context) {
	for delay := manifestRetry; ; {
		changed, urls := n.kick.next(), n.manifestURLs()

		if !n.fetchMissing(ctx, urls) {
			if !await(ctx, changed, false) {
				return
			}

			delay = manifestRetry

			continue
		}

		// What the node does besides is no reason to ask sooner.
		if !pause(ctx, delay) {
			return
		}

		delay = min(2*delay, manifestRetryMax)
	}
}

func (n *node) manifestURLs() []string { return clusterOf(n.config()).ExtraManifestURLs() }

// fetchMissing asks for all that is not there, and returns whether some still is not.
func (n *node) fetchMissing(ctx context.Context, urls []string) (missing bool) {
	for _, address := range urls {
		n.mu.Lock()
		_, there := n.fetched[address]
		n.mu.Unlock()

		if there {
			continue
		}

		m, err := n.fetchManifest(ctx, address)
		if err != nil {
			missing = true

			n.sys.log(`controller failed {"controller": "k8s.ExtraManifestController", "error": %q}`,
				fmt.Sprintf("error downloading %q: %v", address, err))

			continue
		}

		m.name = address

		n.mu.Lock()
		if n.fetched == nil {
			n.fetched = map[string]inlineManifest{}
		}

		n.fetched[address] = m
		n.mu.Unlock()
		n.kick.notify()
	}

	return missing
}

func (n *node) fetchManifest(ctx context.Context, address string) (inlineManifest, error) {
	u, err := url.Parse(address)
	if err != nil {
		return inlineManifest{}, err
	}

	face := journal.Guest
	if strings.HasSuffix(u.Hostname(), ".lan") {
		face = journal.Mirror
	}

	if fault := n.fw.opts.Journal.Enter(face, n.hw.Name, "GET "+address); fault != nil && fault.Kind != journal.Interfere {
		return inlineManifest{}, errors.New(fault.Message)
	}

	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return inlineManifest{}, err
	}

	for name, value := range clusterOf(n.config()).ExtraManifestHeaderMap() {
		request.Header.Set(name, value)
	}

	transport := &http.Transport{DialContext: onLoopback}
	defer transport.CloseIdleConnections()

	response, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).Do(request)
	if err != nil {
		return inlineManifest{}, err
	}
	defer response.Body.Close()

	if response.StatusCode != http.StatusOK {
		return inlineManifest{}, fmt.Errorf("bad response code: %d", response.StatusCode)
	}

	text, err := io.ReadAll(io.LimitReader(response.Body, maxManifest))
	if err != nil {
		return inlineManifest{}, err
	}

	return decodeManifest(string(text))
}

// onLoopback connects to addresses of loopback, and to nothing else.
func onLoopback(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, _ := net.SplitHostPort(address)
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}

	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// extraManifests are those that came, in the order of the configuration.
func (n *node) extraManifests() []inlineManifest {
	var found []inlineManifest

	urls := n.manifestURLs()

	n.mu.Lock()
	defer n.mu.Unlock()

	for _, address := range urls {
		if m, there := n.fetched[address]; there {
			found = append(found, m)
		}
	}

	return found
}
