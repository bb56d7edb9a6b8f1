//! A wired network namespace for one contestant, and the kernel's own count of its routes.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use homeostat_netlink::{Family, Options, Socket};
use homeostat_testkit::namespace::Namespace;

use super::wire::{Ip, Pen, Verb, send_raw};

/// The link to the gateways.
const LINK: &str = "v0";
/// The number of that link, which messages name.
pub(super) const LINK_INDEX: u32 = 77;

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
}
