package stacks

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"filippo.io/age"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/stacks/config"
)

// observedBase is a stack with a pool of each kind.
const observedBase = `{
	"proxmox": {"endpoint": "https://pve.lan:8006", "tokenId": "a@b!c", "hosts": [{"name": "pve1"}, {"name": "pve2"}]},
	"proxmoxTokenSecret": "11111111-2222-3333-4444-555555555555",
	"cluster": {"name": "c", "versions": {"talos": "v1.12.4", "kubernetes": "v1.34.2"}},
	"network": {"cidr": "10.0.0.0/16", "gateway": "10.0.0.1"},
	"pools": {
		"control": {"role": "controlplane", "count": 1, "addresses": "10.0.0.11-19"},
		"worker": {"role": "worker", "nodes": {"1": {}}, "addresses": "10.0.0.21-29", "extraDisks": [{"sizeGiB": 1}], "nics": [{}]},
		"gpu": {"role": "worker", "host": "pve1", "gpus": {"1": {"bdf": "0000:01:00.0"}}, "addresses": "10.0.0.31-39"}
	}
}`

// observedK3s is a stack of K3s.
const observedK3s = `{
	"proxmox": {"endpoint": "https://pve.lan:8006", "tokenId": "a@b!c", "hosts": [{"name": "pve1"}], "ssh": {"username": "root"}},
	"proxmoxTokenSecret": "11111111-2222-3333-4444-555555555555", "sshPrivateKey": "KEY",
	"cluster": {"name": "c", "kind": "k3s", "versions": {"k3s": "v1.34.2+k3s1"}},
	"k3s": {"disable": ["servicelb"], "generateSSHKey": true},
	"image": {"source": "cloudImage", "cloudImage": {"url": "https://a.lan/release-20251113/ubuntu.img"}},
	"network": {"cidr": "10.0.0.0/16", "gateway": "10.0.0.1"},
	"pools": {
		"control": {"role": "controlplane", "count": 1, "addresses": "10.0.0.11-19"},
		"worker": {"role": "worker", "count": 1, "addresses": "10.0.0.21-29"}
	}
}`

// What a key needs around it.
const (
	withSSH      = `{"proxmox": {"ssh": {"username": "root"}}, "sshPrivateKey": "KEY"}`
	withDisk     = `{"proxmox": {"ssh": {"username": "root"}}, "sshPrivateKey": "KEY", "image": {"factory": {"format": "disk"}}}`
	withISO      = `{"image": {"source": "iso", "iso": {"url": "https://a.lan/a.iso"}}, "network": {"addressing": "reserved"}}`
	withTemplate = `{"image": {"source": "template", "template": {"control": "one", "worker": "one", "gpuWorker": "one", "allowNonCanonicalName": true}},
		"network": {"addressing": "reserved"}}`
	withCilium    = `{"cluster": {"cni": {"name": "cilium", "version": "1.18.4", "kubeProxy": false}}}`
	withBGP       = `{"cluster": {"cni": {"loadBalancer": {"addresses": ["10.9.0.0/24"], "mode": "bgp", "asn": 64512, "peers": [{"address": "10.0.0.1", "asn": 64500}]}}}}`
	withOIDC      = `{"cluster": {"apiServer": {"oidc": {"issuer": "https://a.lan", "clientID": "a"}}}}`
	withServices  = `{"firewall": {"enabled": true}, "cluster": {"cni": {"loadBalancer": {"addresses": ["10.0.0.200-10.0.0.210"]}}}}`
	withFirewall  = `{"firewall": {"enabled": true, "open": [{"name": "web", "ports": 443}]}}`
	withTailscale = `{"image": {"factory": {"extensions": ["tailscale"]}}, "tailscaleAuthKey": "tskey-auth-k1", "tailscale": {}}`
	withVIP       = `{"cluster": {"endpoint": {"mode": "vip", "address": "10.0.0.9"}}}`
	withKubeVIP   = `{"cluster": {"endpoint": {"mode": "kubeVip", "address": "10.0.0.9", "interface": "eth0"}}}`
	withReserved  = `{"image": {"source": "iso", "platform": "metal", "iso": {"url": "https://a.lan/a.iso"}}, "network": {"addressing": "reserved"}}`
	withCSI       = `{"cluster": {"region": "lan", "addons": ["proxmox-csi"]}, "csiToken": "a@b!c=11111111-2222-3333-4444-555555555555"}`
	withCCM       = `{"cluster": {"region": "lan", "addons": ["proxmox-ccm"]}, "ccmToken": "a@b!c=11111111-2222-3333-4444-555555555555"}`
	withFlux      = `{"cluster": {"addons": ["flux"], "gitOps": {"repository": "ssh://git@a.lan/a.git", "knownHosts": ["a.lan ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKL6L0o1W6LpB6UwCenjfK3fesfmagi6B2MfVTBys/JM"]}},
		"gitOpsKey": "KEY"}`
	withVolumes = `{"image": {"source": "iso", "iso": {"volume": "local:iso/a.iso"}}, "network": {"addressing": "reserved"},
		"pools": {"worker": {"image": {"iso": {"volume": "local:iso/a.iso"}}}}}`
	withMirror = `{"cluster": {"registryMirrors": {"docker.io": ["https://a.lan"]}}}`
	withVolume = `{"pools": {"worker": {"extraDisks": [{"sizeGiB": 1, "volume": {"name": "data"}}]}}}`
)

