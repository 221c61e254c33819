// A cluster as a component of a program in TypeScript. stacks/docs/languages.md says how to build the plugin and the SDK.
import * as pulumi from "@pulumi/pulumi";
import * as talos from "@pulumi/talos-proxmox";

const config = new pulumi.Config();

const args: talos.ClusterArgs = {
    proxmox: {
        endpoint: "https://pve.lan:8006",
        tokenId: "pulumi@pve!talos",
        hosts: [{ name: "pve" }],
    },
    proxmoxTokenSecret: config.requireSecret("proxmoxTokenSecret"),
    cluster: {
        name: "home",
        versions: { talos: "v1.12.4", kubernetes: "v1.34.2" },
    },
    network: { cidr: "192.168.10.0/24", gateway: "192.168.10.1" },
    pools: {
        control: { role: "controlplane", count: 1, addresses: "192.168.10.11-13" },
        worker: { role: "worker", count: 2, addresses: "192.168.10.21-49" },
    },
};

const home = new talos.Cluster("home", args);

export const contract = home.talos_bootstrap_contract;
export const kubeconfig = home.kubeconfig;
export const workers = home.talos_bootstrap_nodes.workers.apply((nodes) => nodes.map((node) => node.name));
