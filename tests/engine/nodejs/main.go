// Command nodejs is a Pulumi language host for programs in TypeScript and JavaScript, built as pulumi-language-nodejs
// where no other is installed.
//
// It runs programs with the node command and the @pulumi/pulumi of their directory, generates SDKs with Pulumi's own
// generator, and adds them to a project with npm. It also converts programs, to TypeScript, and to Python under the name
// pulumi-language-python. Pulumi's own host ships with the CLI's release and is not to be had
// as a Go module. Plugins are never installed on its word.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/pulumi/pulumi/pkg/v3/codegen/nodejs"
	"github.com/pulumi/pulumi/pkg/v3/codegen/pcl"
	"github.com/pulumi/pulumi/pkg/v3/codegen/python"
	"github.com/pulumi/pulumi/pkg/v3/codegen/schema"
	"github.com/pulumi/pulumi/pkg/v3/resource/plugin"
	"github.com/pulumi/pulumi/sdk/v3"
	"github.com/pulumi/pulumi/sdk/v3/go/common/constant"
	"github.com/pulumi/pulumi/sdk/v3/go/common/util/rpcutil"
	"github.com/pulumi/pulumi/sdk/v3/go/common/workspace"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
)

func main() {
	if err := serve(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "pulumi-language-nodejs:", err)
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
	stop := make(chan bool)
	context.AfterFunc(ctx, func() { close(stop) })
	handle, err := rpcutil.ServeWithOptions(rpcutil.ServeOptions{
		Cancel: stop,
		Init: func(s *grpc.Server) error {
			pulumirpc.RegisterLanguageRuntimeServer(s, &host{engine: engine})
			return nil
		},
	})
	if err != nil {
		return err
	}
	fmt.Println(handle.Port)
	return <-handle.Done
}

// host answers for one engine. What it does not have stays unimplemented, which the engine takes as "this host cannot".
type host struct {
	pulumirpc.UnimplementedLanguageRuntimeServer
	engine string // address, passed on to the program
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

// Run starts the program and waits for it. The engine shows what the program writes to either stream, because it reads
// those of this process.
func (h *host) Run(ctx context.Context, req *pulumirpc.RunRequest) (*pulumirpc.RunResponse, error) {
	config, err := json.Marshal(req.Config)
	if err != nil {
		return nil, err
	}
	secretKeys, err := json.Marshal(req.ConfigSecretKeys)
	if err != nil {
		return nil, err
	}
	start := filepath.Join(req.Info.GetProgramDirectory(), "node_modules", "@pulumi", "pulumi", "cmd", "run")
	if _, err := os.Stat(start); err != nil {
		return &pulumirpc.RunResponse{Error: "@pulumi/pulumi is not installed: run `npm ci` in the program's directory: " +
			err.Error()}, nil
	}
	cmd := exec.CommandContext(ctx, "node", append([]string{
		start, "--monitor=" + req.MonitorAddress, "--engine=" + h.engine, "--organization=" + req.Organization,
		"--project=" + req.Project, "--root-directory=" + req.Info.GetRootDirectory(), "--stack=" + req.Stack,
		"--pwd=" + req.Pwd, "--dry-run=" + strconv.FormatBool(req.DryRun), "--parallel=" + strconv.Itoa(int(req.Parallel)),
		req.Info.GetEntryPoint(),
	}, req.Args...)...)
	cmd.Dir = req.Pwd
	cmd.Env = append(os.Environ(), pulumi.EnvConfig+"="+string(config), pulumi.EnvConfigSecretKeys+"="+string(secretKeys),
		"PULUMI_NODEJS_TYPESCRIPT=true")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return &pulumirpc.RunResponse{}, nil
	case errors.As(err, &exit) && exit.ExitCode() == constant.ExitStatusLoggedError:
		return &pulumirpc.RunResponse{Bail: true}, nil // the program has told the engine what went wrong
	default:
		return &pulumirpc.RunResponse{Error: fmt.Sprintf("node: %v", err)}, nil
	}
}

