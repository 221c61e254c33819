module github.com/pulumi/pulumi-java

go 1.26

require github.com/hashicorp/hcl/v2 v2.24.0