// sample is a value of a key that is not its default, and what the key needs around it.
type sample struct{ value, with string }

// samples are values of the keys that change what a stack registers.
var samples = map[string]sample{
	"environment":                 {`"production"`, ""},
	"proxmox.endpoint":            {`"https://other.lan:8006"`, ""},
	"proxmox.insecure":            {`true`, ""},
	"proxmox.tokenId":             {`"d@e!f"`, ""},
	"proxmox.hosts[].name":        {`"pve3"`, `{"pools": {"gpu": {"host": "pve2"}}}`},
	"proxmox.ssh.username":        {`"pulumi"`, withSSH},
	"proxmox.ssh.port":            {`2222`, withSSH},
	"proxmox.ssh.addresses":       {`{"pve1": "10.0.0.2"}`, withSSH},
	"proxmox.storage.disks":       {`"nfs"`, ""},
	"proxmox.storage.images":      {`"nfs"`, ""},
	"proxmoxTokenSecret":          {`"22222222-2222-3333-4444-555555555555"`, ""},
	"tailscaleAuthKey":            {`"tskey-auth-k2"`, withTailscale},
	"csiToken":                    {`"a@b!c=22222222-2222-3333-4444-555555555555"`, withCSI},
	"ccmToken":                    {`"a@b!c=22222222-2222-3333-4444-555555555555"`, withCCM},
	"gitOpsKey":                   {`"OTHER"`, withFlux},
	"ageKey":                      {`"AGE"`, withFlux},
	"sshPrivateKey":               {`"OTHER"`, withSSH},
	"secretManifests":             {`"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n"`, ""},
	"registryLogins":              {`"a.lan: {username: a, password: b}"`, ""},
	"cluster.name":                {`"d"`, ""},
	"cluster.versions.talos":      {`"v1.12.3"`, ""},
	"cluster.versions.kubernetes": {`"v1.34.1"`, ""},
	"cluster.versions.contract":   {`"v1.11.0"`, ""},
	"cluster.endpoint.address":    {`"10.0.0.8"`, withVIP},
	"cluster.endpoint.host":       {`"b.lan"`, `{"cluster": {"endpoint": {"mode": "dns", "host": "a.lan"}}}`},
	"cluster.endpoint.interface":  {`"eth1"`, withKubeVIP},
	"cluster.endpoint.version":    {`"v1.0.0"`, withKubeVIP},
	"cluster.endpoint.names":      {`["a.lan"]`, ""},
	"cluster.cni.name":            {`"none"`, ""},
	"cluster.cni.version":         {`"1.18.5"`, withCilium},
	"cluster.cni.kubeProxy":       {`false`, `{"cluster": {"cni": {"name": "cilium", "version": "1.18.4"}}}`},
	"cluster.cni.values":          {`{"debug": {"enabled": true}}`, withCilium},

	"cluster.cni.loadBalancer.addresses":       {`["10.8.0.0/24"]`, withBGP},
	"cluster.cni.loadBalancer.from":            {`["10.7.0.0/16"]`, withServices},
	"cluster.cni.loadBalancer.asn":             {`64513`, withBGP},
	"cluster.cni.loadBalancer.peers[].address": {`"10.0.0.2"`, withBGP},
	"cluster.cni.loadBalancer.peers[].asn":     {`64501`, withBGP},

	"cluster.region":                   {`"lan"`, ""},
	"cluster.schedulableControlPlanes": {`true`, ""},
	"cluster.addons":                   {`["flux"]`, ""},
	"cluster.gitOps.repository":        {`"ssh://git@b.lan/a.git"`, withFlux},
	"cluster.gitOps.branch":            {`"next"`, withFlux},
	"cluster.gitOps.path":              {`"b"`, withFlux},
	"cluster.gitOps.knownHosts":        {`["b.lan ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKL6L0o1W6LpB6UwCenjfK3fesfmagi6B2MfVTBys/JM"]`, withFlux},
	"cluster.manifestMirror":           {`"https://a.lan"`, `{"cluster": {"addons": ["flux"]}}`},
	"cluster.discovery":                {`"none"`, ""},
	"cluster.patches":                  {`["machine: {sysctls: {a: b}}"]`, ""},
	"cluster.manifests":                {`["apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n"]`, ""},
	"cluster.registryMirrors":          {`{"docker.io": ["https://a.lan"]}`, ""},
	"cluster.proxy.http":               {`"http://b.lan"`, `{"cluster": {"proxy": {"http": "http://a.lan"}}}`},
	"cluster.proxy.https":              {`"http://b.lan"`, `{"cluster": {"proxy": {"http": "http://a.lan"}}}`},
	"cluster.proxy.except":             {`["b.lan"]`, `{"cluster": {"proxy": {"http": "http://a.lan"}}}`},

	"cluster.registryOptions.<name>.overridePath": {`true`, withMirror},
	"cluster.registryOptions.<name>.skipFallback": {`true`, withMirror},

	"cluster.apiServer.oidc.issuer":         {`"https://b.lan"`, withOIDC},
	"cluster.apiServer.oidc.clientID":       {`"b"`, withOIDC},
	"cluster.apiServer.oidc.usernameClaim":  {`"b"`, withOIDC},
	"cluster.apiServer.oidc.usernamePrefix": {`"b"`, withOIDC},
	"cluster.apiServer.oidc.groupsClaim":    {`"b"`, withOIDC},
	"cluster.apiServer.oidc.groupsPrefix":   {`"b"`, withOIDC},
	"cluster.apiServer.authentication":      {`"apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n"`, ""},
	"cluster.apiServer.audit":               {`"apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: None}]\n"`, ""},
	"cluster.apiServer.admission":           {`{"PodNodeSelector": {"kind": "B", "apiVersion": "c/v1"}}`, ""},
	"cluster.trustedCAs":                    {`["CA"]`, ""},
	"cluster.logs.services":                 {`["tcp://10.0.0.5:5044"]`, ""},
	"cluster.logs.kernel":                   {`["tcp://10.0.0.5:5044"]`, ""},
	"cluster.encryption":                    {`"nodeID"`, ""},

	"image.source":             {`"iso"`, withISO},
	"image.platform":           {`"metal"`, ""},
	"image.template.control":   {`"two"`, withTemplate},
	"image.template.worker":    {`"two"`, withTemplate},
	"image.template.gpuWorker": {`"two"`, withTemplate},
	"image.iso.volume":         {`"local:iso/talos-1.12.4.iso"`, withVolumes},
	"image.iso.url":            {`"https://b.lan/a.iso"`, withISO},
	"image.iso.checksum":       {`"sha256:0000000000000000000000000000000000000000000000000000000000000000"`, withISO},
	"image.iso.overwrite":      {`true`, withISO},
	"image.iso.detach":         {`false`, withISO},
	"image.factory.url":        {`"https://factory.lan"`, ""},
	"image.factory.format":     {`"disk"`, withSSH},
	"image.factory.extensions": {`["qemu-guest-agent"]`, ""},
	"image.factory.kernelArgs": {`["console=ttyS0"]`, ""},
	"image.schematic":          {`["qemu-guest-agent"]`, withISO},
	"image.secureBoot":         {`true`, ""},

	"network.cidr":        {`"10.0.0.0/17"`, ""},
	"network.gateway":     {`"10.0.0.2"`, ""},
	"network.nameservers": {`["10.0.0.3"]`, ""},
	"network.timeServers": {`["10.0.0.3"]`, ""},
	"network.bridge":      {`"vmbr1"`, ""},
	"network.vlan":        {`7`, ""},
	"network.mtu":         {`9000`, ""},
	"network.addressing":  {`"reserved"`, `{"image": {"source": "iso", "platform": "nocloud", "iso": {"url": "https://a.lan/a.iso"}}}`},

	"placement.strategy": {`"pin"`, `{"pools": {"control": {"host": "pve1"}, "worker": {"host": "pve1"}, "gpu": {"host": "pve1"}}}`},

	"pools.<name>.role":                {`"controlplane"`, `{"pools": {"worker": {"vmids": "801-899"}, "control": {"vmids": "401-449"}}}`},
	"pools.<name>.count":               {`2`, `{"pools": {"worker": {"nodes": null, "count": 1}}}`},
	"pools.<name>.nodes":               {`{"1": {}, "2": {}}`, ""},
	"pools.<name>.gpus":                {`{"1": {"bdf": "0000:01:00.0"}, "2": {"bdf": "0000:02:00.0"}}`, ""},
	"pools.<name>.vmids":               {`"801-899"`, ""},
	"pools.<name>.addresses":           {`"10.0.0.41-49"`, ""},
	"pools.<name>.names":               {`"w{nn}"`, ""},
	"pools.<name>.addressing":          {`"static"`, withReserved},
	"pools.<name>.host":                {`"pve2"`, `{"pools": {"worker": {"host": "pve1"}}}`},
	"pools.<name>.patches":             {`["machine: {sysctls: {a: b}}"]`, ""},
	"pools.<name>.image.template":      {`"two"`, withTemplate},
	"pools.<name>.image.extensions":    {`["qemu-guest-agent"]`, ""},
	"pools.<name>.image.kernelArgs":    {`["console=ttyS0"]`, ""},
	"pools.<name>.image.schematic":     {`["qemu-guest-agent"]`, withISO},
	"pools.<name>.image.secureBoot":    {`true`, ""},
	"pools.<name>.image.iso.volume":    {`"local:iso/talos-1.12.4.iso"`, withVolumes},
	"pools.<name>.image.iso.url":       {`"https://c.lan/a.iso"`, withPoolISO},
	"pools.<name>.image.iso.checksum":  {`"sha256:0000000000000000000000000000000000000000000000000000000000000000"`, withPoolISO},
	"pools.<name>.image.iso.overwrite": {`true`, withPoolISO},
	"pools.<name>.image.iso.detach":    {`false`, withPoolISO},

	"pools.<name>.nodes.<name>.host":       {`"pve2"`, `{"pools": {"worker": {"host": "pve1"}}}`},
	"pools.<name>.nodes.<name>.mac":        {`"BC:24:11:00:00:01"`, ""},
	"pools.<name>.nodes.<name>.address":    {`"10.0.0.99"`, ""},
	"pools.<name>.nodes.<name>.addressing": {`"static"`, withReserved},
	"pools.<name>.nodes.<name>.patches":    {`["machine: {sysctls: {a: b}}"]`, ""},
	"pools.<name>.gpus.<name>.host":        {`"pve2"`, ""},
	"pools.<name>.gpus.<name>.mac":         {`"BC:24:11:00:00:01"`, ""},
	"pools.<name>.gpus.<name>.address":     {`"10.0.0.99"`, ""},
	"pools.<name>.gpus.<name>.addressing":  {`"static"`, withReserved},
	"pools.<name>.gpus.<name>.patches":     {`["machine: {sysctls: {a: b}}"]`, ""},
	"pools.<name>.gpus.<name>.bdf":         {`"0000:02:00.0"`, ""},
	"pools.<name>.gpus.<name>.pcie":        {`false`, ""},
	"pools.<name>.gpus.<name>.rombar":      {`false`, ""},
	"pools.<name>.gpus.<name>.raw":         {`true`, `{"proxmox": {"tokenId": null, "username": "root@pam"}, "proxmoxTokenSecret": null, "proxmoxPassword": "a"}`},

	"pools.<name>.cores":                          {`3`, ""},
	"pools.<name>.cpuType":                        {`"x86-64-v2-AES"`, ""},
	"pools.<name>.cpuUnits":                       {`200`, ""},
	"pools.<name>.numa":                           {`true`, ""},
	"pools.<name>.memoryMiB":                      {`8192`, ""},
	"pools.<name>.minimumMemoryMiB":               {`2048`, `{"pools": {"worker": {"ballooning": true, "minimumMemoryMiB": 1024}}}`},
	"pools.<name>.diskGiB":                        {`50`, ""},
	"pools.<name>.disk.datastore":                 {`"nfs"`, ""},
	"pools.<name>.disk.interface":                 {`"scsi3"`, ""},
	"pools.<name>.disk.cache":                     {`"writeback"`, ""},
	"pools.<name>.disk.aio":                       {`"native"`, ""},
	"pools.<name>.disk.discard":                   {`false`, ""},
	"pools.<name>.disk.ssd":                       {`true`, ""},
	"pools.<name>.disk.iothread":                  {`true`, `{"pools": {"worker": {"scsiController": "virtio-scsi-single"}}}`},
	"pools.<name>.disk.backup":                    {`false`, ""},
	"pools.<name>.disk.replicate":                 {`false`, ""},
	"pools.<name>.extraDisks[].sizeGiB":           {`2`, ""},
	"pools.<name>.extraDisks[].datastore":         {`"nfs"`, ""},
	"pools.<name>.extraDisks[].interface":         {`"scsi3"`, ""},
	"pools.<name>.extraDisks[].cache":             {`"writeback"`, ""},
	"pools.<name>.extraDisks[].aio":               {`"native"`, ""},
	"pools.<name>.extraDisks[].discard":           {`false`, ""},
	"pools.<name>.extraDisks[].ssd":               {`true`, ""},
	"pools.<name>.extraDisks[].iothread":          {`true`, `{"pools": {"worker": {"scsiController": "virtio-scsi-single"}}}`},
	"pools.<name>.extraDisks[].backup":            {`false`, ""},
	"pools.<name>.extraDisks[].replicate":         {`false`, ""},
	"pools.<name>.extraDisks[].volume.name":       {`"other"`, withVolume},
	"pools.<name>.extraDisks[].volume.filesystem": {`"ext4"`, withVolume},
	"pools.<name>.nics[].bridge":                  {`"vmbr1"`, ""},
	"pools.<name>.nics[].vlan":                    {`7`, ""},
	"pools.<name>.nics[].mtu":                     {`9000`, ""},
	"pools.<name>.nics[].firewall":                {`true`, ""},
	"pools.<name>.machine":                        {`"i440fx"`, ""},
	"pools.<name>.firmware":                       {`"seabios"`, ""},
	"pools.<name>.tpm":                            {`true`, ""},
	"pools.<name>.scsiController":                 {`"virtio-scsi-single"`, ""},
	"pools.<name>.serial":                         {`true`, ""},
	"pools.<name>.onBoot":                         {`false`, ""},
	"pools.<name>.startup.order":                  {`3`, ""},
	"pools.<name>.startup.upDelaySeconds":         {`3`, ""},
	"pools.<name>.startup.downDelaySeconds":       {`3`, ""},
	"pools.<name>.protection":                     {`true`, ""},
	"pools.<name>.tags":                           {`["a"]`, ""},
	"pools.<name>.resourcePool":                   {`"a"`, ""},
	"pools.<name>.labels":                         {`{"a": "b"}`, ""},
	"pools.<name>.taints":                         {`{"a": "b:NoSchedule"}`, ""},
	"pools.<name>.annotations":                    {`{"a": "b"}`, ""},

	"tailscale.pools":             {`["worker"]`, withTailscale},
	"tailscale.loginServer":       {`"https://a.lan"`, withTailscale},
	"tailscale.advertiseEndpoint": {`true`, `{"image": {"factory": {"extensions": ["tailscale"]}}, "tailscaleAuthKey": "tskey-auth-k1", "tailscale": {}, "cluster": {"endpoint": {"mode": "vip", "address": "10.0.0.9"}}}`},
	"firewall.enabled":            {`true`, ""},
	"firewall.apiFrom":            {`["10.7.0.0/16"]`, withFirewall},
	"firewall.open[].name":        {`"other"`, withFirewall},
	"firewall.open[].ports":       {`444`, withFirewall},
	"firewall.open[].protocol":    {`"udp"`, withFirewall},
	"firewall.open[].from":        {`["10.7.0.0/16"]`, withFirewall},
	"firewall.open[].pools":       {`["worker"]`, withFirewall},
	"outputs.legacy":              {`true`, ""},
	"outputs.workerConfiguration": {`"worker"`, ""},

	"lifecycle.kubeconfigRenewal":        {`"800h"`, ""},
	"lifecycle.keepImages":               {`true`, ""},
	"lifecycle.teardown":                 {`true`, `{"environment": "production"}`},
	"lifecycle.replace":                  {`["c-worker-1"]`, ""},
	"outputs.files.write":                {`["kubeconfig"]`, `{"outputs": {"files": {"write": ["talosconfig"]}}}`},
	"outputs.files.dir":                  {`"./files"`, `{"outputs": {"files": {"write": ["talosconfig"]}}}`},
	"placement.reserve.memoryMiB":        {`11000`, withCapacity},
	"placement.reserve.vcpu":             {`5`, withCapacity},
	"proxmox.hosts[].capacity.memoryMiB": {`4096`, withCapacity},
	"proxmox.hosts[].capacity.vcpu":      {`2`, withCapacity},
	"proxmox.hosts[].reserve.memoryMiB":  {`60000`, withCapacity},
	"proxmox.hosts[].reserve.vcpu":       {`60`, withCapacity},
	"lifecycle.taskTimeout":              {`"5m"`, ""},
}

