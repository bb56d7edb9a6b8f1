//! Makes the kernel unreachable for the netlink sockets that this process has open in a namespace.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::path::Path;

use rustix::net::connect;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

/// A port without a listener: the kernel refuses at once what is sent there.
const NOWHERE: u32 = 0x7fff_ffff;
const KERNEL: u32 = 0;

/// While it lives, sends on the netlink sockets that were open when it was created are refused. Events still
/// arrive.
#[derive(Debug)]
pub struct UnreachableKernel {
    sockets: Vec<OwnedFd>,
}

impl UnreachableKernel {
    /// Affects every netlink socket of this process in the calling thread's network namespace.
    pub fn new() -> io::Result<Self> {
        let sockets = open_here()?;
        for socket in &sockets {
            connect(socket, &SocketAddrNetlink::new(NOWHERE, 0))?;
        }
        Ok(UnreachableKernel { sockets })
    }
}

impl Drop for UnreachableKernel {
    fn drop(&mut self) {
        for socket in &self.sockets {
            let _ = connect(socket, &SocketAddrNetlink::new(KERNEL, 0));
        }
    }
}

/// Duplicates of the descriptors of the sockets.
fn open_here() -> io::Result<Vec<OwnedFd>> {
    let (inodes, me) = (inodes_here()?, pidfd_open(getpid(), PidfdFlags::empty())?);
    let mut sockets = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        let path = entry?.path();
        let number: Option<RawFd> = path.file_name().and_then(|name| name.to_str()?.parse().ok());
        if let Some(number) = number.filter(|_| is_among(&path, &inodes)) {
            sockets.push(pidfd_getfd(&me, number, PidfdGetfdFlags::empty())?);
        }
    }
    Ok(sockets)
}

/// The last column of the kernel's list of netlink sockets, which is per namespace.
fn inodes_here() -> io::Result<BTreeSet<String>> {
    let list = fs::read_to_string("/proc/thread-self/net/netlink")?;
    let inodes = list.lines().skip(1).filter_map(|line| line.split_whitespace().last());
    Ok(inodes.map(|inode| format!("socket:[{inode}]")).collect())
}

/// False for a descriptor that was closed meanwhile.
fn is_among(path: &Path, inodes: &BTreeSet<String>) -> bool {
    fs::read_link(path).is_ok_and(|target| inodes.contains(&*target.to_string_lossy()))
}
