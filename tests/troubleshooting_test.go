package tests

import (
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// remedied is what is known of a row of the page about troubleshooting.
type remedied struct {
	// provoked are tests whose file holds the message; followed are those that do what the row says.
	provoked, followed []string
	// foreign says whose message it is, if not the program's.
	foreign string
	// why says why no test does what the row says, or that it asks for nothing.
	why string
}

func by(tests ...string) []string { return tests }

// remedies has each row of the tables of messages, by page and first column.
var remedies = map[string]map[string]remedied{
	"troubleshooting.md": troubleshooting, "k3s.md": k3sMessages, "day2.md": removalMessages,
}

// k3sMessages are those of K3s nodes that do not join.
var k3sMessages = map[string]remedied{
	`"unsupported operating system"`: {by("TestK3sGoesOn"), by("TestK3sGoesOn"), "", ""},
	`"there is no release"`:          {by("TestK3sGoesOn"), by("TestK3sGoesOn", "TestK3s"), "", ""},
	`"there is no package"`: {
		by("TestInstall"), nil, "", "the lab's archive has every package; TestK3sGoesOn recreates a cluster",
	},
	`"the installation of the package … failed; it is tried again"`: {by("TestK3sGoesOn"), by("TestK3sGoesOn"), "", ""},
	`"the download of … failed; it is tried again"`:                 {by("TestK3sGoesOn"), by("TestK3sGoesOn"), "", ""},
	`"does not have the checksum of sha256sum-amd64.txt"`: {
		by("TestInstallFromMirror"), nil, "", "it asks to copy files to a mirror",
	},
	`"does not have the checksum that k3s.installChecksum states"`: {by("TestK3sHA"), by("TestK3sHA"), "", ""},
	`"the k3s binary does not have the checksum"`:                  {by("TestK3sGoesOn"), by("TestK3sGoesOn"), "", ""},
	`"does not come up; its log ends with"`:                        {by("TestK3sGoesOn"), by("TestK3sGoesOn"), "", ""},
	`"its servers reject its token"`:                               {by("TestK3s"), by("TestK3s"), "", ""},
	`"its servers have a different certificate authority"`: {
		by("TestAdvice"), nil, "", "a unit test has the message; TestK3s does what the row above says",
	},
	`"its clock or that of its servers is wrong"`: {by("TestK3sCertificates"), by("TestK3sCertificates"), "", ""},
	`"its settings differ from those of the server that it joins at"`: {
		by("TestK3sUnknownSettings"), by("TestK3sUnknownSettings"), "", "",
	},
	`"its cloud-init has failed"`:         {by("TestJoinWaitsForCloudInit"), nil, "", "it asks to read a log"},
	`"the machine's logs cannot be read"`: {by("TestJoinFails"), nil, "", "it asks to read logs over SSH"},
	`"its certificate has expired at"`:    {by("TestK3sCertificates"), by("TestK3sCertificates"), "", ""},
	`"it does not accept the administrator's certificate"`: {
		by("TestK3sCertificates"), by("TestK3sCertificates"), "", "",
	},
	`an agent stays NotReady after K3s ran for a year without a restart`: {nil, by("TestK3sCertificates"), "", ""},
	`"the manifests of the cluster were not applied"`:                    {by("TestK3sManifests"), by("TestK3sManifests"), "", ""},
	`a file that cannot be transferred`:                                  {nil, by("TestK3sGoesOn"), "", ""},
}

// removalMessages are those of nodes that are removed or replaced.
var removalMessages = map[string]remedied{
	`"… control planes would stay, and etcd needs …"`: {
		by("TestK3sServersComeAndGo", "TestControlPlanesComeAndGo"), by("TestK3sServersComeAndGo"), "", "",
	},
	`"the etcd member … is not healthy"`: {
		by("TestSickNodesLeave"), by("TestSickNodesLeave", "TestCheckedAgainAfterTheDrain"), "", "",
	},
	`"… is joining etcd and has no vote yet"`:    {by("TestSickEtcd"), by("TestSickEtcd"), "", ""},
	`"could not be drained … has not ended yet"`: {by("TestSickNodesLeave"), by("TestSickNodesLeave"), "", ""},
	`"could not be drained … is not evicted"`:    {by("TestDrainIsBounded"), by("TestDrainIsBounded"), "", ""},
	`"it was drained, and is uncordoned again"`:  {by("TestCheckedAgainAfterTheDrain"), by("TestCheckedAgainAfterTheDrain"), "", ""},
	`"is blocked by the disruption budget"`:      {by("TestDrainIsBounded"), by("TestDrainIsBounded"), "", ""},
	`"It has already left"`:                      {by("TestRemovalIsContinued"), by("TestRemovalIsContinued"), "", ""},
	`"… is not in Kubernetes" or "… not a member of etcd", a warning at the end of an update`: {
		by("TestMissingNodes"), by("TestMissingNodes"), "", "",
	},
	`"not started: … failed"`: {by("TestFailedUpdateEndsItsTurn"), by("TestFailedUpdateEndsItsTurn"), "", ""},
}

// troubleshooting are those of the page that is about nothing else.
var troubleshooting = map[string]remedied{
	// Checks before anything is created.
	`"refuses the credentials"`:                              {by("TestRefused"), by("TestRefused"), "", ""},
	`"cannot be reached"`:                                    {by("TestRefused"), by("TestRefused"), "", ""},
	`"shows a certificate that this machine does not trust"`: {by("TestRefused"), by("TestRefused"), "", ""},
	`"is not on host"`:                                       {by("TestRefused"), by("TestRefused"), "", ""},
	`"not a template: it was never finalised"`:               {by("TestRefused"), by("TestRefused"), "", ""},
	`"must be a template without firewall rules"`:            {by("TestFirewall"), by("TestFirewall"), "", ""},
	`"is taken by"`:                                          {by("TestRefused", "TestForeignVM"), by("TestRefused"), "", ""},
	`"has no VM, but disks on host"`:                         {by("TestLeftDisk"), by("TestLeftDisk"), "", ""},
	`"does not answer, though the cluster sees it"`:          {by("TestHostDown"), by("TestHostDown"), "", ""},
	`"is to be changed, and its host … does not answer"`:     {by("TestHostDown"), by("TestHostDown"), "", ""},
	`"its owner is unknown"`:                                 {by("TestHostDown"), by("TestHostDown"), "", ""},
	`"is in use on this Proxmox VE by VM"`:                   {by("TestNameInUse"), by("TestNameInUse"), "", ""},
	`"has no effect on Proxmox VE yet: the firewall of its datacenter is off"`: {
		by("TestFirewall"), by("TestFirewall"), "", "",
	},
	`"have no room for"`: {
		nil, nil, "",
		"TestInvalidConfigs has the message in stacks/config/testdata/wrong: it asks for another configuration, or more hardware",
	},
	`"the credentials lack"`:              {by("TestPrivilegeOfAChange"), by("TestPrivilegeOfAChange"), "", ""},
	`"a machine answers there already"`:   {by("TestImpostorBeforeCreation"), by("TestImpostorBeforeCreation"), "", ""},
	`"has a clock that is"`:               {by("TestClocks"), by("TestClocks"), "", ""},
	`"is in use by"`:                      {by("TestGPUOfExistingNode"), nil, "", "it asks the operator to decide who has the GPU"},
	`"a node keeps its name"`:             {by("TestFindTemplates"), by("TestExternalByHand", "TestChangedByHand"), "", ""},
	`"leaves the ISO file in the drives"`: {by("TestExternalByHand"), by("TestExternalByHand"), "", ""},
	"`cdrom.enabled` \"is deprecated\"":   {nil, nil, "the provider's", "no action is needed"},
	`"and holds files of"`:                {by("TestEndpointGate"), by("TestEndpointGate"), "", ""},
	`"must be the same on all servers of a K3s cluster"`: {
		by("TestK3sSharedSettings"), by("TestK3sSharedSettings"), "", "",
	},
	`"could not be compared with the settings of"`: {
		by("TestK3sSharedSettings"), nil, "", "it asks the operator to compare files",
	},
	`"is an option that 'k3s server' does not have"`: {
		by("TestK3sArguments"), by("TestK3sArguments"), "", "",
	},
	`"is not a key of"`: {by("TestCompiledProgram", "TestRefused"), by("TestCompiledProgram"), "", ""},

	// Node creation.
	`a node's address is unknown, and missing from the contract`: {
		nil, by("TestReportedAddress"), "", "",
	},
	`"reports no address inside network.cidr"`: {by("TestAskAgent", "TestSilentAgent"), by("TestSilentAgent"), "", ""},
	`"reports several addresses inside"`: {
		by("TestChooseAddress"), nil, "",
		"a unit test has the message; the lab's nodes have one address on their network",
	},
	`"waiting for … to answer at"`:                 {by("TestClocks"), by("TestEndpointGate", "TestClocks"), "", ""},
	`"its clock or that of this machine is wrong"`: {by("TestClocks"), by("TestClocks"), "", ""},
	`"is planned with another address than its guest agent reports"`: {
		by("TestReportedAddress"), by("TestReportedAddress"), "", "",
	},
	`"another machine answers at"`: {
		by("TestImpostorBeforeCreation"), by("TestImpostorBeforeCreation", "TestImpostorBetweenChanges"), "", "",
	},
	`"another node of the cluster answers at"`: {by("TestSwappedAddresses"), by("TestSwappedAddresses"), "", ""},
	`"has lost its configuration"`:             {by("TestRemediesOfCreation"), by("TestRemediesOfCreation"), "", ""},
	`"gave up after"`:                          {by("TestNoSecondEtcd"), by("TestNoSecondEtcd", "TestClocks"), "", ""},
	`etcd of a control plane stays "running, not healthy yet", or preparing`: {
		by("TestSickEtcd"), by("TestSickEtcd"), "", "",
	},
	`"that is not an image"`:          {by("TestBadImages"), by("TestBadImages"), "", ""},
	`"cannot get the image"`:          {by("TestMissingImage"), by("TestMissingImage"), "", ""},
	`a GPU node does not start`:       {nil, nil, "", "it needs a GPU"},
	`a worker runs, but is not Ready`: {nil, nil, "", "it asks for a CNI of the operator's own"},

	// Interrupted and failed updates.
	"`pulumi up` was interrupted, or a request failed": {nil, by("TestInterrupted", "TestSweep"), "", ""},
	`"is … already, but not in this stack's state"`: {
		by("TestCheckVMIDFree"), by("TestTwoCopies", "TestFullStateDisk"), "", "",
	},
	`"a run was interrupted while it created the VM"`:         {by("TestRemediesOfCreation"), by("TestRemediesOfCreation"), "", ""},
	`"which the state has, because an earlier update failed"`: {by("TestRefusedChange"), by("TestRefusedChange"), "", ""},
	`"is not as the state says"`:                              {by("TestRefusedChange"), by("TestRefusedChange"), "", ""},
	`"is a copy of a template without its settings"`: {
		by("TestWithoutSettings"), by("TestSweep"), "", "",
	},
	`"does not start"`: {by("TestFailedRestart"), by("TestFailedRestart"), "", ""},
	`"an upgrade of it was interrupted and then reverted"`: {
		by("TestFinalCheckOfVersions"), nil, "", "the update that follows it is an upgrade, or a replacement",
	},
	`"settings of VM … wait for its restart"`: {by("TestRemediesOfChanges", "TestFailedRestart"), by("TestRemediesOfChanges"), "", ""},
	`"is not finished: disk"`:                 {by("TestRemediesOfCreation"), by("TestRemediesOfCreation"), "", ""},
	`"is not finished: the state does not know its disks"`: {
		by("TestRemediesOfChanges"), by("TestRemediesOfChanges"), "", "",
	},
	`Proxmox VE says that a pci ID is "already defined"`: {
		nil, nil, "Proxmox VE's", "the operator of the sweep does it, where a run is cut off at that moment: go run ./tests/chaos/sweep",
	},
	`"it is unknown whether the request was carried out"`: {by("TestRemediesOfChanges"), by("TestRemediesOfChanges"), "", ""},
	`"a proxy may have answered in its place"`:            {by("TestRemediesOfChanges"), by("TestRemediesOfChanges"), "", ""},
	`"still runs: gave up after"`:                         {by("TestHungTask"), by("TestHungTask"), "", ""},
	`"it asks to wait for"`:                               {by("TestRemediesOfChanges"), by("TestRemediesOfChanges"), "", ""},
	`"it refuses its configuration"`:                      {by("TestRejectedConfiguration"), by("TestRejectedConfiguration"), "", ""},
	`"and Talos would not open it at the next boot"`: {
		by("TestRunningEncryption"), nil, "",
		"a unit test has the message; it asks the operator to revert the change",
	},
	`"exited prematurely", with no output below it, at the end of an update`: {
		nil, nil, "Pulumi's", "it happens by chance, on a machine that is too slow",
	},
	`"does not serve with its changed configuration"`: {
		by("TestLiveChangesOfControlPlanes", "TestLiveChangesOfKubelets"),
		by("TestLiveChangesOfControlPlanes", "TestLiveChangesOfKubelets"), "", "",
	},
	`"which Talos may not allow to be changed"`: {
		by("TestLiveChangesOfControlPlanes", "TestLiveChangesOfKubelets"),
		by("TestLiveChangesOfControlPlanes", "TestLiveChangesOfKubelets"), "", "",
	},
	`"no second etcd cluster is bootstrapped"`: {by("TestNoSecondEtcd"), by("TestNoSecondEtcd"), "", ""},

	// State and lock.
	`the stack is locked`: {nil, by("TestSweep"), "", ""},
	"\"fatal error: concurrent map iteration and map write\", with a stack trace of `pulumi`": {
		nil, nil, "Pulumi's", "it happens by chance; the steps are those after a killed CLI, which TestSweep follows",
	},
	`"failed to load checkpoint: EOF"`:                             {by("TestRestore"), by("TestRestore"), "", ""},
	"files of `outputs.files` cannot be written: no space is left": {nil, by("TestFullProjectDisk"), "", ""},
	`a snapshot of etcd cannot be written: no space is left`:       {nil, by("TestFullProjectDisk"), "", ""},
	`"no space left on device", when a local backend writes the state`: {
		nil, by("TestFullStateDisk"), "the system's", "",
	},
	`the state is lost, or damaged`:                                {nil, by("TestRecover", "TestRestore"), "", ""},
	`after a refresh, Pulumi wants to create an image that exists`: {nil, by("TestForgottenImage"), "", ""},
	"a deletion, or a node of a `destroy`, ends with \"does not exist\"": {
		by("TestGoneVM", "TestTwoCopies"), by("TestGoneVM", "TestTwoCopies"), "", "",
	},

	// Lost or changed VMs and clusters.
	`a VM was deleted by hand`: {nil, by("TestMadeAgain"), "", ""},
	`an HA resource, a resource mapping, or the firewall of a VM was changed or removed by hand`: {
		nil, by("TestChangedByHand"), "", "",
	},
	`"has a firewall rule that this program has not written"`: {by("TestFirewall"), by("TestChangedByHand"), "", ""},
	`a VM was removed from its resource pool by hand`:         {nil, by("TestChangedByHand"), "", ""},
	`"lost its tags"`: {by("TestChangedByHand"), by("TestChangedByHand"), "", ""},
	`a VM was migrated by hand, or by high availability`: {nil, by("TestMigratedNode"), "", ""},
	`"It is not touched"`:                                {by("TestForeignVM"), by("TestForeignVM"), "", ""},
	`"the notes of the VM do not state its UUID"`: {
		by("TestCheckSetUp"), by("TestIdentityWithoutNotes", "TestForeignTwinRefreshed"), "", "",
	},
	`"etcd is lost"`: {by("TestMadeAgain"), by("TestMadeAgain", "TestQuorumLost"), "", ""},
	`"and it is unknown whether it needs …"`: {
		by("TestQuorumLost"), by("TestQuorumLost"), "", "",
	},
	`"etcd takes no writes, because … is out of space"`:    {by("TestSickEtcd"), by("TestSickEtcd"), "", ""},
	`"etcd takes no writes, because the data of … differ"`: {by("TestCorruptEtcd"), by("TestCorruptEtcd"), "", ""},
	`"etcd takes no writes, because its members have different data"`: {
		by("TestCheckDisruption"), nil, "",
		"a unit test has the message; TestQuorumLost restores a snapshot where etcd has lost its quorum",
	},
	`"is a newer snapshot of this cluster"`: {by("TestQuorumLost"), by("TestQuorumLost"), "", ""},
	`"cluster.recoverFrom is still …", a warning`: {
		by("TestQuorumLost"), by("TestQuorumLost"), "", "",
	},
	`"planned members (missing: …"`:                {by("TestMissingNodes"), by("TestMissingNodes"), "", ""},
	`"these are not in Kubernetes: …"`:             {by("TestMissingNodes"), by("TestMissingNodes"), "", ""},
	`"run members of two different etcd clusters"`: {by("TestTwoEtcds"), by("TestTwoEtcds"), "", ""},
	`an image of a removed cluster is still on a host`: {
		nil, nil, "", "the provider loses it without a message: a known limit",
	},
	`"is no longer in the state, and"`: {
		by("TestCheckDeleted", "TestCheckMappingDeleted"), by("TestSweep"), "", "",
	},

	// Removal and replacement.
	`"is not removed"`: {
		by("TestSickNodesLeave", "TestDrainIsBounded"), by("TestSickNodesLeave", "TestDrainIsBounded"), "", "",
	},
	`a node cannot be repaired`:                                {nil, by("TestDeadNodes", "TestSickNodesLeave"), "", ""},
	`"is in the configuration, so its machine is not removed"`: {by("TestK3sIsKept"), by("TestK3sIsKept"), "", ""},
	`Pulumi refuses to destroy, because of delete hooks`:       {nil, by("TestForeignVM"), "", ""},
	`Pulumi refuses to delete or replace a protected resource`: {nil, by("TestCompiledProgram"), "", ""},
	`"a disk is not removed from a VM"`:                        {by("TestDiskRemoved"), by("TestDiskRemoved"), "", ""},
	`"has left the cluster, and its VM is still there"`:        {by("TestHostDown"), by("TestHostDown"), "", ""},
	`"cannot be deleted: it is"`:                               {by("TestHostDown"), by("TestHostDown"), "", ""},
}

// sourcesOf reads the Go and shell files of the repository: of the program, and of the tests by their functions. Texts
// that are put together of several literals are one.
func sourcesOf(t *testing.T) (program string, tests map[string]string) {
	t.Helper()

	var all strings.Builder

	joint := regexp.MustCompile("[\"`]\\s*\\+\\s*[\"`]")
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	tests = map[string]string{}

	for _, dir := range []string{"components", "stacks", "tests", "policy"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, ".sh") {
				return err
			}

			text := joint.ReplaceAllString(string(readFile(t, path)), "")

			switch {
			case strings.HasSuffix(path, "_test.go"):
				for _, m := range function.FindAllStringSubmatch(text, -1) {
					tests[m[1]] += text
				}
			case dir == "components" || dir == "stacks":
				all.WriteString(text)
			}

			return nil
		})
		require.NoError(t, err)
	}

	return all.String(), tests
}

