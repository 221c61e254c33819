package proxmoxvm

// SmallestImage is well below any Talos image, in bytes, and above any page that says that there is none.
const SmallestImage = 16 << 20
