// Package sshd is the SSH face of the lab's hosts: real servers, with the commands of Proxmox VE that clients run on a
// host. It is strict: a command that it does not know fails as on a host without it, and is noted in the journal.
package sshd
