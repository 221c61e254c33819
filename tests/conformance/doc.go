// Package conformance sends the same requests to the API server of the lab and to the one of Kubernetes, and fails
// where their answers differ. What the lab does not have is in a table, with the reason, and the table is held too.
package conformance
