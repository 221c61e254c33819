package talos

import (
	"bytes"
	"context"
	"fmt"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configdiff"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ApplyConfiguration on a configured node (Talos: v1alpha1_server.go).
func (s *machined) ApplyConfiguration(_ context.Context,
	in *machineapi.ApplyConfigurationRequest,
) (*machineapi.ApplyConfigurationResponse, error) {
	n := s.node

	if in.GetMode() != machineapi.ApplyConfigurationRequest_TRY {
		n.cancelRollback()
	}

	cfg, warnings, loadErr, err := n.validate(in.GetData(), n.mode(true))
	if loadErr != nil {
		err = loadErr
	}

	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}

	if cfg.RawV1Alpha1() == nil {
		return nil, status.Error(codes.InvalidArgument,
			"the applied machine configuration doesn't contain v1alpha1 config, did you mean to patch the machine config "+
				"instead?")
	}

	notLive := applicable(n.config().RawV1Alpha1(), cfg.RawV1Alpha1())

	if n.atLeast(14) {
		// It applies everything to the running node, and does not say what waits for a reboot.
		if notLive = nil; in.GetMode() == machineapi.ApplyConfigurationRequest_REBOOT {
			return nil, status.Error(codes.Unimplemented,
				"the REBOOT mode is not supported, please use AUTO or NO_REBOOT modes instead")
		}
	}

	mode, details, reason, err := decideMode(in.GetMode(), notLive)
	if err != nil {
		return nil, err
	}

	reply := &machineapi.ApplyConfiguration{Mode: mode, Warnings: warnings, ModeDetails: details + reason}

	if in.GetDryRun() {
		diff, err := configdiff.DiffConfigs(n.config(), cfg)
		if err != nil {
			return nil, fmt.Errorf("failed to generate diff: %w", err)
		}

		if diff == "" {
			diff = "No changes."
		}

		reply.Warnings = nil
		reply.ModeDetails = fmt.Sprintf("Dry run summary:\n%s (skipped in dry-run).\nConfig diff:\n\n%s", details, diff)
	} else {
		reply.ModeDetails += n.apply(mode, cfg, in)
	}

	return &machineapi.ApplyConfigurationResponse{Messages: []*machineapi.ApplyConfiguration{reply}}, nil
}

// decideMode turns the mode that was asked for into the one that is used.
func decideMode(asked machineapi.ApplyConfigurationRequest_Mode,
	notLive error,
) (_ machineapi.ApplyConfigurationRequest_Mode, details, reason string, _ error) {
	const (
		withReboot    = "Applied configuration with a reboot"
		withoutReboot = "Applied configuration without a reboot"
		staged        = "Staged configuration to be applied after the next reboot"
	)

	switch asked {
	case machineapi.ApplyConfigurationRequest_TRY, machineapi.ApplyConfigurationRequest_NO_REBOOT:
		if notLive != nil {
			return 0, "", "", status.Error(codes.InvalidArgument, notLive.Error())
		}

		return asked, withoutReboot, "", nil
	case machineapi.ApplyConfigurationRequest_STAGED:
		return asked, staged, "", nil
	case machineapi.ApplyConfigurationRequest_AUTO:
		if notLive != nil {
			return machineapi.ApplyConfigurationRequest_REBOOT, withReboot, ": " + notLive.Error(), nil
		}

		return machineapi.ApplyConfigurationRequest_NO_REBOOT, withoutReboot, "", nil
	case machineapi.ApplyConfigurationRequest_REBOOT:
		return asked, withReboot, "", nil
	default:
		return 0, "", "", fmt.Errorf("incorrect mode '%s' specified for the apply config call", asked)
	}
}

// apply carries a decided mode out and returns what is to be added to its details.
func (n *node) apply(mode machineapi.ApplyConfigurationRequest_Mode, cfg config.Provider,
	in *machineapi.ApplyConfigurationRequest,
) string {
	switch mode {
	case machineapi.ApplyConfigurationRequest_TRY:
		timeout := constants.ConfigTryTimeout
		if in.GetTryModeTimeout() != nil {
			timeout = in.GetTryModeTimeout().AsDuration()
		}

		n.try(cfg, timeout)

		return fmt.Sprintf("\nThe config is applied in 'try' mode and will be automatically reverted back in %s", timeout)
	case machineapi.ApplyConfigurationRequest_NO_REBOOT:
		if !bytes.Equal(configBytes(n.config()), configBytes(cfg)) {
			n.fw.history.note(n.name(), Applied, "")
		}

		n.keepConfig(cfg)
		n.setConfig(cfg)
	case machineapi.ApplyConfigurationRequest_STAGED:
		n.fw.history.note(n.name(), Staged, "")
		n.keepConfig(cfg)
	case machineapi.ApplyConfigurationRequest_REBOOT:
		n.keepConfig(cfg)
		n.do(command{sequence: "reboot", then: kexec, detail: "for its configuration"})
	case machineapi.ApplyConfigurationRequest_AUTO: // decided already
	}

	return ""
}

// try makes a configuration active and takes it back after a while.
func (n *node) try(cfg config.Provider, timeout time.Duration) {
	before := n.config()

	n.mu.Lock()
	if n.rollback != nil {
		n.rollback.Stop()
	}

	n.rollback = time.AfterFunc(timeout, func() { n.setConfig(before) })
	n.mu.Unlock()

	n.setConfig(cfg)
}

func (n *node) cancelRollback() {
	n.mu.Lock()
	defer n.mu.Unlock()

	if n.rollback != nil {
		n.rollback.Stop()
		n.rollback = nil
	}
}
