// Package proxmoxapi is what the program asks of Proxmox VE directly, beside the provider: looking things up before
// anything is registered. It reads only.
package proxmoxapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/luthermonson/go-proxmox"
)

// Access is where Proxmox VE is and how to log in: with an API token, or with a user name and a password.
type Access struct {
	// Endpoint is "https://host:8006"; a path is dropped.
	Endpoint string
	// Insecure accepts any server certificate.
	Insecure bool
	// TokenID is "user@realm!name".
	TokenID, TokenSecret string
	// Username is "user@realm".
	Username, Password string
}

// VM is a virtual machine, a template or a container: whatever has a VMID.
type VM struct {
	ID        int
	Name      string
	Host      string
	Template  bool
	Container bool
	Tags      []string
}

// Errors that callers tell apart.
var (
	// ErrUnreachable means that nothing answered, so nothing is known.
	ErrUnreachable = errors.New("cannot be reached")
	// ErrRefused means that the credentials are wrong or may not do what was asked.
	ErrRefused = errors.New("refuses the credentials")
	// ErrUntrusted means that this machine does not trust the server's certificate.
	ErrUntrusted = errors.New("shows a certificate that this machine does not trust")
)

// Client asks one Proxmox VE cluster.
type Client struct {
	endpoint string
	api      *proxmox.Client
}

// requestTimeout bounds each request: look-ups are small, and a preview must not hang on a host that is down.
const requestTimeout = 10 * time.Second

// New returns a client. It makes no connection.
func New(a Access) (*Client, error) {
	u, err := url.Parse(a.Endpoint)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("the Proxmox VE endpoint %q is no URL", a.Endpoint)
	}

	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: a.Insecure, //nolint:gosec // the operator's explicit choice
	}

	login := proxmox.WithAPIToken(a.TokenID, a.TokenSecret)
	if a.TokenID == "" {
		login = proxmox.WithCredentials(&proxmox.Credentials{Username: a.Username, Password: a.Password})
	}

	return &Client{
		endpoint: "https://" + u.Host,
		api: proxmox.NewClient("https://"+u.Host+"/api2/json", login,
			proxmox.WithHTTPClient(&http.Client{Transport: transport, Timeout: requestTimeout})),
	}, nil
}

// VMs lists everything with a VMID that the credentials may see.
func (c *Client) VMs(ctx context.Context) ([]VM, error) {
	var resources proxmox.ClusterResources
	if err := c.get(ctx, "/cluster/resources?type=vm", &resources); err != nil {
		return nil, err
	}

	var found []VM

	for _, r := range resources {
		found = append(found, VM{
			ID: int(r.VMID), Name: r.Name, Host: r.Node, Template: r.Template == 1, Container: r.Type == "lxc",
			Tags: strings.FieldsFunc(r.Tags, func(c rune) bool { return c == ';' || c == ',' || c == ' ' }),
		})
	}

	return found, nil
}

var (
	diskKey  = regexp.MustCompile(`^(scsi|virtio|sata|ide)\d+$`)
	diskSize = regexp.MustCompile(`(?:^|,)size=(\d+)([MGT])(?:,|$)`)
)

// Disks returns the disks of a VM by position, with their size in GiB, rounded up; 0 means that Proxmox does not say.
func (c *Client) Disks(ctx context.Context, vm VM) (map[string]int, error) {
	var config map[string]any
	if err := c.get(ctx, fmt.Sprintf("/nodes/%s/qemu/%d/config", vm.Host, vm.ID), &config); err != nil {
		return nil, err
	}

	disks := map[string]int{}

	for key, value := range config {
		text, ok := value.(string)
		if !ok || !diskKey.MatchString(key) || strings.Contains(text, "media=cdrom") {
			continue
		}

		disks[key] = 0

		if m := diskSize.FindStringSubmatch(text); m != nil {
			n, _ := strconv.Atoi(m[1]) // digits, by the pattern

			switch m[2] {
			case "M":
				n = (n + 1023) / 1024
			case "T":
				n *= 1024
			}

			disks[key] = n
		}
	}

	return disks, nil
}

// get asks and tells apart what callers must tell apart. Credentials never reach the message.
func (c *Client) get(ctx context.Context, path string, into any) error {
	err := c.api.Get(ctx, path, into)

	var (
		transport   *url.Error
		certificate *tls.CertificateVerificationError
	)

	switch {
	case err == nil:
		return nil
	case errors.Is(err, proxmox.ErrNotAuthorized):
		return fmt.Errorf("Proxmox VE at %s %w (GET %s)", c.endpoint, ErrRefused, path)
	case errors.As(err, &certificate):
		return fmt.Errorf("Proxmox VE at %s %w: %w", c.endpoint, ErrUntrusted, certificate.Err)
	case errors.As(err, &transport):
		return fmt.Errorf("Proxmox VE at %s %w: %w", c.endpoint, ErrUnreachable, transport.Err)
	default:
		return fmt.Errorf("Proxmox VE at %s answers GET %s with: %w", c.endpoint, path, err)
	}
}