// tableOfMessages is a table of two columns whose first one is messages.
var tableOfMessages = regexp.MustCompile(`(?m)^\| Message(?: or symptom)? \| .+\n\|---\|---\|\n((?:\|.+\n)+)`)

// TestRemediesAreFollowed: each row of the tables of messages quotes what the program says, and names, here, the tests
// that have the message said and those that do what the row says.
func TestRemediesAreFollowed(t *testing.T) {
	t.Parallel()

	program, tests := sourcesOf(t)

	for page, known := range remedies {
		t.Run(page, func(t *testing.T) {
			t.Parallel()

			var rows []string

			for _, table := range tableOfMessages.FindAllStringSubmatch(string(readFile(t,
				filepath.Join(root, "stacks", "docs", page))), -1) {
				for _, m := range regexp.MustCompile(`(?m)^\| (.+?) \| (.+) \|$`).FindAllStringSubmatch(table[1], -1) {
					rows = append(rows, m[1])
				}
			}

			assert.ElementsMatch(t, slices.Collect(maps.Keys(known)), rows, "which test does what a row says?")

			for row, r := range known {
				r.require(t, row, program, tests)
			}
		})
	}
}

// require holds that a row quotes the program, and that the tests are there that it is tried by.
func (r remedied) require(t *testing.T, row, program string, tests map[string]string) {
	t.Helper()

	for _, q := range regexp.MustCompile(`"([^"]+)"`).FindAllStringSubmatch(row, -1) {
		for part := range strings.SplitSeq(q[1], "…") {
			part = strings.TrimSpace(part)

			assert.True(t, r.foreign != "" || strings.Contains(program, part), "%s: the program does not say %q", row, part)
			assert.True(t, len(r.provoked) == 0 || slices.ContainsFunc(r.provoked, func(name string) bool {
				return strings.Contains(tests[name], part)
			}), "%s: none of %v has %q said", row, r.provoked, part)
		}
	}

	for _, name := range slices.Concat(r.provoked, r.followed) {
		assert.Contains(t, tests, name, "%s names a test that does not exist", row)
	}

	assert.NotEqual(t, r.why == "", len(r.followed) == 0, "%s: name a test, or say why there is none", row)

	if r.why != "" {
		t.Logf("not followed by a test: %s: %s", row, r.why)
	}
}