// withCapacity is a host that would have all nodes but the GPU's, and one that takes what it has no room for.
const withCapacity = `{"proxmox": {"hosts": [{"name": "pve1", "capacity": {"vcpu": 64, "memoryMiB": 65536}},
	{"name": "pve2", "capacity": {"vcpu": 8, "memoryMiB": 16384}}]}, "pools": {"worker": {"nodes": null, "count": 3}}}`

const withPoolISO = `{"image": {"source": "iso", "iso": {"url": "https://a.lan/a.iso"}}, "network": {"addressing": "reserved"},
	"pools": {"worker": {"image": {"iso": {"url": "https://b.lan/a.iso"}}}}}`

// elsewhere are keys that register nothing by themselves, with the test that observes them.
var elsewhere = map[string]string{
	"backupPassphrase":                     "TestEncrypted",
	"machineSecrets":                       "TestMachineSecrets",
	"k3sIdentity":                          "TestK3sIdentity",
	"k3sToken":                             "TestSameToken",
	"cluster.bootstrap":                    "TestExternal",
	"pools.<name>.ballooning":              "TestShape",
	"cluster.cni.loadBalancer.mode":        "TestLoadBalancer",
	"cluster.endpoint.mode":                "TestNextSteps",
	"cluster.ha":                           "TestControlPlanesComeAndGo",
	"cluster.kind":                         "TestK3sWiring",
	"cluster.recoverFrom":                  "TestQuorumLost",
	"cluster.versions.k3s":                 "TestK3sOutputs",
	"image.cloudImage.checksum":            "TestK3sMachines",
	"image.cloudImage.url":                 "TestK3sMachines",
	"image.cloudImage.volume":              "TestK3sMachines",
	"image.template.allowNonCanonicalName": "TestRefused",
	"image.template.parallelClones":        "TestParallelClones",
	"k3s.agentArgs":                        "TestUserData",
	"k3s.aptMirror":                        "TestMirrors",
	"k3s.checksum":                         "TestInstall",
	"k3s.clusterCIDR":                      "TestK3sNetworks",
	"k3s.disable":                          "TestUserData",
	"k3s.generateSSHKey":                   "TestK3sOutputs",
	"k3s.installChecksum":                  "TestInstall",
	"k3s.mirror":                           "TestInstallFromMirror",
	"k3s.packages":                         "TestDiffer",
	"k3s.serverArgs":                       "TestDiffer",
	"k3s.serviceCIDR":                      "TestK3sNetworks",
	"k3s.sshKeys":                          "TestUserData",
	"k3s.startTimeout":                     "TestStartTimeout",
	"k3s.upgradePackages":                  "TestUserData",
	"k3s.user":                             "TestUserData",
	"lifecycle.acceptEmptyCluster":         "TestMadeAgain",
	"lifecycle.agentTimeout":               "TestSilentAgent",
	"lifecycle.apply":                      "TestConfigurationChanges",
	"lifecycle.backup.dir":                 "TestStore",
	"lifecycle.backup.enabled":             "TestQuorumLost",
	"lifecycle.backup.keep":                "TestStore",
	"lifecycle.backup.recipients":          "TestEncrypted",
	"lifecycle.backup.timeout":             "TestSaveCutOff",
	"lifecycle.bootstrapWaitsForWorkers":   "TestWithoutDiscovery",
	"lifecycle.drainTimeout":               "TestDrainIsBounded",
	"lifecycle.forceRemove":                "TestDeadNodes",
	"lifecycle.nodeTimeout":                "TestNoSecondEtcd",
	"lifecycle.readyTimeout":               "TestEndpointGate",
	"lifecycle.settleTimeout":              "TestSickNodesLeave",
	"lifecycle.upgrade.canary":             "TestAssignOrder",
	"lifecycle.upgrade.maxUnavailable":     "TestAssignOrder",
	"lifecycle.upgrade.timeout":            "TestUpgradeOfTwenty",
	"placement.rebalance":                  "TestMigratedNode",
	"pools.<name>.ha":                      "TestHARules",
	"pools.<name>.ha.apart":                "TestHARules",
	"pools.<name>.ha.hosts":                "TestHARules",
	"pools.<name>.ha.strict":               "TestHARules",
	"pools.<name>.haGroup":                 "TestShape",
	"proxmox.ssh.hostKeys":                 "TestHostKeys",
	"proxmox.storage.snippets":             "TestK3sIdentity",
	"proxmox.username":                     "TestRawGPU",
	"proxmoxPassword":                      "TestRawGPU",
}

