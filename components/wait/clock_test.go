package wait

import (
	"crypto/x509"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestClock: what may come from a clock says so, and the same each time.
func TestClock(t *testing.T) {
	const clock = ": its clock or that of this machine is wrong; correct it ('date -u' shows it), then run 'pulumi up' again"

	for said, want := range map[string]string{
		"current time 2026-11-26T16:00:00Z is after 2026-11-25T16:00:00Z":  "its certificate has expired at 2026-11-25T16:00:00Z",
		"current time 2026-11-26T16:00:00Z is before 2026-11-26T21:00:00Z": "its certificate is not valid before 2026-11-26T21:00:00Z",
	} {
		err := fmt.Errorf("Get: %w", x509.CertificateInvalidError{Reason: x509.Expired, Detail: said})
		assert.EqualError(t, Reason(err), want+clock)

		// As gRPC hands it on.
		found, is := Clock(fmt.Sprintf(`connection error: desc = "transport: authentication handshake failed: %v"`, err))
		assert.True(t, is)
		assert.EqualError(t, found, want+clock)
	}

	found, is := Clock(`error reading server preface: remote error: tls: expired certificate`)
	assert.True(t, is)
	assert.EqualError(t, found, "it rejects the certificate of this program as expired, or not yet valid"+clock)

	_, is = Clock("remote error: tls: bad certificate")
	assert.False(t, is)
}
