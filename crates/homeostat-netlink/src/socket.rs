//! One netlink socket: opened in any namespace, used from any thread. Only [`Socket::wait`] blocks.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use homeostat_netns::Netns;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{
    set_socket_recv_buffer_size, set_socket_recv_buffer_size_force, socket_recv_buffer_size,
    socket_send_buffer_size,
};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, getsockname, recvfrom,
    send, socket_with,
};

use crate::uapi::{
    NETLINK_ADD_MEMBERSHIP, NETLINK_CAP_ACK, NETLINK_EXT_ACK, NETLINK_GET_STRICT_CHK,
};
use crate::{Error, Family, Group, Options, Port, Result, sys};

/// The actual receive buffer of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveBuffer {
    /// Bytes as the kernel counts them, bookkeeping included.
    pub bytes: usize,
    /// Whether it could be set beyond the system's limit.
    pub is_forced: bool,
}

/// The result of one receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// The length of one datagram.
    Bytes(usize),
    /// A datagram was larger than the buffer; its rest is discarded.
    Truncated {
        /// The size of the datagram.
        needed: usize,
    },
    /// The queue was full and messages were dropped.
    Lost,
    /// The queue is empty.
    Nothing,
}

/// An upper bound of what the kernel reserves in a send buffer.
const SEND_SPARE: usize = 4096;

/// An open netlink socket, bound to a port of its own.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    port: Port,
    receive_buffer: ReceiveBuffer,
}

impl Socket {
    /// Opens a socket in the calling thread's namespace.
    pub fn open(family: Family, options: &Options) -> Result<Self> {
        let fd = bound(family).map_err(|source| Error::Open { source: source.into() })?;
        let is_forced = size_receive_buffer(fd.as_fd(), options).map_err(refused("SO_RCVBUF"))?;
        let bytes = socket_recv_buffer_size(&fd).map_err(refused("SO_RCVBUF"))?;
        set_netlink(fd.as_fd(), "NETLINK_EXT_ACK", NETLINK_EXT_ACK, 1)?;
        // Errors do not quote the request, so that a buffer holds as many errors as acks.
        set_netlink(fd.as_fd(), "NETLINK_CAP_ACK", NETLINK_CAP_ACK, 1)?;
        ask_for_strict(fd.as_fd())?;
        if let Some(filter) = &options.filter {
            filter.attach(&fd)?;
        }
        let port = own_port(fd.as_fd()).map_err(|source| Error::Open { source: source.into() })?;
        Ok(Self { fd, port, receive_buffer: ReceiveBuffer { bytes, is_forced } })
    }

    /// Opens a socket in another namespace, and keeps that namespace alive as long as it is open.
    pub fn open_in(netns: &Netns, family: Family, options: &Options) -> Result<Self> {
        netns.run(|| Self::open(family, options)).map_err(Error::Netns)?
    }

    /// The port of this socket. Events that its requests cause carry it.
    #[must_use]
    pub fn port(&self) -> Port {
        self.port
    }

    #[must_use]
    pub fn receive_buffer(&self) -> ReceiveBuffer {
        self.receive_buffer
    }

    pub fn join(&self, group: Group) -> Result<()> {
        set_netlink(self.as_fd(), "NETLINK_ADD_MEMBERSHIP", NETLINK_ADD_MEMBERSHIP, group.0)
    }

    /// Enlarges the send buffer for one send of `bytes`, where permitted; else the kernel refuses such a send.
    pub fn make_send_room(&self, bytes: usize) {
        let room = socket_send_buffer_size(self).unwrap_or(0);
        if room < bytes.saturating_add(SEND_SPARE) {
            let _ = sys::force_send_buffer(self.as_fd(), bytes.saturating_add(SEND_SPARE));
        }
    }

