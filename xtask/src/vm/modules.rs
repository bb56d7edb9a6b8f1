//! Selects the kernel modules of the virtual machine. Pure.

use std::collections::BTreeSet;

/// Files and directories below the module directory that tests may need. Their dependencies are added.
const WANTED: &[&str] = &[
    // All: protocols, filters, bridges and tunnels load each other by alias.
    "kernel/net/",
    // Loaded by alias too, so that they are not listed as dependencies.
    "kernel/crypto/",
    "kernel/arch/x86/crypto/",
    // Kinds of links.
    "kernel/drivers/net/bonding/",
    "kernel/drivers/net/ethernet/intel/e1000e/",
    "kernel/drivers/net/dummy.ko",
    "kernel/drivers/net/geneve.ko",
    "kernel/drivers/net/ifb.ko",
    "kernel/drivers/net/ipvlan/",
    "kernel/drivers/net/macvlan.ko",
    "kernel/drivers/net/macvtap.ko",
    "kernel/drivers/net/tap.ko",
    "kernel/drivers/net/tun.ko",
    "kernel/drivers/net/veth.ko",
    "kernel/drivers/net/vrf.ko",
    "kernel/drivers/net/vxlan/",
    "kernel/drivers/net/wireguard/",
    // Disks in memory, and a file system with attributes to put on one.
    "kernel/drivers/block/brd.ko",
    "kernel/drivers/block/loop.ko",
    // Disks of the machine.
    "kernel/drivers/block/virtio_blk.ko",
    "kernel/drivers/virtio/virtio_pci.ko",
    "kernel/fs/ext4/",
    // What nodes of clusters want.
    "kernel/fs/overlayfs/",
];

/// The files to copy. `dependencies` is the file of `depmod` with lines of `MODULE: DEPENDENCY...`.
pub(crate) fn wanted(dependencies: &str) -> BTreeSet<&str> {
    let lines = dependencies.lines().filter_map(|line| line.split_once(':'));
    let chosen = lines.filter(|(module, _)| is_wanted(module));
    chosen
        .flat_map(|(module, others)| [module].into_iter().chain(others.split(' ')))
        .filter(|path| !path.is_empty())
        .collect()
}

fn is_wanted(module: &str) -> bool {
    WANTED.iter().any(|start| module.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wanted_modules_come_with_what_they_depend_on_and_nothing_else_does() {
        let dependencies = "\
kernel/drivers/net/dummy.ko:
kernel/drivers/net/macvtap.ko: kernel/drivers/net/macvlan.ko kernel/drivers/net/tap.ko
kernel/net/netfilter/nf_tables.ko: kernel/net/netfilter/nfnetlink.ko kernel/lib/libcrc32c.ko
kernel/lib/libcrc32c.ko:
kernel/drivers/gpu/drm/drm.ko: kernel/lib/other.ko
kernel/arch/x86/crypto/crc32c-intel.ko:
";
        let expected = [
            "kernel/arch/x86/crypto/crc32c-intel.ko",
            "kernel/drivers/net/dummy.ko",
            "kernel/drivers/net/macvlan.ko",
            "kernel/drivers/net/macvtap.ko",
            "kernel/drivers/net/tap.ko",
            "kernel/lib/libcrc32c.ko",
            "kernel/net/netfilter/nf_tables.ko",
            "kernel/net/netfilter/nfnetlink.ko",
        ];
        assert_eq!(wanted(dependencies).into_iter().collect::<Vec<_>>(), expected);
    }
}
