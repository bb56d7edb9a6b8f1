//! The SSH connection of the operator, and the changes of a plan that may cut it.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use homeostat_document::HOST;
use homeostat_engine::{Entry, Kind};
use homeostat_registry::{Connection, Way};

use crate::context::{Context, Top};
use crate::output::SourceReport;
use crate::output::line::plain;
use crate::registry;

const VARIABLE: &str = "SSH_CONNECTION";
/// How many keys a warning names.
const NAMED: usize = 3;
/// How many parents are asked: a shell, `sudo`, and what lies between.
const PARENTS: usize = 32;

/// The warning about a plan before it is applied: one line, or none.
pub(crate) fn warnings(context: &Context, reports: &[SourceReport]) -> Vec<String> {
    if !matches!(context.top, Top::Host) {
        // The connection is not in that namespace.
        return Vec::new();
    }
    connection().and_then(|connection| warning(&connection, reports)).into_iter().collect()
}

fn warning(connection: &Connection, reports: &[SourceReport]) -> Option<String> {
    let mut keys = Vec::new();
    for SourceReport { ledger_key, report, .. } in
        reports.iter().filter(|one| one.ledger_key.scope == HOST)
    {
        let Some(source) = registry::find(&ledger_key.source) else { continue };
        report.explain(Kind::Change, &mut |entry| {
            if let Entry::Change(line, _) = entry
                && (source.carries)(&line.key, connection)
            {
                keys.push(format!("`{}`", plain(&line.key)));
            }
        });
    }
    let more = match keys.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named = keys.get(..keys.len().min(NAMED))?.join(", ");
    (!keys.is_empty()).then(|| {
        format!(
            "{named}{more}: your SSH connection from {} comes through it; `homeostat apply --confirm-within 2m` undoes \
             the change if you are cut off",
            connection.remote
        )
    })
}

/// The connection by which this process, or a parent of it, was started. `sudo` takes the variable away.
fn connection() -> Option<Connection> {
    let own = std::env::var(VARIABLE).ok();
    let text = own.or_else(|| parents().find_map(variable_of))?;
    let mut words = text.split_whitespace();
    let remote: IpAddr = words.next()?.parse().ok()?;
    let local = words.nth(1)?.parse().ok()?;
    Some(Connection { local, remote, route: way_to(remote) })
}

fn parents() -> impl Iterator<Item = u32> {
    let parent = |pid: u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        line.trim().parse().ok().filter(|parent| *parent != 0)
    };
    std::iter::successors(parent(std::process::id()), move |pid| parent(*pid)).take(PARENTS)
}

fn variable_of(pid: u32) -> Option<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let name = format!("{VARIABLE}=");
    let mut variables = environment.split(|byte| *byte == 0);
    let found = variables.find_map(|one| one.strip_prefix(name.as_bytes()))?;
    String::from_utf8(found.to_owned()).ok()
}

/// The longest route to an address.
fn way_to(address: IpAddr) -> Option<Way> {
    let (file, parse) = match address {
        IpAddr::V4(_) => ("/proc/net/route", ipv4_route as ParseRoute),
        IpAddr::V6(_) => ("/proc/net/ipv6_route", ipv6_route as ParseRoute),
    };
    let text = fs::read_to_string(file).ok()?;
    let routes = text.lines().filter_map(parse);
    let here = routes.filter(|(network, way)| is_inside(address, *network, way.prefix_len));
    here.map(|(_, way)| way).max_by_key(|way| way.prefix_len)
}

/// Reads a line of a list of routes.
type ParseRoute = fn(&str) -> Option<(IpAddr, Way)>;

/// Link, network and, as the eighth word, the mask; numbers as the machine has them in memory.
fn ipv4_route(line: &str) -> Option<(IpAddr, Way)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |nth: usize| {
        let number = u32::from_str_radix(words.get(nth)?, 16).ok()?;
        Some(Ipv4Addr::from(number.to_ne_bytes()))
    };
    let prefix_len = u8::try_from(number(7)?.to_bits().count_ones()).ok()?;
    Some((number(1)?.into(), Way { prefix_len, link: (*words.first()?).to_owned() }))
}

/// Network, its length, and the link as the last word.
fn ipv6_route(line: &str) -> Option<(IpAddr, Way)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let network = Ipv6Addr::from_bits(u128::from_str_radix(words.first()?, 16).ok()?);
    let prefix_len = u8::from_str_radix(words.get(1)?, 16).ok()?;
    Some((network.into(), Way { prefix_len, link: (*words.last()?).to_owned() }))
}

fn is_inside(address: IpAddr, network: IpAddr, prefix_len: u8) -> bool {
    let bits = u32::from(prefix_len);
    match (address, network) {
        (IpAddr::V4(one), IpAddr::V4(other)) => {
            (one.to_bits() ^ other.to_bits()).leading_zeros() >= bits
        }
        (IpAddr::V6(one), IpAddr::V6(other)) => {
            (one.to_bits() ^ other.to_bits()).leading_zeros() >= bits
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_read_as_the_kernel_lists_them() {
        let line = format!(
            "eth0\t{:08X}\t00000000\t0003\t0\t0\t512\t{:08X}\t0\t0\t0",
            u32::from_ne_bytes([192, 0, 2, 0]),
            u32::from_ne_bytes([255, 255, 255, 0])
        );
        let way = |prefix_len| Way { prefix_len, link: "eth0".to_owned() };
        assert_eq!(ipv4_route(&line), Some(("192.0.2.0".parse().unwrap(), way(24))));
        assert_eq!(
            ipv4_route("Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask"),
            None
        );
        let zero = "0".repeat(32);
        let line = format!(
            "20010db8{} 20 {zero} 00 {zero} 00000400 1 0 00000001     eth0",
            "0".repeat(24)
        );
        assert_eq!(ipv6_route(&line), Some(("2001:db8::".parse().unwrap(), way(32))));
    }

    #[test]
    fn an_address_is_inside_of_a_network_by_its_first_bits() {
        let inside = |address: &str, network: &str, len| {
            is_inside(address.parse().unwrap(), network.parse().unwrap(), len)
        };
        assert!(inside("192.0.2.9", "192.0.2.0", 24) && inside("192.0.2.9", "0.0.0.0", 0));
        assert!(!inside("192.0.3.9", "192.0.2.0", 24) && !inside("2001:db8::1", "0.0.0.0", 0));
    }
}
