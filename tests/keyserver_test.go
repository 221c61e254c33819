package tests

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
)

// secretsProvider takes the keys of stacks from the key server.
const secretsProvider = "hashivault://tests"

// wrapped precedes what the key server was sent.
const wrapped = "vault:v1:"

// newKeyServer answers the CLI as HashiCorp Vault's transit engine does: it encrypts and decrypts the key that the CLI
// makes for a stack, and encrypts the secrets of the stack with. This one gives the key back as it is. See
// https://developer.hashicorp.com/vault/api-docs/secret/transit.
func newKeyServer() *httptest.Server {
	calls := http.NewServeMux()

	calls.HandleFunc("/v1/transit/encrypt/", func(w http.ResponseWriter, r *http.Request) {
		answerKey(w, r, "plaintext", "ciphertext", func(key string) string { return wrapped + key })
	})
	calls.HandleFunc("/v1/transit/decrypt/", func(w http.ResponseWriter, r *http.Request) {
		answerKey(w, r, "ciphertext", "plaintext", func(key string) string { return strings.TrimPrefix(key, wrapped) })
	})

	return httptest.NewServer(calls)
}

// answerKey answers a field of the request with another one.
func answerKey(w http.ResponseWriter, r *http.Request, given, answered string, change func(string) string) {
	var sent map[string]string
	if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)

		return
	}

	// Whoever asked sees it where this cannot be written.
	_ = json.NewEncoder(w).Encode(map[string]any{"data": map[string]string{answered: change(sent[given])}})
}