// TestEachKeyIsObserved: each key has a value that changes what is registered or exported, or a test that observes what
// it does.
func TestEachKeyIsObserved(t *testing.T) {
	shape := regexp.MustCompile(`^(defaults|pools\.<name>\.(nodes|gpus)\.<name>)\.`)
	own := func(key string) bool {
		name := shape.ReplaceAllString(key, "")
		_, pools := samples["pools.<name>."+name]
		if !pools {
			_, pools = elsewhere["pools.<name>."+name]
		}

		return pools && name != key // the same key as of the pool: TestShape merges them
	}

	all := keysOfSchema(t)
	keys := slices.Sorted(maps.Keys(all))

	for _, key := range keys {
		below := slices.ContainsFunc(keys, func(other string) bool {
			return strings.HasPrefix(other, key+".") || strings.HasPrefix(other, key+"[]")
		})
		s, sampled := samples[key]

		switch test, there := elsewhere[key]; {
		case there && sampled:
			t.Errorf("%s is in both tables", key)
		case there:
			requireTest(t, key, test)
		case sampled:
			t.Run(key, func(t *testing.T) { requireObserved(t, observedBase, key, s) })
		case below, own(key):
		default:
			t.Errorf("nothing observes %s: give it a value in samples, or name its test in elsewhere", key)
		}
	}

	for _, table := range [][]string{slices.Collect(maps.Keys(samples)), slices.Collect(maps.Keys(elsewhere))} {
		for _, key := range table {
			if all[key] == nil {
				t.Errorf("%s is no key", key)
			}
		}
	}
}