    /// Sends messages as they are.
    pub fn send(&self, bytes: &[u8]) -> Result<()> {
        rustix::io::retry_on_intr(|| send(self, bytes, SendFlags::empty()))
            .map(|_| ())
            .map_err(|source| Error::Send { source: source.into() })
    }

    /// Waits until there is something to receive; false on a timeout.
    pub fn wait(&self, timeout: Duration) -> Result<bool> {
        let failed = |source: io::Error| Error::Receive { source };
        let timeout =
            Timespec::try_from(timeout).map_err(|error| failed(io::Error::other(error)))?;
        let mut polled = [PollFd::new(self, PollFlags::IN)];
        rustix::io::retry_on_intr(|| poll(&mut polled, Some(&timeout)))
            .map(|ready| ready > 0)
            .map_err(|source| failed(source.into()))
    }

    /// Receives one datagram from the kernel, if there is one.
    pub(crate) fn receive(&self, room: &mut [u8]) -> Result<Received> {
        loop {
            let taken = rustix::io::retry_on_intr(|| recvfrom(self, &mut *room, RecvFlags::TRUNC));
            let (received, from) = match taken {
                Ok((len, needed, from)) if needed > len => (Received::Truncated { needed }, from),
                Ok((len, _, from)) => (Received::Bytes(len), from),
                Err(Errno::NOBUFS) => return Ok(Received::Lost),
                Err(Errno::AGAIN) => return Ok(Received::Nothing),
                Err(source) => return Err(Error::Receive { source: source.into() }),
            };
            // Other processes can send to our port too; only messages of the kernel count.
            if from.and_then(sender) == Some(Port::KERNEL) {
                return Ok(received);
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn bound(family: Family) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, family.protocol())?;
    bind(&fd, &SocketAddrNetlink::new(0, 0))?;
    Ok(fd)
}

fn own_port(fd: BorrowedFd<'_>) -> Result<Port, Errno> {
    sender(getsockname(fd)?).ok_or(Errno::AFNOSUPPORT)
}

fn sender(addr: rustix::net::SocketAddrAny) -> Option<Port> {
    SocketAddrNetlink::try_from(addr).ok().map(|addr| Port(addr.pid()))
}

fn set_netlink(fd: BorrowedFd<'_>, name: &'static str, option: u32, value: u32) -> Result<()> {
    sys::set_netlink(fd, option, value).map_err(|source| Error::Option { option: name, source })
}

/// Asks for strict checks of dump requests, with which the kernel applies their filters.
///
/// Quirk `no-strict-check` (before Linux 4.20, and some later kernels): the option is unknown. Filters are then
/// silently ignored, so that a dump has more than was asked for, and callers must filter.
fn ask_for_strict(fd: BorrowedFd<'_>) -> Result<()> {
    unless_unknown(set_netlink(fd, "NETLINK_GET_STRICT_CHK", NETLINK_GET_STRICT_CHK, 1))
}

fn unless_unknown(set: Result<()>) -> Result<()> {
    set.or_else(|error| if error.errno() == Some(Errno::NOPROTOOPT) { Ok(()) } else { Err(error) })
}

/// Returns whether the size was forced.
fn size_receive_buffer(fd: BorrowedFd<'_>, options: &Options) -> Result<bool, Errno> {
    let Some(bytes) = options.receive_buffer else { return Ok(false) };
    match set_socket_recv_buffer_size_force(fd, bytes) {
        Err(Errno::PERM) => set_socket_recv_buffer_size(fd, bytes).map(|()| false),
        other => other.map(|()| true),
    }
}

fn refused(option: &'static str) -> impl Fn(Errno) -> Error {
    move |source| Error::Option { option, source: source.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_strict_checking_is_no_error() {
        let refused = refused("NETLINK_GET_STRICT_CHK");
        unless_unknown(Ok(())).unwrap();
        unless_unknown(Err(refused(Errno::NOPROTOOPT))).unwrap();
        assert!(unless_unknown(Err(refused(Errno::PERM))).is_err());
    }
}
