package pve

import (
	"net/http"
	"net/url"
	"strings"

	"talos-proxmox/tests/lab/world"
)

// authenticate finds out who calls: an API token, or a user with a ticket.
func (s *Server) authenticate(r *http.Request) (string, error) {
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "PVEAPIToken="); ok {
		id, secret, _ := strings.Cut(token, "=")

		return id, s.world.VerifyToken(id, secret)
	}

	cookie, err := r.Cookie("PVEAuthCookie")
	if err != nil || cookie.Value == "" {
		return "", &world.Error{Code: http.StatusUnauthorized, Reason: "No ticket"}
	}

	ticket := cookie.Value
	if plain, err := url.PathUnescape(ticket); err == nil {
		ticket = plain
	}

	return s.world.VerifyTicket(ticket, r.Header.Get("CSRFPreventionToken"), r.Method != http.MethodGet)
}
