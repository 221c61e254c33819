package migrate

import (
	"strconv"

	"go.yaml.in/yaml/v3"
)

// stack is what stands below config in the stack file, in the order in which it is written.
type stack struct {
	Environment string    `yaml:"talos-proxmox:environment,omitempty"`
	Proxmox     proxmox   `yaml:"talos-proxmox:proxmox"`
	Cluster     cluster   `yaml:"talos-proxmox:cluster"`
	Image       image     `yaml:"talos-proxmox:image"`
	Network     network   `yaml:"talos-proxmox:network"`
	Defaults    *defaults `yaml:"talos-proxmox:defaults,omitempty"`
	Pools       struct {
		Control *pool `yaml:"control"`
		Worker  *pool `yaml:"worker,omitempty"`
		GPU     *pool `yaml:"gpu,omitempty"`
	} `yaml:"talos-proxmox:pools"`
	Outputs struct {
		Legacy bool `yaml:"legacy"`
	} `yaml:"talos-proxmox:outputs"`
}

type proxmox struct {
	Endpoint string   `yaml:"endpoint"`
	TokenID  string   `yaml:"tokenId"`
	Hosts    []host   `yaml:"hosts"`
	Storage  *storage `yaml:"storage,omitempty"`
}

type host struct {
	Name string `yaml:"name"`
}

type storage struct {
	Disks string `yaml:"disks"`
}

type cluster struct {
	Name      string `yaml:"name"`
	Bootstrap string `yaml:"bootstrap"`
	Versions  struct {
		Talos string `yaml:"talos"`
	} `yaml:"versions"`
}

type image struct {
	Source   string `yaml:"source"`
	Platform string `yaml:"platform"`
	Template struct {
		Control               string `yaml:"control"`
		Worker                string `yaml:"worker,omitempty"`
		GPUWorker             string `yaml:"gpuWorker,omitempty"`
		AllowNonCanonicalName bool   `yaml:"allowNonCanonicalName,omitempty"`
	} `yaml:"template"`
}

type network struct {
	Addressing string `yaml:"addressing"`
	CIDR       string `yaml:"cidr"`
	Bridge     string `yaml:"bridge,omitempty"`
}

type defaults struct {
	Cores     *int  `yaml:"cores,omitempty"`
	MemoryMiB *int  `yaml:"memoryMiB,omitempty"`
	DiskGiB   *int  `yaml:"diskGiB,omitempty"`
	OnBoot    *bool `yaml:"onBoot,omitempty"`
}

type pool struct {
	Role  string  `yaml:"role"`
	Count *int    `yaml:"count,omitempty"`
	Names string  `yaml:"names,omitempty"`
	VMIDs string  `yaml:"vmids,omitempty"`
	Nodes entries `yaml:"nodes,omitempty"`
	GPUs  entries `yaml:"gpus,omitempty"`
}

type entry struct {
	BDF     string  `yaml:"bdf,omitempty"`
	Host    string  `yaml:"host,omitempty"`
	Address *string `yaml:"address,omitempty"`
	PCIe    *bool   `yaml:"pcie,omitempty"`
	ROMBar  *bool   `yaml:"rombar,omitempty"`
}

// entries are written by their numbers, in order.
type entries []entry

// MarshalYAML implements yaml.Marshaler.
func (es entries) MarshalYAML() (any, error) {
	mapping := &yaml.Node{Kind: yaml.MappingNode}

	for i, e := range es {
		var node yaml.Node
		if err := node.Encode(e); err != nil {
			return nil, err
		}

		node.Style = yaml.FlowStyle
		mapping.Content = append(mapping.Content, &yaml.Node{
			Kind: yaml.ScalarNode, Tag: "!!str", Value: strconv.Itoa(i + 1), Style: yaml.DoubleQuotedStyle,
		}, &node)
	}

	return mapping, nil
}
