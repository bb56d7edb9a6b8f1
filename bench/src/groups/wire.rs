//! What the groups about the kernel share: a wired namespace, messages that were encoded before, and
//! sends and dumps that look into nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd as _;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use homeostat_netlink::{Batch, Family, Options, Socket, uapi};
use homeostat_testkit::namespace::Namespace;
use rustix::net::{AddressFamily, RecvFlags, recv};

/// The bytes of one send, as many as our transport takes.
const SEND_BYTES: usize = 128 << 10;
/// The protocol that is our mark.
pub(super) const OURS: u8 = 76;
/// BIRD's own, for routes that are not ours.
pub(super) const FOREIGN: u8 = 12;
const PATIENCE: Duration = Duration::from_secs(30);

/// The link to the gateway, with its number.
const LINK: &str = "v0";
const LINK_INDEX: u32 = 77;

/// The version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ip {
    V4,
    V6,
}

impl Ip {
    /// Where all routes lead.
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
        let family = match self {
            Ip::V4 => AddressFamily::INET,
            Ip::V6 => AddressFamily::INET6,
        };
        let [family, _] = family.as_raw().to_le_bytes();
        family
    }
}

/// What a message does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Add,
    Delete,
}

/// Writes messages about routes of one kind, byte for byte as the rtnl source does.
#[derive(Clone, Copy)]
pub(super) struct Pen {
    pub(super) ip: Ip,
    pub(super) protocol: u8,
}

impl Pen {
    /// Writes about our own routes.
    pub(super) fn ours(ip: Ip) -> Self {
        Pen { ip, protocol: OURS }
    }

    /// Adds the message about one route, with these flags beside the usual ones.
    pub(super) fn write(
        self,
        batch: &mut Batch,
        verb: Verb,
        (number, more): (usize, u16),
    ) -> Result<()> {
        let (kind, flags, scope) = match verb {
            Verb::Add => (uapi::RTM_NEWROUTE, uapi::NLM_F_CREATE | uapi::NLM_F_EXCL, 0),
            Verb::Delete => (uapi::RTM_DELROUTE, 0, uapi::RT_SCOPE_NOWHERE),
        };
        let (dst, len) = self.ip.destination(number);
        let mut message = batch.message(kind, flags | more);
        message.fixed(&[self.ip.family(), len, 0, 0, 254, self.protocol, scope, 1, 0, 0, 0, 0]);
        match (dst, self.ip.gateway()) {
            (IpAddr::V4(dst), IpAddr::V4(gateway)) => {
                message.attr(uapi::RTA_DST, &dst.octets());
                message.attr(uapi::RTA_GATEWAY, &gateway.octets());
            }
            (IpAddr::V6(dst), IpAddr::V6(gateway)) => {
                message.attr(uapi::RTA_DST, &dst.octets()).attr_u32(uapi::RTA_PRIORITY, 1024);
                message.attr(uapi::RTA_GATEWAY, &gateway.octets());
            }
            _ => bail!("two versions in one route"),
        }
        if verb == Verb::Delete {
            message.attr_u32(uapi::RTA_OIF, LINK_INDEX);
        }
        Ok(message.finish()?)
    }

    /// Messages about the first `size` routes, in sends whose last message is acked.
    pub(super) fn sends(self, verb: Verb, size: usize) -> Result<Vec<Batch>> {
        let count = SEND_BYTES / self.send_of(verb, 0..1)?.bytes().len().max(1);
        let starts = (0..size).step_by(count);
        starts.map(|first| self.send_of(verb, first..(first + count).min(size))).collect()
    }

    /// One send about these routes.
    pub(super) fn send_of(self, verb: Verb, numbers: std::ops::Range<usize>) -> Result<Batch> {
        let mut batch = Batch::new();
        let last = numbers.end.saturating_sub(1);
        for number in numbers {
            let flags = if number == last { uapi::NLM_F_ACK } else { 0 };
            self.write(&mut batch, verb, (number, flags))?;
        }
        Ok(batch)
    }
}

/// A namespace with a link that reaches the gateways. Its routes go when this is dropped.
pub(super) struct Ground {
    namespace: Namespace,
    /// Routes that were there from the start.
    base: [usize; 2],
}

impl Ground {
    /// Makes one, and moves the calling thread into it.
    pub(super) fn new() -> Result<Self> {
        let namespace = Namespace::enter()?;
        let index = LINK_INDEX.to_string();
        let link = ["link", "add", LINK, "index", &index, "type", "veth", "peer", "name", "v1"];
        namespace.ip(&link)?;
        namespace.ip(&["address", "add", "10.0.0.1/24", "dev", LINK])?;
        namespace.ip(&["address", "add", "2001:db8::1/64", "dev", LINK, "nodad"])?;
        for end in ["v1", LINK] {
            // No link-local addresses, which would come when they like.
            namespace.ip(&["link", "set", end, "addrgenmode", "none"])?;
            namespace.ip(&["link", "set", end, "up"])?;
        }
        settle(&namespace)?;
        let base = [count(Ip::V4)?, count(Ip::V6)?];
        Ok(Ground { namespace, base })
    }