// platform begins the keys that mean the same for K3s.
var platform = regexp.MustCompile(`^(csiToken|gitOpsKey|ageKey|secretManifests|registryLogins|` +
	`cluster\.(addons|gitOps|manifest|registry|trustedCAs|proxy|apiServer|region|cni\.loadBalancer|endpoint\.names))`)

// TestEachPlatformKeyIsObservedOnK3s: what clusters of Talos and of K3s bring to their users has the same keys.
func TestEachPlatformKeyIsObservedOnK3s(t *testing.T) {
	for key, s := range samples {
		// K3s takes the path of a mirror as it stands, whatever is said of it.
		if platform.MatchString(key) && !strings.HasSuffix(key, ".overridePath") {
			t.Run(key, func(t *testing.T) { requireObserved(t, observedK3s, key, s) })
		}
	}
}

func requireObserved(t *testing.T, base, key string, s sample) {
	t.Helper()

	read := func(text string, into any) {
		for placeholder, made := range placeholders() {
			quoted, err := json.Marshal(made)
			require.NoError(t, err)

			text = strings.ReplaceAll(text, `"`+placeholder+`"`, string(quoted))
		}

		require.NoError(t, json.Unmarshal([]byte(text), into))
	}
	tree := func(parts ...string) map[string]any {
		all := map[string]any{}
		for _, text := range parts {
			var part map[string]any
			read(text, &part)
			overlay(all, part)
		}

		return all
	}

	parts := []string{base}
	if s.with != "" {
		parts = append(parts, s.with)
	}

	var value any
	read(s.value, &value)

	path := strings.NewReplacer("pools.<name>.gpus.<name>", "pools.gpu.gpus.1", "pools.<name>.gpus", "pools.gpu.gpus",
		"pools.<name>.nodes.<name>", "pools.worker.nodes.1", "pools.<name>", "pools.worker",
		"registryOptions.<name>", "registryOptions/docker.io").Replace(key)
	steps := strings.Split(strings.ReplaceAll(path, "[]", ".0"), ".")

	for i := range steps { // the name of a registry has dots
		if strings.Contains(steps[i], "/") {
			steps = slices.Concat(steps[:i], []string{"registryOptions", "docker.io"}, steps[i+2:])

			break
		}
	}

	with := tree(parts...)
	set(with, steps, value)

	if reflect.DeepEqual(deployed(t, tree(parts...)), deployed(t, with)) {
		t.Errorf("%s: %s changes nothing", key, s.value)
	}
}

