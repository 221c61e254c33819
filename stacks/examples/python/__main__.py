import pulumi
import pulumi_talos_proxmox as talos_proxmox

config = pulumi.Config()
proxmox_token_secret = config.require("proxmoxTokenSecret")
home = talos_proxmox.Cluster("home",
    proxmox={
        "endpoint": "https://pve.lan:8006",
        "token_id": "pulumi@pve!talos",
        "hosts": [{
            "name": "pve",
        }],
    },
    proxmox_token_secret=proxmox_token_secret,
    cluster={
        "name": "home",
        "versions": {
            "talos": "v1.12.4",
            "kubernetes": "v1.34.2",
        },
    },
    network={
        "cidr": "192.168.10.0/24",
        "gateway": "192.168.10.1",
    },
    pools={
        "control": {
            "role": talos_proxmox.PoolRole.CONTROLPLANE,
            "count": 1,
            "addresses": "192.168.10.11-13",
        },
        "worker": {
            "role": talos_proxmox.PoolRole.WORKER,
            "count": 2,
            "addresses": "192.168.10.21-49",
        },
    })
pulumi.export("contract", home.talos_bootstrap_contract)
pulumi.export("kubeconfig", home.kubeconfig)
