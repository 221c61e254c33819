// A stack of Kubernetes resources on the cluster of another stack, whose outputs feed the provider of Kubernetes. It
// needs one key, the name of that stack:
//
//     pulumi config set cluster organization/platform/dev
import * as kubernetes from "@pulumi/kubernetes";
import * as pulumi from "@pulumi/pulumi";

const cluster = new pulumi.StackReference(new pulumi.Config().require("cluster"));

const provider = new kubernetes.Provider("cluster", {
    kubeconfig: cluster.requireOutput("kubeconfig"), // secret, as it is there
});

const namespace = new kubernetes.core.v1.Namespace("shop", {}, { provider });

const deployment = new kubernetes.apps.v1.Deployment("shop", {
    metadata: { namespace: namespace.metadata.name },
    spec: {
        replicas: 2,
        selector: { matchLabels: { app: "shop" } },
        template: {
            metadata: { labels: { app: "shop" } },
            spec: { containers: [{ name: "shop", image: "registry.k8s.io/e2e-test-images/agnhost:2.53" }] },
        },
    },
}, { provider });

export const shop = pulumi.interpolate`${deployment.metadata.namespace}/${deployment.metadata.name}`;
