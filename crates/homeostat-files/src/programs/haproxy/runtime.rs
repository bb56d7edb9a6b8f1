//! What a running `HAProxy` has, beside what is declared, and the commands that make the one of the other. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::IpAddr;

use crate::model::Difference;
use crate::programs::haproxy::certificate::Certificate;
use crate::programs::haproxy::map::{self, Entries, Update};

/// What a set declares that can be changed in the running process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Declared {
    pub(crate) backends: BTreeMap<String, Backend>,
    /// By their paths.
    pub(crate) maps: BTreeMap<String, Entries>,
    pub(crate) certificates: BTreeMap<String, Certificate>,
}

/// The servers of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Backend {
    pub(crate) servers: BTreeMap<String, Server>,
    pub(crate) members: Members,
}

/// Which servers a backend may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Members {
    /// All are alike, so that they can be added with these keywords and removed.
    Free { keywords: String },
    /// Those of the file.
    Fixed,
    /// Those of the file and others, which the text does not name.
    Open,
}

/// What can be changed of a server at runtime; the rest is in the masked text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) address: Option<(IpAddr, u16)>,
    pub(crate) weight: Option<u16>,
}

/// What the running process has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Observed {
    pub(crate) backends: BTreeMap<String, BTreeMap<String, ObservedServer>>,
    pub(crate) maps: BTreeMap<String, Entries>,
    /// The fingerprints of certificates.
    pub(crate) certificates: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObservedServer {
    /// Nothing, if it has a name that is not resolved.
    pub(crate) address: Option<(IpAddr, u16)>,
    pub(crate) weight: u16,
    /// What an operator, or the file, has said of it.
    pub(crate) admin: u8,
}

/// Bits of `srv_admin_state`.
const FORCED_MAINTENANCE: u8 = 0x01;
const FORCED_DRAIN: u8 = 0x08;

/// A server, by its backend.
pub(crate) type ServerName = (String, String);

/// What can be sent to the process, in order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Commands that take one line each, and can be sent together.
    Line(String),
    /// Removes a server, once it has no connections.
    Remove(ServerName),
    /// Gives a map new entries at once.
    ReplaceMap {
        path: String,
        entries: Entries,
    },
    SetCertificate {
        path: String,
        blocks: String,
    },
}

impl Declared {
    pub(crate) fn is_empty(&self) -> bool {
        self.backends.is_empty() && self.maps.is_empty() && self.certificates.is_empty()
    }

    /// The differences, for people.
    pub(crate) fn differences(&self, observed: &Observed) -> Vec<Difference> {
        let mut all = Vec::new();
        for (backend, declared) in &self.backends {
            let none = BTreeMap::new();
            let servers = observed.backends.get(backend).unwrap_or(&none);
            for (name, wanted) in &declared.servers {
                let what = |part: &str| format!("server {backend}/{name}{part}");
                let Some(is) = servers.get(name) else {
                    all.push(Difference::new(what(""), "", &shown(*wanted)));
                    continue;
                };
                if wanted.address.is_some() && wanted.address != is.address {
                    let (is, wanted) = (shown_address(is.address), shown_address(wanted.address));
                    all.push(Difference::new(what(" address"), &is, &wanted));
                }
                if let Some(weight) = wanted.weight.filter(|weight| *weight != is.weight) {
                    let (is, wanted) = (is.weight.to_string(), weight.to_string());
                    all.push(Difference::new(what(" weight"), &is, &wanted));
                }
            }
            for (name, is) in declared.extra(servers) {
                let (address, weight) = (is.address, Some(is.weight));
                let is = shown(Server { address, weight });
                all.push(Difference::new(format!("server {backend}/{name}"), &is, ""));
            }
        }
        for (path, wanted) in &self.maps {
            let is = observed.maps.get(path);
            if is != Some(wanted) {
                let count = |entries: &Entries| format!("{} entries", entries.len());
                let (is, wanted) = (is.map(count).unwrap_or_default(), count(wanted));
                all.push(Difference::new(format!("map {path}"), &is, &wanted));
            }
        }
        for (path, wanted) in &self.certificates {
            let is = observed.certificates.get(path).map(String::as_str).unwrap_or_default();
            if is != wanted.fingerprint {
                let what = format!("certificate {path}");
                all.push(Difference::new(what, is, &wanted.fingerprint));
            }
        }
        all
    }