// placeholders stand for texts that are made for the test.
var placeholders = sync.OnceValue(func() map[string]string {
	key := func() string {
		_, private, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			panic(err)
		}

		block, err := ssh.MarshalPrivateKey(private, "")
		if err != nil {
			panic(err)
		}

		return string(pem.EncodeToMemory(block))
	}

	certificate, err := base64.StdEncoding.DecodeString(clientCertificate())
	if err != nil {
		panic(err)
	}

	identity, err := age.GenerateX25519Identity()
	if err != nil {
		panic(err)
	}

	return map[string]string{"KEY": key(), "OTHER": key(), "CA": string(certificate), "AGE": identity.String()}
})

// overlay merges trees; null takes away.
func overlay(base, over map[string]any) {
	for key, value := range over {
		below, isMap := value.(map[string]any)
		at, wasMap := base[key].(map[string]any)

		switch {
		case value == nil:
			delete(base, key)
		case isMap && wasMap:
			overlay(at, below)
		default:
			base[key] = value
		}
	}
}

// deployed is all that a configuration registers and exports.
func deployed(t *testing.T, tree map[string]any) map[string]any {
	t.Helper()

	values := map[string]string{}

	for key, v := range tree {
		text, ok := v.(string)
		if !ok {
			b, err := json.Marshal(v)
			require.NoError(t, err)

			text = string(b)
		}

		values[key] = text
	}

	c, err := config.Decode(values, Secrets{}, t.TempDir())
	require.NoError(t, err)
	p, err := c.Plan()
	require.NoError(t, err)

	exported := make(chan string, 1)
	all := map[string]any{}

	for name, r := range record(t, func(ctx *pulumi.Context) error {
		d, err := deployTo(ctx, c, p, observedProxmox{emptyProxmox{plan: p}})
		if err != nil {
			return err
		}

		d.Outputs.ToMapOutput().ApplyT(func(outputs map[string]any) error {
			text, err := json.Marshal(outputs)
			exported <- string(text)

			return err
		})

		return nil
	}) {
		all[name] = r
	}

	all["outputs"] = <-exported

	return all
}

