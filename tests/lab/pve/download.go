package pve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"talos-proxmox/tests/lab/world"
)

var webURL = regexp.MustCompile(`^https?://.*`)

// address checks the URL that a host is to look at, and whether the caller may let it.
func (r *request) address() (*url.URL, error) {
	u, err := url.Parse(r.values.Get("url"))
	if err != nil || !webURL.MatchString(r.values.Get("url")) {
		return nil, world.Invalid("url", "value does not match the regex pattern")
	}

	return u, r.world.MayQueryURLs(r.caller, r.vars["node"])
}

// web is the client of a host. No host of the lab reaches further than loopback: for it there is nothing else.
func (r *request) web() *http.Client {
	insecure := r.values.Has("verify-certificates") && !r.values.isSet("verify-certificates")

	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, DisableCompression: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: insecure}, //nolint:gosec // only if the client says so
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			host, _, _ := net.SplitHostPort(address)
			if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
				return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
			}

			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
	}}
}

// trouble is what stood between a host and a server: in the words of Perl's LWP, and the last line that wget prints.
// Both are empty when the connection broke, after which wget begins again.
func trouble(err error, at *url.URL) (lwp, wget string) {
	var (
		dns  *net.DNSError
		cert *tls.CertificateVerificationError
	)

	switch {
	case errors.As(err, &dns):
		return "Name or service not known", fmt.Sprintf("wget: unable to resolve host address ‘%s’", at.Hostname())
	case errors.As(err, &cert):
		return "certificate verify failed", fmt.Sprintf("To connect to %s insecurely, use `--no-check-certificate'.",
			at.Hostname())
	case errors.Is(err, syscall.ECONNREFUSED):
		return "Connection refused", fmt.Sprintf("Connecting to %s... failed: Connection refused.", hostPort(at))
	default:
		return "", ""
	}
}

// queryURLMetadata asks a server what it has at a URL (pve-manager: Nodes.pm).
func queryURLMetadata(r *request) (any, error) {
	address, err := r.address()
	if err != nil {
		return nil, err
	}

	response, err := r.web().Head(address.String()) //nolint:noctx // a host does not give up because its client did
	if err != nil {
		status := "500 Server closed connection without sending any data back"
		if why, _ := trouble(err, address); why != "" {
			status = fmt.Sprintf("500 Can't connect to %s (%s)", hostPort(address), why)
		}

		return nil, invalidResponse(status)
	}
	defer response.Body.Close()

	if response.StatusCode != http.StatusOK {
		return nil, invalidResponse(response.Status)
	}

	out := map[string]any{}

	if response.ContentLength > 0 {
		out["size"] = response.ContentLength
	}

	kind, _, _ := strings.Cut(response.Header.Get("Content-Type"), ";")
	optional(out, "mimetype", kind)
	optional(out, "filename", fileName(response, address))

	return out, nil
}

func invalidResponse(status string) error {
	return &world.Error{Code: http.StatusInternalServerError, Reason: "invalid server response: '" + status + "'"}
}

func hostPort(u *url.URL) string {
	if u.Port() != "" {
		return u.Host
	}

	return u.Hostname() + map[string]string{"http": ":80", "https": ":443"}[u.Scheme]
}

var disposition = regexp.MustCompile(`filename="([^"]*)"|filename=([^;]*)`)

func fileName(response *http.Response, address *url.URL) string {
	if m := disposition.FindStringSubmatch(response.Header.Get("Content-Disposition")); m != nil {
		return m[1] + m[2]
	}

	if strings.HasSuffix(address.Path, "/") || address.Path == "" {
		return ""
	}

	return path.Base(address.Path)
}

// downloadURL lets the host fetch a file onto a storage.
func downloadURL(r *request) (any, error) {
	address, err := r.address()
	if err != nil {
		return nil, err
	}

	for name, allowed := range map[string][]string{
		"content":            uploadable,
		"checksum-algorithm": world.Algorithms,
	} {
		if v := r.values.Get(name); v != "" && !slices.Contains(allowed, v) {
			return nil, world.Invalid(name, "value '%s' does not have a value in the enumeration '%s'", v,
				strings.Join(allowed, ", "))
		}
	}

	for name, other := range map[string]string{"checksum": "checksum-algorithm", "checksum-algorithm": "checksum"} {
		if r.values.Has(name) && !r.values.Has(other) {
			why := "missing property - '%s' requires this property"
			if r.world.Version().Major() > 8 {
				why = "missing property required by '%s'"
			}

			return nil, world.Invalid(other, why, name)
		}
	}

	client := r.web()

	return r.world.Download(r.caller, r.vars["node"], r.vars["storage"], world.DownloadRequest{
		URL: address.String(), Content: r.values.Get("content"), Filename: r.values.Get("filename"),
		Checksum: r.values.Get("checksum"), Algorithm: r.values.Get("checksum-algorithm"),
		Compression: r.values.Get("compression"),
		Fetch: func(ctx context.Context) (io.ReadCloser, error) {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
			if err != nil {
				return nil, err
			}

			response, err := client.Do(request)
			if err != nil {
				if _, last := trouble(err, address); last != "" {
					return nil, errors.New(last)
				}

				return nil, io.ErrUnexpectedEOF
			}

			if response.StatusCode != http.StatusOK {
				_ = response.Body.Close()

				return nil, errors.New("exit code 8")
			}

			return response.Body, nil
		},
	})
}
