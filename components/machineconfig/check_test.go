package machineconfig

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/spec"
)

// patched is a cluster of the template kind with patches of cluster, pool and node.
func patched(versions spec.Versions, cluster, pool, node string) spec.Spec {
	s := plantest.Atlas(versions)
	s.Cluster.CNI = spec.CNI{}
	s.Image = spec.Image{}

	patch := func(path, text string) []spec.Patch {
		if text == "" {
			return nil
		}

		return []spec.Patch{{Path: path + ".patches[0]", Origin: "patches/" + path + ".yaml", Text: text}}
	}

	s.Cluster.Patches = patch("cluster", cluster)
	s.Pools["control"] = spec.Pool{
		Role: spec.RoleControlPlane, Addresses: "10.0.0.11-13", Patches: patch("pools.control", pool),
		Nodes: map[string]spec.NodeSpec{"1": {}, "2": {Patches: patch("pools.control.nodes.2", node)}},
	}
	delete(s.Pools, "worker")

	return s
}

// TestCheck: a patch that is wrong is named, with the node and what Talos says.
func TestCheck(t *testing.T) {
	for name, test := range map[string]struct {
		spec spec.Spec
		want string
	}{
		"strategic merge": {spec: patched(plantest.Talos112, "machine:\n  sysctls: {a: b}\n",
			"machine:\n  kubelet: {extraArgs: {v: \"4\"}}\n", "machine:\n  time: {disabled: true}\n")},
		"a document of its own": {
			spec: patched(plantest.Talos112, "apiVersion: v1alpha1\nkind: KmsgLogConfig\nname: remote\nurl: tcp://10.0.0.2:514\n", "",
				""),
		},
		"a document that the provider does not know": {
			spec: patched(plantest.Talos114, "apiVersion: v1alpha1\nkind: SysctlConfig\nparams: {a: b}\n", "", ""),
			want: "the configuration has 1 problem:\n  - cluster.patches[0]: is not a patch that Talos can apply: SysctlConfig " +
				"was added after Talos 1.12, and the Talos provider does not support it; use the settings of Talos " +
				"1.12, which later " +
				"versions take, too (given: patches/cluster.yaml, for atlas-control-1); correct the patch",
		},
		"deletion": {spec: patched(plantest.Talos112, "", "",
			"cluster:\n  apiServer:\n    admissionControl:\n      - name: PodSecurity\n        $patch: delete\n")},
		"JSON patch": {
			spec: patched(plantest.Talos111, `[{"op": "add", "path": "/machine/sysctls", "value": {"a": "b"}}]`,
				"- op: remove\n  path: /machine/sysctls\n", ""),
		},
		"JSON patch since 1.12": {
			spec: patched(plantest.Talos112, `[{"op": "add", "path": "/machine/sysctls", "value": {"a": "b"}}]`, "", ""),
			want: "the configuration has 1 problem:\n  - cluster.patches[0]: is not a patch that Talos can apply: JSON6902 " +
				"patches are not supported for multi-document " +
				"machine configuration (given: patches/cluster.yaml, for atlas-control-1); write it as a strategic merge patch: " +
				"since Talos 1.12 a machine configuration has several documents",
		},
		"unknown key": {
			spec: patched(plantest.Talos112, "machine:\n  sysctl: {a: b}\n", "", ""),
			want: "the configuration has 1 problem:\n  - cluster.patches[0]: is not a patch that Talos can apply: error decoding " +
				"document /v1alpha1/ (line 1): " +
				"unknown keys found during decoding: machine.sysctl.a (given: patches/cluster.yaml, for atlas-control-1); " +
				"correct the patch",
		},
		"no YAML": {
			spec: patched(plantest.Talos112, "", "machine: [", ""),
			want: "the configuration has 1 problem:\n  - pools.control.patches[0]: is not a patch that Talos can apply: decode " +
				"error: go-yaml load error in parser (while parsing a flow node) at L2.C1: did not find expected node content " +
				"(given: patches/pools.control.yaml, for atlas-control-1); correct the patch",
		},
		"refused, of one node": {
			spec: patched(plantest.Talos112, "", "machine:\n  sysctls: {a: b}\n", "machine:\n  network:\n    hostname: other\n"),
			want: "the configuration has 1 problem:\n  - pools.control.nodes.2.patches[0]: Talos refuses the machine " +
				"configuration: " +
				"static hostname is already set in v1alpha1 config (given: patches/pools.control.nodes.2.yaml, for " +
				"atlas-control-2); correct the patch",
		},
		"refused, of all nodes": {
			spec: patched(plantest.Talos112, "cluster:\n  network:\n    cni: {name: calico}\n", "", ""),
			want: "the configuration has 2 problems:\n  - cluster.patches[0]: Talos refuses the machine configuration: " +
				"v1alpha1.Config: cni name should be one of " +
				`["flannel", "custom", "none"]` + " (given: patches/cluster.yaml, for atlas-control-1); correct the patch\n" +
				"  - cluster.patches[0]: overrides the CNI of the plan, flannel (given: patches/cluster.yaml, for " +
				"atlas-control-1); leave it out of the patch, and use cluster.cni.name",
		},
		"a file's name": {
			spec: patched(plantest.Talos112, "/etc/hostname", "@/etc/hostname", ""),
			want: "the configuration has 2 problems:\n  - cluster.patches[0]: is not a patch that Talos can apply: expected a " +
				"YAML document at line 1 " +
				"(given: patches/cluster.yaml, for atlas-control-1); correct the patch\n" +
				"  - pools.control.patches[0]: is not a patch that Talos can apply: decode error: go-yaml load " +
				"error in scanner (while scanning for the next token) at L1.C1: found character that cannot start any token " +
				"(given: patches/pools.control.yaml, for atlas-control-1); correct the patch",
		},
		"empty": {
			spec: patched(plantest.Talos112, "# nothing\n", "", ""),
			want: "the configuration has 1 problem:\n  - cluster.patches[0]: is not a patch that Talos can apply: it is empty " +
				"(given: patches/cluster.yaml, for atlas-control-1); correct the patch",
		},
		"several": {
			spec: patched(plantest.Talos112, "just a text", "machine:\n  sysctl: {a: b}\n", ""),
			want: "the configuration has 2 problems:\n  - cluster.patches[0]: is not a patch that Talos can apply: expected a " +
				"YAML document at line 1 " +
				"(given: patches/cluster.yaml, for atlas-control-1); correct the patch\n" +
				"  - pools.control.patches[0]: is not a patch that Talos can apply: error decoding document /v1alpha1/ (line 1): " +
				"unknown keys found during decoding: machine.sysctl.a " +
				"(given: patches/pools.control.yaml, for atlas-control-1); correct the patch",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Check(plantest.New(t, test.spec))

			got := ""
			if err != nil {
				got = err.Error()
			}

			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestNeeds: what Talos lets pass and the cluster cannot do without.
func TestNeeds(t *testing.T) {
	const kubeSpan = "machine:\n  network:\n    kubespan: {enabled: true}\n"

	alone := patched(spec.Versions{Talos: "v1.11.2", Kubernetes: "v1.31.1"}, "", kubeSpan, "")
	alone.Cluster.Discovery = spec.DiscoveryKubernetes

	cilium := patched(plantest.Talos112, "machine:\n  features:\n    kubePrism: {port: 7446}\n", "", "")
	cilium.Cluster.CNI = spec.CNI{Name: spec.CNICilium, Version: "1.18.4"}

	for name, test := range map[string]struct {
		spec spec.Spec
		want string
	}{
		"KubeSpan with the service": {spec: patched(plantest.Talos112, "", kubeSpan, "")},
		"KubeSpan without it": {
			spec: alone,
			want: "the configuration has 1 problem:\n  - pools.control.patches[0]: Talos refuses the machine " +
				"configuration: KubeSpan requires cluster discovery to be enabled (given: patches/pools.control.yaml, for atlas-control-1); correct the patch",
		},
		"Cilium without KubePrism": {
			spec: cilium,
			want: "the configuration has 1 problem:\n  - cluster.patches[0]: KubePrism must stay on, at its own port: that is " +
				"how Cilium and kube-vip reach " +
				"the Kubernetes API (given: patches/cluster.yaml, for atlas-control-1); correct the patch",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Check(plantest.New(t, test.spec))

			got := ""
			if err != nil {
				got = err.Error()
			}

			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestPatchIsNoFile: the provider reads some texts as the names of files, and what is a patch must not be one of them.
// A file with the name of a patch, here in the project, may be a link to anywhere.
func TestPatchIsNoFile(t *testing.T) {
	t.Chdir(t.TempDir())

	for _, text := range []string{"machine:\t{sysctls:\t{a:\tb}}", `{"machine":{"sysctls":{"a":"b"}}}`} {
		if err := os.WriteFile(text, []byte("machine:\n  sysctls: {stolen: text}\n"), 0o600); err != nil {
			t.Fatal(err)
		}

		p := plantest.New(t, patched(plantest.Talos112, "", "machine: { sysctls: { x: y } }", text))
		if _, err := Check(p); err != nil {
			t.Fatal(text, err)
		}

		rendered, err := NodePatches(p, p.Pools[0].Nodes[1])
		if err != nil {
			t.Fatal(err)
		}

		given := rendered[len(rendered)-1]
		if strings.TrimSpace(given) != text {
			t.Errorf("%q is not the patch", given)
		}

		// As the provider does.
		patches, err := configpatcher.LoadPatches([]string{given})
		if err != nil {
			t.Fatal(text, err)
		}

		configured, err := configpatcher.Apply(configpatcher.WithBytes([]byte("version: v1alpha1\nmachine: {}\n")), patches)
		if err != nil {
			t.Fatal(text, err)
		}

		result, err := configured.Config()
		if err != nil {
			t.Fatal(text, err)
		}

		if diff := cmp.Diff(map[string]string{"a": "b"}, result.Machine().Sysctls()); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
}

// TestCheckWarns: what Talos only warns of does not stop anybody.
func TestCheckWarns(t *testing.T) {
	warnings, err := Check(plantest.New(t, patched(plantest.Talos112, "",
		"machine:\n  install:\n    extensions: [{image: ghcr.io/siderolabs/gvisor:1}]\n", "")))

	want := []spec.Problem{{
		Path: "pools.control", Value: "atlas-control-1", Rule: "Talos warns of the machine configuration: " +
			".machine.install.extensions is deprecated, please see " +
			"https://docs.siderolabs.com/talos/latest/platform-specific-installations/boot-assets",
	}}
	if diff := cmp.Diff(want, warnings); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

// TestCheckLabels: what a patch wants a worker to do with the credentials of its kubelet is pointed out, and a taint that
// it would register with twice is refused.
func TestCheckLabels(t *testing.T) {
	const lost = ", and with it all other labels that Talos sets there; use "

	s := patched(plantest.Talos112, "machine:\n  nodeTaints: {a: NoSchedule}\n  nodeLabels: {node-role.kubernetes.io/db: x}\n", "", "")
	s.Pools["worker"] = spec.Pool{Role: spec.RoleWorker, Count: new(1), Addresses: "10.0.0.21", VMSpec: spec.VMSpec{
		Labels: map[string]string{"node-role.kubernetes.io/worker": ""}, Taints: map[string]string{"gpu": "x:NoSchedule"},
	}}

	warnings, err := Check(plantest.New(t, s))
	require.Empty(t, warnings)

	var problems spec.Problems
	require.ErrorAs(t, err, &problems)

	want := spec.Problems{
		{Path: "cluster.patches[0]", Rule: "Kubernetes refuses machine.nodeTaints of a worker" + lost + "taints of the pool"},
		{
			Path: "cluster.patches[0]",
			Rule: "Kubernetes refuses a restricted label in machine.nodeLabels of a worker" + lost + "labels of the pool",
		},
	}
	for i := range want {
		want[i].Value, want[i].Remedy = "patches/cluster.yaml, for atlas-worker-1", "correct the patch"
	}

	require.Equal(t, want, problems)

	pool := s.Pools["worker"]
	pool.Patches = []spec.Patch{{
		Path: "pools.worker.patches[0]", Origin: "twice.yaml",
		Text: "machine:\n  kubelet:\n    extraConfig:\n      registerWithTaints: [{key: gpu, effect: NoSchedule}]\n",
	}}
	s.Pools["worker"] = pool

	_, err = Check(plantest.New(t, s))
	if err == nil || !strings.Contains(err.Error(), "the kubelet does not register a node with a duplicate taint: "+
		"the taints of the pool are in registerWithTaints already") {
		t.Error(err)
	}
}

// TestExternalIsNotChecked: the program does not configure those nodes.
func TestExternalIsNotChecked(t *testing.T) {
	s := plantest.Atlas(spec.Versions{Talos: "v1.12.4"})
	s.Cluster.Bootstrap, s.Cluster.CNI, s.Image = spec.BootstrapExternal, spec.CNI{}, spec.Image{}
	s.Pools = map[string]spec.Pool{"control": {Role: spec.RoleControlPlane, Count: new(1), Addresses: "10.0.0.11"}}

	if warnings, err := Check(plantest.New(t, s)); err != nil || warnings != nil {
		t.Error(warnings, err)
	}
}

// TestK3sManifestsAreChecked: K3s nodes have no machine configuration, and manifests all the same.
func TestK3sManifestsAreChecked(t *testing.T) {
	_, err := Check(&plan.Plan{
		Distribution: spec.DistributionK3s,
		Manifests:    []spec.InlineOrFile{{Path: "cluster.manifests[0]", Origin: "a.yaml", Text: "kind: A\n"}},
	})
	require.ErrorContains(t, err, "cluster.manifests[0]: must be Kubernetes manifests: document 1 has no apiVersion")
}

// TestUnknownEndpoint: where the endpoint is not known in advance, everything else is checked all the same.
func TestUnknownEndpoint(t *testing.T) {
	s := patched(plantest.Talos112, "", "", "")
	s.Image.Factory.Extensions = []string{plan.GuestAgent}
	s.Network = spec.Network{CIDR: "10.0.0.0/16", Addressing: spec.AddressingAgent}
	s.Pools["control"] = spec.Pool{Role: spec.RoleControlPlane, Count: new(1)}

	if warnings, err := Check(plantest.New(t, s)); err != nil || warnings != nil {
		t.Error(warnings, err)
	}
}

func BenchmarkCheck(b *testing.B) {
	s := patched(plantest.Talos112, "machine:\n  sysctls: {a: b}\n", "", "")
	s.Pools["control"] = spec.Pool{
		Role: spec.RoleControlPlane, Count: new(200), VMIDs: "1000-1999",
		Addresses: "10.0.0.11-10.0.3.255",
	}
	p := plantest.New(b, s)

	for b.Loop() {
		if _, err := Check(p); err != nil {
			b.Fatal(err)
		}
	}

	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/200, "µs/node")
}

// TestCheckFindsAll: a patch that is wrong hides no other one, and each error of Talos' is blamed on its own patch.
func TestCheckFindsAll(t *testing.T) {
	t.Parallel()

	s := patched(plantest.Talos112, "machine:\n  sysctl: {a: b}\n", "cluster:\n  network:\n    cni: {name: calico}\n",
		"machine: [")

	_, whole := Check(plantest.New(t, s))
	alone, err := CheckPatches(s)
	require.NoError(t, err)

	for _, err := range []error{whole, alone.Err()} {
		var problems spec.Problems
		require.ErrorAs(t, err, &problems)

		var paths []string
		for _, p := range problems {
			paths = append(paths, p.Path)
		}

		assert.ElementsMatch(t, slices.Compact(paths),
			[]string{"cluster.patches[0]", "pools.control.patches[0]", "pools.control.nodes.2.patches[0]"}, err.Error())
	}

	s.Cluster.Distribution = spec.DistributionK3s
	none, err := CheckPatches(s)
	require.NoError(t, err)
	assert.Empty(t, none)
}

// TestCheckOfAnEmptyPool: its configuration may be for machines that others make, and is rendered in the update.
func TestCheckOfAnEmptyPool(t *testing.T) {
	t.Parallel()

	const given = " (given: own.yaml, for pool scaled); "

	for name, test := range map[string]struct{ patch, want string }{
		"a disk of theirs":       {patch: "machine: {install: {disk: /dev/nvme0n1}}"},
		"an installer of theirs": {patch: "machine: {install: {image: 'ghcr.io/siderolabs/installer:v1.12.4-a'}}"},
		"names of theirs":        {patch: "apiVersion: v1alpha1\nkind: HostnameConfig\nauto: off\nhostname: other\n"},
		"no YAML": {
			patch: "machine: [",
			want: "is not a patch that Talos can apply: decode error: go-yaml load error in parser (while parsing a flow " +
				"node) at L2.C1: did not find expected node content" + given + "correct the patch",
		},
		"unknown key": {
			patch: "machine: {sysctl: {a: b}}",
			want: "is not a patch that Talos can apply: error decoding document /v1alpha1/ (line 1): unknown keys found during " +
				"decoding: machine.sysctl.a" + given + "correct the patch",
		},
		"refused": {
			patch: "machine: {nodeTaints: {a: b:NoSchedule}}",
			want: "Kubernetes refuses machine.nodeTaints of a worker, and with it all other labels that Talos sets there; use " +
				"taints of the pool" + given + "correct the patch",
		},
		"another CNI": {
			patch: "cluster: {network: {cni: {name: none}}}",
			want: "overrides the CNI of the plan, flannel" + given + "leave it out of the patch, and use " +
				"cluster.cni.name",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := patched(plantest.Talos112, "", "", "")
			s.Pools["scaled"] = spec.Pool{
				Role: spec.RoleWorker, Count: new(0), Addresses: "10.0.0.21-22",
				Patches: []spec.Patch{{Path: "pools.scaled.patches[0]", Origin: "own.yaml", Text: test.patch}},
			}
			// Each node of a metal image has its own installer.
			for _, platform := range []spec.Platform{spec.PlatformNoCloud, spec.PlatformMetal} {
				s.Image.Platform = platform
				warnings, err := Check(plantest.New(t, s))
				assert.Empty(t, warnings)

				if test.want == "" {
					require.NoError(t, err)
				} else {
					require.EqualError(t, err, "the configuration has 1 problem:\n  - pools.scaled.patches[0]: "+test.want)
				}
			}
		})
	}
}

// TestQuotedValues: what Talos and YAML quote of a patch may be a secret.
func TestQuotedValues(t *testing.T) {
	t.Parallel()

	for said, want := range map[string]string{
		"yaml: cannot unmarshal !!str `hunter2` into int": "yaml: cannot unmarshal !!str into int",
		`wrong key "c2VjcmV0" length: 31`:                 "wrong key length: 31",
		"unknown anchor 'Secret1' referenced":             "unknown anchor referenced",
	} {
		assert.Equal(t, []string{want}, faults(errors.New(said)))
	}
}

// TestCheckPatchesSaysNothingUntrue: what a plan would decide is not known where there is none.
func TestCheckPatchesSaysNothingUntrue(t *testing.T) {
	t.Parallel()

	s := patched(spec.Versions{}, "cluster: {controlPlane: {endpoint: 'https://10.0.0.11:6443'}, network: {cni: "+
		"{name: none}, podSubnets: [192.0.0.0/16]}, apiServer: {extraArgs: {feature-gates: ElasticIndexedJob=true}}}", "",
		"apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: other\n")
	s.Cluster.CNI.Name = "calico"

	found, err := CheckPatches(s)
	require.NoError(t, err)
	assert.Empty(t, found)

	s.Cluster.Versions, s.Cluster.CNI.Name = plantest.Talos112, ""

	found, err = CheckPatches(s)
	require.NoError(t, err)
	require.Len(t, found, 2)
	assert.Contains(t, found[0].Rule, "kube-apiserver does not start with the feature gate ElasticIndexedJob")
	assert.Equal(t, "overrides the CNI of the plan, flannel", found[1].Rule)
}

// TestManifestsOfK3s are checked whatever else is wrong.
func TestManifestsOfK3s(t *testing.T) {
	t.Parallel()

	found, err := CheckPatches(spec.Spec{Cluster: spec.Cluster{
		Distribution: spec.DistributionK3s,
		Manifests:    []spec.InlineOrFile{{Path: "cluster.manifests[0]", Origin: "own.yaml", Text: "kind: Namespace\n"}},
	}})
	require.NoError(t, err)
	require.EqualError(t, found.Err(), "the configuration has 1 problem:\n  - cluster.manifests[0]: must be Kubernetes "+
		"manifests: document 1 has no apiVersion (given: own.yaml); correct the manifest")
}

// TestOverriddenUnknownEndpoint: what stands for an endpoint that is not known is not shown.
func TestOverriddenUnknownEndpoint(t *testing.T) {
	t.Parallel()

	s := reservedSpec()
	s.Network = spec.Network{CIDR: "10.0.0.0/16", Addressing: spec.AddressingAgent}
	s.Image.Schematic = &spec.Schematic{Extensions: []string{plan.GuestAgent}}
	s.Pools = map[string]spec.Pool{"control": {Role: spec.RoleControlPlane, Count: new(1)}}
	s.Cluster.Patches = []spec.Patch{{
		Path: "cluster.patches[0]", Origin: "own.yaml",
		Text: "cluster: {controlPlane: {endpoint: 'https://k.example.com:6443'}}",
	}}

	_, err := Check(plantest.New(t, s))
	require.EqualError(t, err, "the configuration has 1 problem:\n  - cluster.patches[0]: overrides the endpoint of the "+
		"plan, which is the address of the first control plane (given: own.yaml, for home-control-1); leave it out of "+
		"the patch, and use cluster.endpoint")
}

// TestSealedByPatch: a patch may say what cluster.encryption "tpm" does, and needs the same.
func TestSealedByPatch(t *testing.T) {
	t.Parallel()

	const (
		given  = " (given: own.yaml, for home-control-1)"
		secure = "cluster.patches[0]: keys of volumes are sealed with a TPM, which needs image.secureBoot: Talos seals " +
			"keys only when it was booted with SecureBoot" + given
		tpm = "cluster.patches[0]: keys of volumes are sealed with a TPM, which needs tpm: true in the pool or in defaults" +
			given
		legacy = "machine: {systemDiskEncryption: {ephemeral: {provider: luks2, keys: [{slot: 0, tpm: {}}]}}}"
		volume = "apiVersion: v1alpha1\nkind: VolumeConfig\nname: STATE\nencryption: {provider: luks2, keys: [{slot: 0, " +
			"tpm: {}}]}\n"
		user = "apiVersion: v1alpha1\nkind: UserVolumeConfig\nname: data\nprovisioning: {diskSelector: {match: " +
			"'!system_disk'}, minSize: 1GB}\nencryption: {provider: luks2, keys: [{slot: 0, tpm: {}}]}\n"
		both = "apiVersion: v1alpha1\nkind: VolumeConfig\nname: STATE\nencryption: {provider: luks2, keys: [{slot: 0, " +
			"nodeID: {}}, {slot: 1, tpm: {}}]}\n"
	)

	for name, test := range map[string]struct {
		patch                 string
		template, secure, tpm bool
		want, warned          []string
	}{
		"legacy":               {patch: legacy, want: []string{secure, tpm}},
		"a volume":             {patch: volume, want: []string{secure, tpm}},
		"a user volume":        {patch: user, want: []string{secure, tpm}},
		"with a TPM":           {patch: volume, tpm: true, want: []string{secure}},
		"with SecureBoot":      {patch: volume, secure: true, want: []string{tpm}},
		"with both":            {patch: volume, secure: true, tpm: true},
		"another key, too":     {patch: both, warned: []string{secure, tpm}},
		"of a template":        {patch: volume, template: true, warned: []string{secure, tpm}},
		"sealed with no TPM":   {patch: strings.ReplaceAll(volume, "tpm", "nodeID")},
		"not encrypted at all": {patch: "machine: {sysctls: {a: b}}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := reservedSpec()
			s.Pools = map[string]spec.Pool{"control": {Role: spec.RoleControlPlane, Count: new(1), Addresses: "10.0.0.11"}}

			if !test.template {
				s.Image = spec.Image{Source: spec.SourceFactory}
			}

			s.Image.SecureBoot, s.Defaults.TPM = test.secure, &test.tpm
			s.Cluster.Patches = []spec.Patch{{Path: "cluster.patches[0]", Origin: "own.yaml", Text: test.patch}}

			warnings, err := Check(plantest.New(t, s))

			var problems spec.Problems
			if err != nil {
				require.ErrorAs(t, err, &problems)
			}

			for i := range problems {
				problems[i].Remedy = ""
			}

			for i := range warnings {
				warnings[i].Remedy = ""
			}

			assert.Equal(t, test.want, said(problems))
			assert.Equal(t, test.warned, said(warnings))

			alone, err := CheckPatches(s)
			require.NoError(t, err)
			assert.Empty(t, alone)
		})
	}
}

func said(problems []spec.Problem) []string {
	var all []string
	for _, p := range problems {
		all = append(all, p.String())
	}

	return all
}
