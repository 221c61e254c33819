package manifests

// addon is what kustomize makes of upstream manifests.
type addon struct {
	version string
	// urls of the manifests.
	urls []string
	// objects in addition, which may be of kinds that the manifests define.
	objects []map[string]any
	// namespace of what sets none.
	namespace string
	// patches by the kind of the object, with what Talos needs in addition.
	patches []addonPatch
}

type addonPatch struct {
	kind string
	// name of the object; empty: all of the kind.
	name  string
	patch map[string]any
}

const rawGitHub = "https://raw.githubusercontent.com/"
