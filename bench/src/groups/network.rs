//! A network namespace for one contestant, and the kernel's own count of its routes.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use homeostat_netlink::{Family, Options, Socket};
use homeostat_testkit::namespace::Namespace;
use serde_json::Value;

use super::wire::{Ip, RouteMessages, Verb, send_all};
use crate::clock;

/// The link to the gateways.
const LINK: &str = "v0";
pub(super) const LINK_INDEX: u32 = 77;

/// Longer than any contestant needs for a million routes.
const TIMEOUT: Duration = Duration::from_mins(5);

/// A namespace with a link to the gateways. Its routes are deleted when this is dropped.
pub(super) struct TestNetwork {
    namespace: Namespace,
    /// The number of routes from the start, of IPv4 and IPv6.
    base: [usize; 2],
}

impl TestNetwork {
    /// Creates it, and moves the calling thread into it.
    pub(super) fn new() -> Result<Self> {
        let namespace = Namespace::enter()?;
        // A daemon may listen there.
        namespace.ip(&["link", "set", "lo", "up"])?;
        let index = LINK_INDEX.to_string();
        let link = ["link", "add", LINK, "index", &index, "type", "veth", "peer", "name", "v1"];
        namespace.ip(&link)?;
        namespace.ip(&["address", "add", "10.0.0.1/24", "dev", LINK])?;
        namespace.ip(&["address", "add", "2001:db8::1/64", "dev", LINK, "nodad"])?;
        for end in ["v1", LINK] {
            // No link-local addresses, which would be added at any time.
            namespace.ip(&["link", "set", end, "addrgenmode", "none"])?;
            namespace.ip(&["link", "set", end, "up"])?;
        }
        settle(&namespace)?;
        let base = [count(Ip::V4)?, count(Ip::V6)?];
        Ok(TestNetwork { namespace, base })
    }

    /// A namespace full of routes.
    pub(super) fn filled(messages: RouteMessages, size: usize) -> Result<Self> {
        let network = Self::new()?;
        send_all(&network.socket()?, &messages.sends(Verb::Add, 0..size)?)?;
        Ok(network)
    }

    /// Moves the calling thread into it again.
    pub(super) fn enter(&self) -> Result<()> {
        Ok(self.namespace.netns().enter()?)
    }

    /// Runs `ip` in the namespace of the calling thread.
    pub(super) fn ip(&self, args: &[&str]) -> Result<()> {
        Ok(self.namespace.ip(args)?)
    }

    /// What `ip` lists in the namespace of the calling thread.
    pub(super) fn listed(&self, args: &[&str]) -> Result<Value> {
        Ok(self.namespace.ip_json(args)?)
    }

    /// A socket for raw sends and dumps.
    pub(super) fn socket(&self) -> Result<Socket> {
        let options = Options::default();
        Ok(Socket::open_in(self.namespace.netns(), Family::Route, &options)?)
    }

    /// How many routes were added, by the kernel's own count. It adds a few of IPv6 by itself at any time.
    pub(super) fn count(&self, ip: Ip) -> Result<usize> {
        let [v4, v6] = self.base;
        Ok(count(ip)?.saturating_sub(if ip == Ip::V4 { v4 } else { v6 }))
    }

    /// Waits until this many were added; fails with the error of `check`, or after the timeout.
    pub(super) fn await_count(
        &self,
        ip: Ip,
        size: usize,
        mut check: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let start = clock::now();
        loop {
            let (count, cost) = clock::time(|| self.count(ip));
            let count = count?;
            if count >= size {
                return Ok(());
            }
            check().with_context(|| format!("{count} of {size} routes are there"))?;
            ensure!(start.elapsed() < TIMEOUT, "{count} of {size} routes are there in time");
            // Counting takes the kernel a walk over all routes, so it is not done too often.
            std::thread::sleep(cost.max(Duration::from_micros(500)));
        }
    }

    /// Fails unless this many were added.
    pub(super) fn expect(&self, ip: Ip, size: usize) -> Result<()> {
        const STRAY: usize = 8;
        let (count, stray) = (self.count(ip)?, if ip == Ip::V4 { 0 } else { STRAY });
        ensure!((size..=size + stray).contains(&count), "{count} instead of {size} routes");
        Ok(())
    }
}

/// Waits until the link is up, so that no event of it comes later.
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

/// Deletes the routes at once, with their link: the kernel would do it in the background, while the next contestant
/// runs.
impl Drop for TestNetwork {
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

/// Of the main table, which contains the local one as long as there are no rules.
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