// observedProxmox has templates, too.
type observedProxmox struct{ emptyProxmox }

func (observedProxmox) VMs(context.Context) ([]proxmoxapi.VM, error) {
	var all []proxmoxapi.VM
	for i, host := range []string{"pve1", "pve2"} {
		for j, name := range []string{"one", "two"} {
			all = append(all, proxmoxapi.VM{ID: 9000 + 10*i + j, Name: name, Host: host, Template: true})
		}
	}

	return all, nil
}

func (observedProxmox) Config(context.Context, proxmoxapi.VM) (proxmoxapi.VMConfig, error) {
	return proxmoxapi.VMConfig{Disks: map[string]int{"scsi0": 10}, Machine: "q35"}, nil
}

func (observedProxmox) Files(context.Context, string, string) (map[string]int64, error) {
	return map[string]int64{"local:iso/talos-1.12.4.iso": 100 << 20, "local:iso/a.iso": 100 << 20}, nil
}

func (o observedProxmox) Stores(ctx context.Context, host string) (map[string]proxmoxapi.Store, error) {
	stores, err := o.emptyProxmox.Stores(ctx, host)
	stores["nfs"] = stores["local"]

	return stores, err
}

// requireTest holds that a test is there.
func requireTest(t *testing.T, key, test string) {
	t.Helper()

	found := false

	for _, dir := range []string{".", "../tests", "../components"} {
		require.NoError(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			if err != nil || found || !strings.HasSuffix(path, "_test.go") {
				return err
			}

			text, err := os.ReadFile(path)
			found = found || strings.Contains(string(text), "func "+test+"(")

			return err
		}))
	}

	assert.True(t, found, "%s: there is no test %s", key, test)
}
