// Package talosapi is what the program asks of Talos nodes directly, not through the provider: whether a node answers,
// whether a control plane is up. It speaks the Talos API with the cluster's own credentials.
package talosapi

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"talos-proxmox/components/wait"
)

// Credentials are those of a talosconfig: PEM in base64.
type Credentials struct {
	CA, Certificate, Key string
}

// CAFingerprint is the SHA-256 of the certificate of the Talos API CA, in hexadecimal digits. No other cluster has it.
func (c Credentials) CAFingerprint() (string, error) {
	text, err := base64.StdEncoding.DecodeString(c.CA)
	if err != nil {
		return "", fmt.Errorf("the certificate of the Talos API CA is not in base64: %w", err)
	}

	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return "", errors.New("the CA of the Talos API is not a certificate in PEM")
	}

	sum := sha256.Sum256(block.Bytes)

	return hex.EncodeToString(sum[:]), nil
}

// Target is a node as it is addressed and named in messages.
type Target struct {
	Name    string
	Address string
	// UUID is the SMBIOS UUID of the node's VM. A machine that shows another one is asked for nothing, for its certificate
	// says only that it is a node of the cluster. Empty: it is not compared.
	UUID string
}

// MachineUUID is the SMBIOS UUID that a node shows.
func MachineUUID(ctx context.Context, t Target, c Credentials) (uuid string, err error) {
	err = with(ctx, t, c, func(ctx context.Context, api *client.Client) (err error) {
		uuid, err = machineUUID(ctx, api)

		return err
	})
	if err != nil {
		return "", errors.New(brief(err))
	}

	return uuid, nil
}

func machineUUID(ctx context.Context, api *client.Client) (string, error) {
	shown, err := safe.StateGetByID[*hardware.SystemInformation](ctx, api.COSI, hardware.SystemInformationID)
	if err != nil {
		return "", err
	}

	return shown.TypedSpec().UUID, nil
}

// checkMachine compares the machine that answers with the node that is meant, on the connection that is used next.
func checkMachine(ctx context.Context, api *client.Client, t Target) error {
	if t.UUID == "" {
		return nil
	}

	uuid, err := machineUUID(ctx, api)
	if err != nil {
		return err
	}

	if !strings.EqualFold(uuid, t.UUID) {
		return fmt.Errorf("another node of the cluster answers at %s: it shows SMBIOS UUID %q, and %s has %s", t.Address,
			uuid, t.Name, t.UUID)
	}

	return nil
}

// dial opens a connection to one node, with the cluster's credentials. No connection is made before the first call.
func dial(ctx context.Context, t Target, c Credentials) (*client.Client, error) {
	api, err := client.New(ctx, client.WithEndpoints(t.Address), client.WithConfigContext(&clientconfig.Context{
		CA: c.CA, Crt: c.Certificate, Key: c.Key,
	}), client.WithGRPCDialOptions(grpc.WithConnectParams(reconnect)))
	if err != nil {
		return nil, fmt.Errorf("connecting to %s (%s): %w", t.Name, t.Address, err)
	}

	return api, nil
}

// reconnect has a connection that failed be tried again for each question. Left to itself it would wait longer each
// time, up to two minutes, and a node that is back would not be noticed.
var reconnect = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: wait.PollInterval / 2, Multiplier: 1, MaxDelay: wait.PollInterval / 2},
	MinConnectTimeout: wait.RequestTimeout,
}

// answers makes a TLS handshake with the node's API port. Both a node that waits for its configuration and one that
// runs answer it, and neither needs credentials for it.
func answers(ctx context.Context, t Target) error {
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}} //nolint:gosec // nothing is sent

	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(t.Address, fmt.Sprint(constants.ApidPort)))
	if err != nil {
		// A running node asks for a client certificate and refuses the handshake without one: it does answer.
		var alert tls.AlertError
		if errors.As(err, &alert) {
			return nil
		}

		return err
	}

	return conn.Close()
}

// with asks one node something, within the bound of one question.
func with(ctx context.Context, t Target, c Credentials, ask func(context.Context, *client.Client) error) error {
	return within(ctx, wait.RequestTimeout, t, c, ask)
}

// within asks one node something that may take longer.
func within(ctx context.Context, bound time.Duration, t Target, c Credentials,
	ask func(context.Context, *client.Client) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()

	api, err := dial(ctx, t, c)
	if err != nil {
		return err
	}
	defer api.Close() // nothing is left to be written

	if err := checkMachine(ctx, api, t); err != nil {
		return err
	}

	return ask(ctx, api)
}