    /// Whether everything but servers is as declared: what is known of servers needs no check by the program.
    pub(crate) fn differs_in_servers_only(&self, observed: &Observed) -> bool {
        self.maps.iter().all(|(path, wanted)| observed.maps.get(path) == Some(wanted))
            && self
                .certificates
                .iter()
                .all(|(path, wanted)| observed.certificates.get(path) == Some(&wanted.fingerprint))
    }

    /// The commands that make the observed state the declared one; nothing, if there are none that could. Servers that are
    /// `leaving` and declared again are put back to work.
    pub(crate) fn commands(
        &self,
        observed: &Observed,
        leaving: &BTreeSet<ServerName>,
    ) -> Option<Vec<Command>> {
        let mut lines = Vec::new();
        let mut removals = Vec::new();
        for (backend, declared) in &self.backends {
            let servers = observed.backends.get(backend)?;
            for (name, wanted) in &declared.servers {
                let server = format!("{backend}/{name}");
                match (servers.get(name), &declared.members) {
                    (Some(is), _) => {
                        lines.extend(set_commands(&server, *wanted, *is));
                        let is_leaving = leaving.contains(&(backend.clone(), name.clone()));
                        if is_leaving && is.admin & FORCED_MAINTENANCE != 0 {
                            lines.push(format!("set server {server} state ready"));
                        }
                    }
                    (None, Members::Free { keywords }) => {
                        lines.push(add_command(&server, *wanted, keywords)?);
                    }
                    (None, Members::Fixed | Members::Open) => return None,
                }
            }
            for (name, _) in declared.extra(servers) {
                removals.push(Command::Remove((backend.clone(), name.clone())));
            }
        }
        let mut commands: Vec<Command> = lines.into_iter().map(Command::Line).collect();
        commands.extend(removals);
        for (path, wanted) in &self.maps {
            let is = observed.maps.get(path)?;
            if is == wanted {
                continue;
            }
            match map::update(path, is, wanted) {
                Update::Few(few) => commands.extend(few.into_iter().map(Command::Line)),
                Update::Whole => {
                    let (path, entries) = (path.clone(), wanted.clone());
                    commands.push(Command::ReplaceMap { path, entries });
                }
            }
        }
        for (path, wanted) in &self.certificates {
            if *observed.certificates.get(path)? != wanted.fingerprint {
                let (path, blocks) = (path.clone(), wanted.blocks.clone());
                commands.push(Command::SetCertificate { path, blocks });
            }
        }
        Some(commands)
    }

    /// Servers that an operator has taken out of work, in words. Those that leave are none of these.
    pub(crate) fn notes(&self, observed: &Observed, leaving: &BTreeSet<ServerName>) -> Vec<String> {
        let mut notes = Vec::new();
        for (backend, declared) in &self.backends {
            let Some(servers) = observed.backends.get(backend) else { continue };
            for (name, is) in servers {
                let is_declared = declared.servers.contains_key(name);
                let is_leaving = leaving.contains(&(backend.clone(), name.clone()));
                let state = match is.admin {
                    admin if admin & FORCED_MAINTENANCE != 0 => "in maintenance",
                    admin if admin & FORCED_DRAIN != 0 => "draining",
                    _ => continue,
                };
                if is_declared && !is_leaving {
                    notes.push(format!("server {backend}/{name} is {state}, by an operator"));
                }
            }
        }
        notes
    }

    /// Servers that were about to leave and are declared again, but still out of work.
    pub(crate) fn returned(
        &self,
        observed: &Observed,
        leaving: &BTreeSet<ServerName>,
    ) -> Vec<Difference> {
        let returned = leaving.iter().filter(|(backend, name)| {
            let declared = self.backends.get(backend);
            let is_declared = declared.is_some_and(|one| one.servers.contains_key(name));
            let server = observed.backends.get(backend).and_then(|servers| servers.get(name));
            is_declared && server.is_some_and(|server| server.admin & FORCED_MAINTENANCE != 0)
        });
        let returned = returned.map(|(backend, name)| {
            let what = format!("server {backend}/{name} state");
            Difference::new(what, "maintenance", "ready")
        });
        returned.collect()
    }