    /// A namespace full of routes.
    pub(super) fn filled(pen: Pen, size: usize) -> Result<Self> {
        let ground = Self::new()?;
        let socket = ground.socket()?;
        pen.sends(Verb::Add, size)?.iter().try_for_each(|batch| send_raw(&socket, batch))?;
        Ok(ground)
    }

    /// Moves the calling thread into it once more.
    pub(super) fn enter(&self) -> Result<()> {
        Ok(self.namespace.netns().enter()?)
    }

    /// Runs `ip` in it, on the thread that is in it.
    pub(super) fn ip(&self, args: &[&str]) -> Result<()> {
        Ok(self.namespace.ip(args)?)
    }

    /// A socket for raw sends and dumps.
    pub(super) fn socket(&self) -> Result<Socket> {
        let options = Options::default();
        Ok(Socket::open_in(self.namespace.netns(), Family::Route, &options)?)
    }

    /// How many routes came, by the kernel's own count. IPv6 makes a few by itself at any time.
    pub(super) fn count(&self, ip: Ip) -> Result<usize> {
        let [v4, v6] = self.base;
        Ok(count(ip)?.saturating_sub(if ip == Ip::V4 { v4 } else { v6 }))
    }

    /// Fails unless so many came.
    pub(super) fn expect(&self, ip: Ip, size: usize) -> Result<()> {
        const STRAY: usize = 8;
        let (count, stray) = (self.count(ip)?, if ip == Ip::V4 { 0 } else { STRAY });
        ensure!((size..=size + stray).contains(&count), "{count} instead of {size} routes");
        Ok(())
    }
}

/// Waits until the link is up for the kernel too, so that no news of it come later.
fn settle(namespace: &Namespace) -> Result<()> {
    const TRIES: u32 = 500;
    for _ in 0..TRIES {
        let links = namespace.ip_json(&["link", "show", LINK])?;
        if links.pointer("/0/operstate").is_some_and(|state| state == "UP") {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    bail!("the link does not come up")
}

/// Takes the routes away with their link, at once: the kernel would do it in the background, while
/// the next contestant runs.
impl Drop for Ground {
    fn drop(&mut self) {
        if self.enter().is_ok() {
            let _ = self.ip(&["link", "set", LINK, "down"]);
        }
    }
}

/// How many routes the calling thread's namespace has.
fn count(ip: Ip) -> Result<usize> {
    let text = |path: &str| std::fs::read_to_string(format!("/proc/thread-self/net/{path}"));
    let count = match ip {
        Ip::V4 => prefixes(&text("fib_triestat")?),
        Ip::V6 => entries(&text("rt6_stats")?),
    };
    count.context("the kernel's count of routes is not as expected")
}

/// The main table's, which holds the local one too as long as there are no rules.
fn prefixes(triestat: &str) -> Option<usize> {
    let mut lines = triestat.lines().skip_while(|line| *line != "Main:");
    let prefixes = lines.find_map(|line| line.trim().strip_prefix("Prefixes:"))?;
    prefixes.trim().parse().ok()
}

/// The fourth number, in hexadecimal digits.
fn entries(stats: &str) -> Option<usize> {
    usize::from_str_radix(stats.split_whitespace().nth(3)?, 16).ok()
}

/// One send, one answer: the ack of the last message.
pub(super) fn send_raw(socket: &Socket, batch: &Batch) -> Result<()> {
    socket.send(batch.bytes())?;
    ensure!(socket.wait(PATIENCE)?, "no answer");
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

/// Reads until the message that ends a dump, which stands last in the last datagram.
pub(super) fn read_raw(socket: &Socket, request: &Batch) -> Result<usize> {
    const DONE: [u8; 2] = [3, 0];
    const DONE_LENGTH: usize = 20;
    socket.send(request.bytes())?;
    let mut buffer = vec![0; 1 << 20];
    let mut bytes = 0;
    while socket.wait(PATIENCE)? {
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
    fn the_kernels_counts_are_found() {
        let triestat =
            "Basic info: size\nMain:\n\tLeaves:  5\n\tPrefixes: 7\nLocal:\n\tPrefixes: 9\n";
        assert_eq!(prefixes(triestat), Some(7));
        assert_eq!(entries("0009 0006 000d 00ff 0000 0000 0000\n"), Some(255));
        assert_eq!((prefixes(""), entries("")), (None, None));
    }

    #[test]
    fn destinations_differ_by_number() {
        let shown = |ip: Ip, number| format!("{:?}", ip.destination(number));
        assert_eq!(shown(Ip::V4, 0x01_02_03), "(21.2.3.0, 24)");
        assert_eq!(shown(Ip::V6, 0x01_02_03), "(2a00:1:203::, 48)");
    }
}