// GeneratePackage writes an SDK, as Pulumi's own host does.
func (h *host) GeneratePackage(
	ctx context.Context, req *pulumirpc.GeneratePackageRequest,
) (*pulumirpc.GeneratePackageResponse, error) {
	client, err := schema.NewLoaderClient(req.LoaderTarget)
	if err != nil {
		return nil, err
	}
	loader := schema.NewCachedLoader(client)
	var spec schema.PackageSpec
	if err := json.Unmarshal([]byte(req.Schema), &spec); err != nil {
		return nil, err
	}
	pkg, diags, err := schema.BindSpecWithContext(ctx, spec, loader, schema.ValidationOptions{
		AllowDanglingReferences: true,
	})
	result := &pulumirpc.GeneratePackageResponse{Diagnostics: plugin.HclDiagnosticsToRPCDiagnostics(diags)}
	if err != nil || diags.HasErrors() {
		return result, err
	}
	files, err := nodejs.GeneratePackage("pulumi-language-nodejs", pkg, req.ExtraFiles, req.LocalDependencies, req.Local,
		loader)
	if err != nil {
		return nil, err
	}
	for name, content := range files {
		path := filepath.Join(req.Directory, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return nil, err
		}
	}
	return result, nil
}

// GenerateProject converts a program, as Pulumi's own hosts do: to Python where this host is called by its name.
func (h *host) GenerateProject(
	_ context.Context, req *pulumirpc.GenerateProjectRequest,
) (*pulumirpc.GenerateProjectResponse, error) {
	client, err := schema.NewLoaderClient(req.LoaderTarget)
	if err != nil {
		return nil, err
	}
	var options []pcl.BindOption
	if !req.Strict {
		options = pcl.NonStrictBindOptions()
	}
	program, diags, err := pcl.BindDirectory(req.SourceDirectory, schema.NewCachedLoader(client), options...)
	result := &pulumirpc.GenerateProjectResponse{Diagnostics: plugin.HclDiagnosticsToRPCDiagnostics(diags)}
	if err != nil || diags.HasErrors() {
		return result, err
	}
	var project workspace.Project
	if err := json.Unmarshal([]byte(req.Project), &project); err != nil {
		return nil, err
	}
	if filepath.Base(os.Args[0]) == "pulumi-language-python" {
		return result, python.GenerateProject(req.TargetDirectory, project, program, req.LocalDependencies, "", "")
	}
	return result, nodejs.GenerateProject(req.TargetDirectory, project, program, req.LocalDependencies, false, "nodejs")
}

// Link adds generated SDKs to the dependencies of a program.
func (h *host) Link(ctx context.Context, req *pulumirpc.LinkRequest) (*pulumirpc.LinkResponse, error) {
	dir := req.Info.GetProgramDirectory()
	var imports []string
	for _, p := range req.Packages {
		text, err := os.ReadFile(filepath.Join(dir, p.Path, "package.json"))
		if err != nil {
			return nil, err
		}
		var generated struct{ Name string }
		if err := json.Unmarshal(text, &generated); err != nil {
			return nil, err
		}
		add := exec.CommandContext(ctx, "npm", "pkg", "set", "dependencies."+generated.Name+"=file:"+p.Path)
		add.Dir = dir
		if out, err := add.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("npm pkg set: %w\n%s", err, out)
		}
		imports = append(imports, fmt.Sprintf("import * as %s from %q;",
			strings.ReplaceAll(p.Package.GetName(), "-", "_"), generated.Name))
	}
	return &pulumirpc.LinkResponse{ImportInstructions: strings.Join(imports, "\n")}, nil
}

// InstallDependencies has npm install what package.json names.
func (h *host) InstallDependencies(
	req *pulumirpc.InstallDependenciesRequest, server grpc.ServerStreamingServer[pulumirpc.InstallDependenciesResponse],
) error {
	install := exec.CommandContext(server.Context(), "npm", "install", "--loglevel=error")
	install.Dir = req.Info.GetProgramDirectory()
	out, err := install.CombinedOutput()
	if err := server.Send(&pulumirpc.InstallDependenciesResponse{Stderr: out}); err != nil {
		return err
	}
	if err != nil {
		return fmt.Errorf("npm install: %w\n%s", err, out)
	}
	return nil
}