    /// The same with the values that a process had, where it says them.
    pub(crate) fn with_values_of(&self, had: &Observed) -> Self {
        let backends = self.backends.iter().filter_map(|(name, declared)| {
            let servers = had.backends.get(name)?.iter().map(|(name, server)| {
                let (address, weight) = (server.address, Some(server.weight));
                (name.clone(), Server { address, weight })
            });
            let members = declared.members.clone();
            Some((name.clone(), Backend { servers: servers.collect(), members }))
        });
        let maps = had.maps.clone();
        Declared { backends: backends.collect(), maps, certificates: BTreeMap::new() }
    }

    /// The servers that leave and have not left.
    pub(crate) fn leaving(&self, observed: &Observed) -> BTreeSet<ServerName> {
        let extra = self.backends.iter().flat_map(|(backend, declared)| {
            let servers = observed.backends.get(backend);
            let extra = servers.into_iter().flat_map(|servers| declared.extra(servers));
            extra.map(|(name, _)| (backend.clone(), name.clone()))
        });
        extra.collect()
    }
}

impl Backend {
    /// Servers that are there and not declared.
    fn extra<'a>(
        &'a self,
        observed: &'a BTreeMap<String, ObservedServer>,
    ) -> impl Iterator<Item = (&'a String, &'a ObservedServer)> {
        let is_known = !matches!(self.members, Members::Open);
        observed.iter().filter(move |(name, _)| is_known && !self.servers.contains_key(*name))
    }
}

fn set_commands(server: &str, wanted: Server, is: ObservedServer) -> Vec<String> {
    let address = wanted.address.filter(|address| is.address != Some(*address));
    let address = address.map(|(ip, port)| format!("set server {server} addr {ip} port {port}"));
    let weight = wanted.weight.filter(|weight| *weight != is.weight);
    let weight = weight.map(|weight| format!("set server {server} weight {weight}"));
    address.into_iter().chain(weight).collect()
}

/// One line: the process takes it whole, so that none is left that was added and not enabled.
fn add_command(server: &str, wanted: Server, keywords: &str) -> Option<String> {
    let (address, weight) = (shown_address(wanted.address), wanted.weight?);
    wanted.address?;
    let mut line = format!("add server {server} {address} weight {weight}");
    if !keywords.is_empty() {
        // Writing to a string cannot fail.
        let _ = write!(line, " {keywords}");
    }
    let _ = write!(line, ";enable server {server}");
    if keywords.split(' ').any(|word| word == "check") {
        let _ = write!(line, ";enable health {server}");
    }
    Some(line)
}

fn shown(server: Server) -> String {
    let weight = server.weight.map(|weight| format!(" weight {weight}")).unwrap_or_default();
    format!("{}{weight}", shown_address(server.address))
}

fn shown_address(address: Option<(IpAddr, u16)>) -> String {
    match address {
        Some((IpAddr::V4(ip), port)) => format!("{ip}:{port}"),
        Some((IpAddr::V6(ip), port)) => format!("[{ip}]:{port}"),
        None => String::new(),
    }
}

/// Reads the answer to `show servers state`, of backends that are declared.
pub(crate) fn parse_servers(
    answer: &str,
    declared: &Declared,
) -> BTreeMap<String, BTreeMap<String, ObservedServer>> {
    let mut backends: BTreeMap<String, BTreeMap<String, ObservedServer>> = BTreeMap::new();
    for line in answer.lines() {
        let mut columns = line.split(' ');
        // be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight ... srv_port (the 19th)
        let mut next = |skipped: usize| columns.nth(skipped);
        let (Some(backend), Some(name), Some(ip)) = (next(1), next(1), next(0)) else { continue };
        let (admin, weight, port) = (next(1), next(0), next(10));
        if !declared.backends.contains_key(backend) {
            continue;
        }
        let number = |text: Option<&str>| text.and_then(|text| text.parse::<u16>().ok());
        let (Some(admin), Some(weight), Some(port)) = (number(admin), number(weight), number(port))
        else {
            continue;
        };
        let address = ip.parse().ok().map(|ip| (ip, port));
        let admin = u8::try_from(admin & 0xff).unwrap_or_default();
        let server = ObservedServer { address, weight, admin };
        // Ten thousand servers need no name of their backend each.
        if let Some(servers) = backends.get_mut(backend) {
            servers.insert(name.to_owned(), server);
        } else {
            backends.insert(backend.to_owned(), BTreeMap::from([(name.to_owned(), server)]));
        }
    }
    // A backend without servers is not shown.
    for backend in declared.backends.keys() {
        if !backends.contains_key(backend) {
            backends.insert(backend.clone(), BTreeMap::new());
        }
    }
    backends
}
