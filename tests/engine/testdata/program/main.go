// Command program is what the language host runs in a test: it reports what reached it.
package main

import (
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/config"
)

func main() {
	pulumi.Run(func(ctx *pulumi.Context) error {
		fmt.Println("said on standard output")
		c := config.New(ctx, "")
		greeting, err := c.Try("greeting")
		if err != nil {
			return err
		}
		ctx.Export("greeting", pulumi.String(greeting))
		ctx.Export("secret", c.RequireSecret("secret"))
		ctx.Export("where", pulumi.Sprintf("%s/%s in %s", ctx.Project(), ctx.Stack(), ctx.Organization()))
		ctx.Export("root", pulumi.String(ctx.RootDirectory()))
		return nil
	})
}
