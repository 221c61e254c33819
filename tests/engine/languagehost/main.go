// Command languagehost is a Pulumi language host for Go programs, built as pulumi-language-go where no other is
// installed.
//
// It does what running a program or a policy pack takes and no more: it starts a compiled program, or compiles one
// first, with the environment that the Go SDK reads. Pulumi's own host ships with the CLI's release and is not to be
// had as a Go module of the CLI's version. Plugins are never installed on its word: it reports no required packages,
// and the engine takes the versions from the resources that the program registers.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/pulumi/pulumi/sdk/v3"
	"github.com/pulumi/pulumi/sdk/v3/go/common/constant"
	"github.com/pulumi/pulumi/sdk/v3/go/common/util/rpcutil"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
)

func main() {
	if err := serve(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "pulumi-language-go:", err)
		os.Exit(1)
	}
}

// serve prints the port it listens on, as the engine expects, and serves until the engine is gone.
func serve(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("the engine's address is missing; this program is started by pulumi")
	}
	engine := args[len(args)-1] // it comes last, whatever flags precede it
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := rpcutil.Healthcheck(ctx, engine, time.Minute, cancel); err != nil {
		return fmt.Errorf("the engine at %s: %w", engine, err)
	}
	canceled, cancelPrograms := context.WithCancel(ctx)
	defer cancelPrograms()
	stop := make(chan bool)
	context.AfterFunc(ctx, func() { close(stop) })
	handle, err := rpcutil.ServeWithOptions(rpcutil.ServeOptions{
		Cancel: stop,
		Init: func(s *grpc.Server) error {
			pulumirpc.RegisterLanguageRuntimeServer(s, &host{engine: engine, canceled: canceled, cancel: cancelPrograms})
			return nil
		},
	})
	if err != nil {
		return err
	}
	fmt.Println(handle.Port)
	return <-handle.Done
}

// host answers for one engine. Whatever else the protocol has (code generation, templates) stays unimplemented, which
// the engine takes as "this host cannot".
type host struct {
	pulumirpc.UnimplementedLanguageRuntimeServer
	engine string // address, passed on to the program
	// canceled ends when the engine says that the operator has interrupted the update, or that it is over.
	canceled context.Context
	cancel   context.CancelFunc
}

// Cancel interrupts the program that runs.
func (h *host) Cancel(context.Context, *emptypb.Empty) (*emptypb.Empty, error) {
	h.cancel()
	return &emptypb.Empty{}, nil
}

func (h *host) Handshake(context.Context, *pulumirpc.LanguageHandshakeRequest) (*pulumirpc.LanguageHandshakeResponse,
	error,
) {
	return &pulumirpc.LanguageHandshakeResponse{}, nil
}

func (h *host) GetPluginInfo(context.Context, *emptypb.Empty) (*pulumirpc.PluginInfo, error) {
	return &pulumirpc.PluginInfo{Version: sdk.Version.String()}, nil
}

func (h *host) GetRequiredPackages(
	context.Context, *pulumirpc.GetRequiredPackagesRequest,
) (*pulumirpc.GetRequiredPackagesResponse, error) {
	return &pulumirpc.GetRequiredPackagesResponse{}, nil
}

func (h *host) GetRequiredPlugins(
	context.Context, *pulumirpc.GetRequiredPluginsRequest,
) (*pulumirpc.GetRequiredPluginsResponse, error) {
	return &pulumirpc.GetRequiredPluginsResponse{}, nil
}

// InstallDependencies has nothing to do: compiling fetches what is missing.
func (h *host) InstallDependencies(
	*pulumirpc.InstallDependenciesRequest, grpc.ServerStreamingServer[pulumirpc.InstallDependenciesResponse],
) error {
	return nil
}

