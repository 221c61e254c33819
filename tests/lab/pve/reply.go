package pve

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"

	"talos-proxmox/tests/lab/world"
)

const contentType = "application/json;charset=UTF-8"

// reply answers with data or with an error. Clients read the text of an error from the status line, which Go's server
// does not let one write, so errors are written by hand on the connection, which then ends.
func reply(w http.ResponseWriter, data any, err error) {
	if err == nil {
		body, failed := json.Marshal(map[string]any{"data": data})
		if failed == nil {
			w.Header().Set("Content-Type", contentType)
			_, _ = w.Write(body)

			return
		}

		err = failed
	}

	e := &world.Error{Code: http.StatusInternalServerError, Reason: err.Error()}
	_ = errors.As(err, &e)

	// The reason is one line whatever it says.
	reason := strings.Join(strings.Fields(e.Reason), " ")

	answer := map[string]any{"data": nil, "message": e.Reason + "\n"}
	if len(e.Fields) > 0 {
		answer["errors"] = e.Fields
	}

	body, _ := json.Marshal(answer)

	conn, buffer, failed := http.NewResponseController(w).Hijack()
	if failed != nil {
		http.Error(w, reason, e.Code)

		return
	}
	defer conn.Close()

	_, _ = fmt.Fprintf(buffer, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		e.Code, reason, contentType, len(body), body)
	_ = buffer.Flush()
}

// replyHalf announces all of an answer and sends half of it.
func replyHalf(w http.ResponseWriter, data any) {
	body, _ := json.Marshal(map[string]any{"data": data})

	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body[:len(body)/2])
	_ = http.NewResponseController(w).Flush()

	if h, ok := w.(*held); ok {
		h.hold()
		w = h.ResponseWriter
	}

	reset(w)
}

// held is a reply that waits before it ends.
type held struct {
	http.ResponseWriter

	hold func()
}

// Unwrap lets the connection be reached.
func (h *held) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// reset ends the connection as a machine does that loses its power: without an answer, without a farewell.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}

	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}

	if t, ok := conn.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}

	_ = conn.Close()
}
