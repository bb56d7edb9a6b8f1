//! The floor: messages that are encoded beforehand, and sends and dumps that parse nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use homeostat_netlink::{Batch, Socket, uapi};
use rustix::net::{AddressFamily, RecvFlags, recv};

use super::network::LINK_INDEX;

/// The size of one send, as in our transport.
const SEND_BYTES: usize = 128 << 10;
/// The protocol that is our mark.
pub(super) const OURS: u8 = 76;
/// BIRD's own, for routes that are not ours.
pub(super) const FOREIGN: u8 = 12;
const TIMEOUT: Duration = Duration::from_secs(30);

/// The version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ip {
    V4,
    V6,
}

impl Ip {
    /// The gateway of all routes.
    pub(super) fn gateway(self) -> IpAddr {
        match self {
            Ip::V4 => Ipv4Addr::new(10, 0, 0, 9).into(),
            Ip::V6 => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9).into(),
        }
    }

    /// The destination of a route by its number, up to 2^24.
    pub(super) fn destination(self, number: usize) -> (IpAddr, u8) {
        let [_, high, middle, low] = u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes();
        match self {
            Ip::V4 => (Ipv4Addr::new(20 + high, middle, low, 0).into(), 24),
            Ip::V6 => {
                let number = u16::from_be_bytes([middle, low]);
                (Ipv6Addr::new(0x2a00, high.into(), number, 0, 0, 0, 0, 0).into(), 48)
            }
        }
    }

    fn family(self) -> u8 {
        let family = if self == Ip::V4 { AddressFamily::INET } else { AddressFamily::INET6 };
        let [family, _] = family.as_raw().to_le_bytes();
        family
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Add,
    Delete,
}

/// Encodes messages about routes of one family and protocol, byte for byte as the rtnl source does.
#[derive(Clone, Copy)]
pub(super) struct RouteMessages {
    pub(super) ip: Ip,
    pub(super) protocol: u8,
}

impl RouteMessages {
    pub(super) const fn ours(ip: Ip) -> Self {
        RouteMessages { ip, protocol: OURS }
    }

    /// Adds the message about one route, with additional flags.
    fn write(self, batch: &mut Batch, verb: Verb, number: usize, more: u16) -> Result<()> {
        let (kind, flags, scope) = match verb {
            Verb::Add => (uapi::RTM_NEWROUTE, uapi::NLM_F_CREATE | uapi::NLM_F_EXCL, 0),
            Verb::Delete => (uapi::RTM_DELROUTE, 0, uapi::RT_SCOPE_NOWHERE),
        };
        let (dst, len) = self.ip.destination(number);
        let mut message = batch.message(kind, flags | more);
        message.fixed(&[self.ip.family(), len, 0, 0, 254, self.protocol, scope, 1, 0, 0, 0, 0]);
        message.attr(uapi::RTA_DST, &octets(dst));
        if self.ip == Ip::V6 {
            message.attr_u32(uapi::RTA_PRIORITY, 1024);
        }
        message.attr(uapi::RTA_GATEWAY, &octets(self.ip.gateway()));
        if verb == Verb::Delete {
            message.attr_u32(uapi::RTA_OIF, LINK_INDEX);
        }
        Ok(message.finish()?)
    }

    /// Messages about these routes, in sends as large as those of our transport.
    pub(super) fn sends(self, verb: Verb, numbers: Range<usize>) -> Result<Vec<Batch>> {
        let count = SEND_BYTES / self.send(verb, 0..1)?.bytes().len().max(1);
        let end = numbers.end;
        let starts = numbers.step_by(count);
        starts.map(|first| self.send(verb, first..(first + count).min(end))).collect()
    }

    /// One send about these routes, whose last message is acked.
    pub(super) fn send(self, verb: Verb, numbers: Range<usize>) -> Result<Batch> {
        let mut batch = Batch::new();
        let last = numbers.end.saturating_sub(1);
        for number in numbers {
            let flags = if number == last { uapi::NLM_F_ACK } else { 0 };
            self.write(&mut batch, verb, number, flags)?;
        }
        Ok(batch)
    }
}

/// An address of its own for each number.
pub(super) fn address(number: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits((11 << 24) + u32::try_from(number).unwrap_or(u32::MAX))
}

fn octets(addr: IpAddr) -> Vec<u8> {
    match addr {
        IpAddr::V4(addr) => addr.octets().to_vec(),
        IpAddr::V6(addr) => addr.octets().to_vec(),
    }
}

pub(super) fn send_all(socket: &Socket, sends: &[Batch]) -> Result<()> {
    sends.iter().try_for_each(|batch| send_raw(socket, batch))
}

/// One send, one answer: the ack of the last message.
pub(super) fn send_raw(socket: &Socket, batch: &Batch) -> Result<()> {
    socket.send(batch.bytes())?;
    ensure!(socket.wait(TIMEOUT)?, "no answer");
    let mut answer = [0; 4096];
    let (count, _) = recv(socket.as_fd(), &mut answer, RecvFlags::empty())?;
    let status = answer.get(16..20).filter(|_| count >= 20).context("a short answer")?;
    ensure!(status == [0; 4], "refused: {status:?}");
    Ok(())
}

/// The request for all routes.
pub(super) fn dump_request(ip: Ip) -> Result<Batch> {
    let mut batch = Batch::new();
    let mut message = batch.message(uapi::RTM_GETROUTE, uapi::NLM_F_DUMP);
    message.fixed(&[ip.family(), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    message.finish()?;
    Ok(batch)
}

/// Reads a dump to its last message, which is the last of a datagram.
pub(super) fn read_raw(socket: &Socket, request: &Batch) -> Result<usize> {
    const DONE: [u8; 2] = [3, 0];
    const DONE_LENGTH: usize = 20;
    socket.send(request.bytes())?;
    let mut buffer = vec![0; 1 << 20];
    let mut bytes = 0;
    while socket.wait(TIMEOUT)? {
        let (count, _) = recv(socket.as_fd(), buffer.as_mut_slice(), RecvFlags::empty())?;
        bytes += count;
        let kind = count.checked_sub(DONE_LENGTH).and_then(|at| buffer.get(at + 4..at + 6));
        if kind == Some(&DONE) {
            return Ok(bytes);
        }
    }
    bail!("the dump did not end")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_differ_by_number() {
        let shown = |ip: Ip, number| format!("{:?}", ip.destination(number));
        assert_eq!(shown(Ip::V4, 0x01_02_03), "(21.2.3.0, 24)");
        assert_eq!(shown(Ip::V6, 0x01_02_03), "(2a00:1:203::, 48)");
    }
}