// Run starts the program and waits for it. The engine shows what the program writes to either stream, because it reads
// those of this process.
func (h *host) Run(ctx context.Context, req *pulumirpc.RunRequest) (*pulumirpc.RunResponse, error) {
	binary, remove, err := program(ctx, req.Info)
	if err != nil {
		return &pulumirpc.RunResponse{Error: err.Error()}, nil
	}
	defer remove()
	env, err := h.environment(req)
	if err != nil {
		return nil, err
	}
	until, end := context.WithCancel(h.canceled)
	defer end()
	context.AfterFunc(ctx, end)
	cmd := exec.CommandContext(until, binary, req.Args...)
	cmd.Dir = req.Pwd
	cmd.Env = append(os.Environ(), env...)
	// As Pulumi's own host does (sdk/go/pulumi-language-go of v3.259.0): an interrupt, and five seconds to end.
	cmd.Cancel = func() error {
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			return cmd.Process.Kill()
		}
		return nil
	}
	cmd.WaitDelay = 5 * time.Second
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return &pulumirpc.RunResponse{}, nil
	case errors.As(err, &exit) && exit.ExitCode() == constant.ExitStatusLoggedError:
		return &pulumirpc.RunResponse{Bail: true}, nil // the program has told the engine what went wrong
	default:
		return &pulumirpc.RunResponse{Error: fmt.Sprintf("the program %s: %v", binary, err)}, nil
	}
}

// RunPlugin starts a plugin, such as a policy pack, and passes on what it writes; the port it listens on comes first.
// The engine ends it by ending the call.
func (h *host) RunPlugin(
	req *pulumirpc.RunPluginRequest, server grpc.ServerStreamingServer[pulumirpc.RunPluginResponse],
) error {
	binary, remove, err := program(server.Context(), req.Info)
	if err != nil {
		return err
	}
	defer remove()
	stream := &lockedStream{ServerStreamingServer: server}
	_, stdout, stderr, err := rpcutil.MakeRunPluginStreams(stream, false)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(server.Context(), binary, req.Args...)
	cmd.Dir, cmd.Env = req.Pwd, req.Env
	cmd.Stdout, cmd.Stderr = stdout, stderr
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return stream.Send(&pulumirpc.RunPluginResponse{
			Output: &pulumirpc.RunPluginResponse_Exitcode{Exitcode: int32(exit.ExitCode())},
		})
	}
	return err
}

// lockedStream lets both streams of a plugin send.
type lockedStream struct {
	grpc.ServerStreamingServer[pulumirpc.RunPluginResponse]
	mu sync.Mutex
}

func (s *lockedStream) Send(r *pulumirpc.RunPluginResponse) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ServerStreamingServer.Send(r)
}

// program finds the program's binary, as the project's option `binary` names it, or compiles the program's directory.
// The second result removes what was compiled.
func program(ctx context.Context, info *pulumirpc.ProgramInfo) (string, func(), error) {
	dir := info.GetProgramDirectory()
	if binary := info.GetOptions().GetFields()["binary"].GetStringValue(); binary != "" {
		if !filepath.IsAbs(binary) {
			binary = filepath.Join(dir, binary)
		}
		if _, err := os.Stat(binary); errors.Is(err, fs.ErrNotExist) {
			return "", nil, fmt.Errorf("runtime.options.binary: there is no %s: build it first, as in `go build -o %[1]s .`",
				binary)
		}
		return binary, func() {}, nil
	}
	tmp, err := os.MkdirTemp("", "pulumi-go-")
	if err != nil {
		return "", nil, err
	}
	remove := func() { _ = os.RemoveAll(tmp) }
	binary := filepath.Join(tmp, "program")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, info.GetEntryPoint())
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		remove()
		return "", nil, fmt.Errorf("compiling the program in %s: %w\n%s", dir, err, out)
	}
	return binary, remove, nil
}

// environment is what the Go SDK's pulumi.Run reads.
func (h *host) environment(req *pulumirpc.RunRequest) ([]string, error) {
	config, err := json.Marshal(req.Config)
	if err != nil {
		return nil, err
	}
	secretKeys, err := json.Marshal(req.ConfigSecretKeys)
	if err != nil {
		return nil, err
	}
	return []string{
		pulumi.EnvOrganization + "=" + req.Organization,
		pulumi.EnvProject + "=" + req.Project,
		pulumi.EnvStack + "=" + req.Stack,
		pulumi.EnvPulumiRootDirectory + "=" + req.Info.GetRootDirectory(),
		pulumi.EnvConfig + "=" + string(config),
		pulumi.EnvConfigSecretKeys + "=" + string(secretKeys),
		pulumi.EnvDryRun + "=" + strconv.FormatBool(req.DryRun),
		pulumi.EnvParallel + "=" + strconv.Itoa(int(req.Parallel)),
		pulumi.EnvMonitor + "=" + req.MonitorAddress,
		pulumi.EnvEngine + "=" + h.engine,
	}, nil
}
