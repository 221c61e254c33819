package talos

import (
	"context"
	"errors"
	"fmt"

	"github.com/blang/semver/v4"
	"github.com/google/uuid"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"
)

// Upgrade replaces the installed system by that of an installer, and restarts (Talos: v1alpha1_server.go).
func (s *machined) Upgrade(ctx context.Context, in *machineapi.UpgradeRequest) (*machineapi.UpgradeResponse, error) {
	n := s.node

	image, err := n.pullInstaller(ctx, in.GetImage())
	if err != nil {
		return nil, fmt.Errorf("error validating installer image %q: %w", in.GetImage(), err)
	}

	if n.controlPlane() && !in.GetForce() {
		c, err := n.anyEtcd(ctx)
		if err != nil {
			return nil, fmt.Errorf("failed to create etcd client: %w", err)
		}

		if err := c.validForUpgrade(); err != nil {
			return nil, fmt.Errorf("error validating etcd for upgrade: %w", err)
		}
	}

	c := command{sequence: "upgrade", actor: uuid.NewString(), then: kexec}
	if in.GetRebootMode() == machineapi.UpgradeRequest_POWERCYCLE {
		c.then = hardReset
	}

	if in.GetStage() {
		n.store(func(i *Installed) { i.staged = image })
		c.sequence = "stageUpgrade"
	} else {
		c.drain = !n.config().K8sNodeConfig().SkipNodeRegistration()
		c.before = func() error { return n.upgrade(c.actor, image) }
	}

	n.do(c)

	return &machineapi.UpgradeResponse{Messages: []*machineapi.Upgrade{{
		Ack:     "Upgrade request received",
		ActorId: c.actor,
	}}}, nil
}

// validForUpgrade is what Talos asks of etcd before a control plane is upgraded (Talos: internal/pkg/etcd/etcd.go,
// ValidateForUpgrade).
func (c *etcdCluster) validForUpgrade() error {
	members, err := c.list()
	if err != nil {
		return err
	}

	if len(members) == 2 {
		return fmt.Errorf("etcd member count(%d) is insufficient to maintain quorum if upgrade commences", len(members))
	}

	for _, m := range members {
		if !m.started {
			return fmt.Errorf("etcd member %016x is not started, all members must be running to perform an upgrade", m.id)
		}

		err := c.answers(m.id)
		if !m.connected() {
			err = context.DeadlineExceeded
		}

		if err != nil {
			return fmt.Errorf("etcd member %016x is not healthy; all members must be healthy to perform an upgrade: %w", m.id,
				err)
		}
	}

	return nil
}

// upgrade is the part of the sequence in which the installer runs: what runs on the node has ended before.
func (n *node) upgrade(actor string, image *Image) error {
	n.fw.history.note(n.name(), Upgraded, n.image.describe()+" to "+image.describe())
	n.task("stopAllPods", actor)

	if n.controlPlane() {
		n.stopEtcd(false)
	}

	n.services.set("kubelet", stateFinished, "Service finished successfully", nil)
	n.leaveKubernetes()

	if !n.wait("install", n.fw.opts.Latencies.Install) {
		return nil // the power is gone, and nothing is written
	}

	if err := n.runInstaller(image); err != nil {
		n.fw.history.note(n.name(), UpgradeFailed, err.Error())

		return fmt.Errorf("error running phase 9 in upgrade sequence: task 1/1: failed, %w", err)
	}

	n.task("upgrade", actor)

	return nil
}

// runInstaller writes a new system next to the present one, to which the boot loader can go back.
func (n *node) runInstaller(image *Image) error {
	if err := upgradeable(n.image.Version, image.Version); err != nil {
		n.sys.log("pre-flight checks failed: %v", err)

		return errInstaller
	}

	if n.has(InstallerFails) {
		n.sys.log("the installer failed")

		return errInstaller
	}

	n.store(func(i *Installed) {
		before := i.Image.clone()
		next := install(*image, i.META)
		i.previous, i.Image, i.META, i.fresh, i.staged = &before, next.Image, next.META, true, nil
	})

	return nil
}

// errInstaller is all that Talos says of an installer that failed: the rest is on the console.
var errInstaller = errors.New("task \"upgrade\" failed: exit code 1")

// upgradeable is the check that an installer makes first (Talos: cmd/installer/pkg/install/preflight.go).
func upgradeable(host, installer string) error {
	from, err := compatibility.ParseTalosVersion(&machineapi.VersionInfo{Tag: host})
	if err != nil {
		return fmt.Errorf("error parsing host Talos version: %w", err)
	}

	to, err := compatibility.ParseTalosVersion(&machineapi.VersionInfo{Tag: installer})
	if err != nil {
		return fmt.Errorf("error parsing installer Talos version: %w", err)
	}

	return to.UpgradeableFrom(from)
}

// Rollback goes back to the system that was installed before.
func (s *machined) Rollback(context.Context, *machineapi.RollbackRequest) (*machineapi.RollbackResponse, error) {
	n := s.node

	if i := n.installed(); i == nil || i.previous == nil {
		return nil, errors.New("there is no previous system to go back to")
	}

	n.revert()
	n.do(command{sequence: "reboot", then: kexec})

	return &machineapi.RollbackResponse{Messages: []*machineapi.Rollback{{}}}, nil
}

// revert makes the boot loader start the system that was there before.
func (n *node) revert() {
	n.store(func(i *Installed) {
		if i.previous != nil {
			before := i.Image.clone()
			i.Image, i.previous, i.fresh = *i.previous, &before, false
		}
	})
}

// comeUp is what can keep a boot from coming up, and the upgrade that waited for it. It reports whether the boot ends
// with it.
func (n *node) comeUp() (next, bool) {
	i := n.installed()

	switch {
	case n.has(NeverReturns):
		n.sys.log("the system hangs")

		return standStill, true
	case i == nil:
		return 0, false
	case i.enrolled && !n.image.SecureBoot:
		// The boot loader came with the system: there is nothing left that would go back.
		n.sys.log("Access Denied: the system is not signed, and the firmware does not start it")

		return standStill, true
	case i.fresh && n.has(UpgradeFallsBack):
		n.sys.log("the new system does not come up, going back to %s", i.previous.describe())
		n.fw.history.note(n.name(), FellBack, i.Image.describe()+" to "+i.previous.describe())
		n.revert()

		return hardReset, true
	case i.staged != nil:
		return n.installStaged(i.staged), true
	default:
		return 0, false
	}
}

// installStaged does the upgrade that was put off to this boot. One that fails is not tried again.
func (n *node) installStaged(image *Image) next {
	n.setStage(StageInstalling)
	n.announce("install", "", machineapi.SequenceEvent_START)

	if !n.wait("install", n.fw.opts.Latencies.Install) {
		return powerCut
	}

	n.fw.history.note(n.name(), Upgraded, n.image.describe()+" to "+image.describe())

	if err := n.runInstaller(image); err != nil {
		n.sys.log("staged upgrade failed: %v", err)
		n.fw.history.note(n.name(), UpgradeFailed, err.Error())
		n.store(func(i *Installed) { i.staged = nil })
	}

	return kexec
}

// atLeast says whether the node runs a minor version of Talos or a later one.
func (n *node) atLeast(minor uint64) bool {
	version, err := semver.ParseTolerant(n.image.Version)

	return err == nil && (version.Major > 1 || version.Minor >= minor)
}
