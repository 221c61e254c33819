package k3s

// Removals decide whether a node may lose its machine, and take it out of the cluster before it does.
type Removals struct{ *Cluster }
