//! `[links.NAME]`: interfaces. With a kind they are made and owned, without one only configured.

use std::collections::{BTreeSet, HashMap};

use homeostat_document::{
    Checker, Definitions, Diagnostic, Document, Fields, HOST, Join, Json, Map, NamedRecord,
    NamespaceName, Node, Record, Scope, Section, Shape, Span, Spanned, Text, Twins, Value,
    ValueError, describe_record, read_record,
};
use serde_json::json;

use crate::address::section::DeclaredAddress;
use crate::key::Key;
use crate::link::LinkName;
use crate::link::cascade::IPV6_MIN_MTU;
use crate::link::kinds::behaviour::Ports;
use crate::link::kinds::vlan::VrfTable;
use crate::link::kinds::{LinkKind, MASTERS, WITH_PARENT};
use crate::link::matching::LinkMatch;
use crate::link::model::{BridgeSettings, Field, Link, LinkRef, PortSettings, Setting, Settings};
use crate::net::Family;
use crate::object::Object;
use crate::values::{MTU, QUEUE_LENGTH};

/// `[links]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Links(pub Vec<DeclaredLink>);

impl Links {
    /// Whether anything is said of links: there are none, or one has more than fields of other sources.
    #[must_use]
    pub fn is_stated(&self) -> bool {
        self.0.is_empty() || self.0.iter().any(|link| link.is_stated)
    }
}

/// An interface by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredLink {
    /// Its name.
    pub name: Spanned<LinkName>,
    /// What it is, if it is to be made; with the options of that kind.
    pub kind: Option<Spanned<LinkKind>>,
    /// What is declared of it, created by us or not.
    pub settings: Settings,
    /// What is declared of it as a part of a bridge.
    pub bridge: BridgeSettings,
    /// The link below it.
    pub parent: Option<LinkRef>,
    /// What it is known by, if not by its name, which it gets.
    pub matches: Option<LinkMatch>,
    /// Its addresses; an empty list was said aloud.
    pub addresses: Option<Vec<DeclaredAddress>>,
    /// Whether it may be taken over from any owner.
    pub adopt: bool,
    /// Whether it may be absent.
    pub optional: bool,
    /// Whether more is written here than fields of other sources.
    pub is_stated: bool,
    mtu: Spanned<()>,
    master: Spanned<()>,
    vlans: Spanned<()>,
    port: Spanned<()>,
    parent_namespace: Spanned<()>,
    peer: Spanned<()>,
}

/// The links of a scope.
pub(crate) fn links(scope: &Scope) -> impl Iterator<Item = &DeclaredLink> {
    scope.get::<Links>().into_iter().flat_map(|all| &all.0)
}

/// The first table of VRFs whose tables are found here, as ifupdown2 has it.
const FIRST_VRF_TABLE: u32 = 1001;

/// The tables of the VRFs with `table = "auto"`: the lowest that no other VRF has, in the order of writing.
pub(crate) fn vrf_tables(scope: &Scope) -> HashMap<LinkName, u32> {
    let all = links(scope).filter_map(|link| match &link.kind.as_ref()?.value {
        LinkKind::Vrf(vrf) => Some((link.name.value, vrf.table)),
        _ => None,
    });
    let all: Vec<(LinkName, u32)> = all.collect();
    let taken: BTreeSet<u32> = all.iter().map(|(_, table)| *table).collect();
    let mut free = (FIRST_VRF_TABLE..).filter(|table| !taken.contains(table));
    let open = all.into_iter().filter(|(_, table)| *table == VrfTable::AUTO);
    open.map_while(|(name, _)| Some((name, free.next()?))).collect()
}

/// The namespaces that the links of a scope refer to.
pub fn namespaces(scope: &Scope) -> impl Iterator<Item = &str> {
    links(scope).flat_map(|link| {
        let references = link.parent.iter().chain(link.peer());
        references.filter_map(|other| other.namespace.as_deref())
    })
}

impl DeclaredLink {
    /// The link itself if it is created, otherwise its declared fields; in both cases what it has in its bridge.
    pub(crate) fn objects(&self) -> Vec<(Key, Object)> {
        let name = self.name.value;
        let object = |(field, setting): (Field, Setting)| {
            (Key::LinkField(name, field), Object::Setting(setting.into()))
        };
        let of_bridge = self.bridge.clone().each().map(object);
        let Some(kind) = &self.kind else {
            return self.settings.clone().each().map(object).chain(of_bridge).collect();
        };
        let Settings { up, mtu, txqueuelen, mac, master, alias } = self.settings.clone();
        let (kind, parent) = (kind.value.clone(), self.parent.clone());
        let link = Link { up, mtu, txqueuelen, mac, master, parent, alias, ..Link::new(kind) };
        let link = (Key::Link(name), Object::Link(Box::new(link)));
        std::iter::once(link).chain(of_bridge).collect()
    }

    /// The other end of a veth pair.
    fn peer(&self) -> Option<&LinkRef> {
        self.kind.as_ref().and_then(|kind| kind.peer())
    }

    fn is(&self, other: &LinkRef) -> bool {
        other.namespace.is_none() && other.name == self.name.value
    }
}

impl Section for Links {
    const NAME: &'static str = "links";
    const DOC: &'static str = "Interfaces by name";
    const JOIN: Join = Join::Tables(&["*"]);

    type Value = Map<DeclaredLink>;
    const NEW: fn(Self::Value) -> Self = |Map(links)| Self(links);

    fn check(document: &Document, checker: &mut Checker) {
        for (_, scope) in document.scopes() {
            let assigned = scope.assignments();
            for link in links(scope) {
                check_addresses(link, checker);
                check_ipv6(link, &assigned, checker);
            }
            check_matches(scope, checker);
        }
        check_references(document, checker);
    }
}

impl NamedRecord for DeclaredLink {
    const KEY: &'static str = "the name of an interface";
}

impl Record for DeclaredLink {
    const NAME: &'static str = "link";
    const DOC: &'static str = "An interface: with a kind it is made, without one only configured";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let name: Option<Spanned<LinkName>> = fields.name();
        let kind = LinkKind::read(fields);
        fields.extensions::<Self>();
        let up = fields.optional("up", "Whether it is up");
        let mtu = fields.number("mtu", "Largest packet", MTU);
        let txqueuelen =
            fields.number("txqueuelen", "How many packets may wait in it", QUEUE_LENGTH);
        let mac = fields.optional("mac", "Hardware address");
        let master = fields.optional("master", "The bridge, bond or VRF that it belongs to");
        let vlans = fields.optional(
            "vlans",
            "All its VLANs, as a bridge or as a port of one: ids, ranges, `pvid`, `untagged`",
        );
        let port = fields.optional("bridge-port", "What it has as a port of a bridge");
        let parent =
            fields.of_kinds(&WITH_PARENT, |fields| fields.optional("parent", "The link below it"));
        let alias: Option<Alias> = fields.optional("alias", "A description for people");
        let mut addresses: Option<Vec<DeclaredAddress>> =
            fields.optional("addresses", "Its addresses");
        let matches = fields.optional("match", "What the link is that gets this name");
        if let Some(kind) = kind.as_ref().filter(|_| fields.has("match")) {
            let message = "a link with a kind is made, so there is none that could match";
            let both = Diagnostic::new(fields.at("match"), message);
            fields
                .report(both.also(kind.span, "its kind is here").help("leave out one of the two"));
        }
        let adopt = fields.flag("adopt", "Take this link over from any owner");
        let optional = fields
            .flag("optional", "Whether it may be absent: what waits for it counts as converged");
        let alias = alias.map(|Alias(text)| text);
        let settings = Settings { up, mtu, txqueuelen, mac, master, alias };
        let bridge = BridgeSettings { vlans, port: port.unwrap_or_default() };
        let has_own = kind.is_some()
            || addresses.is_some()
            || matches.is_some()
            || settings != Settings::default()
            || bridge != BridgeSettings::default();
        let place = |span: Span| Spanned::new((), span);
        let name = name?;
        for address in addresses.iter_mut().flatten() {
            address.key.value.link = name.value;
        }
        let link = Self {
            name,
            kind,
            settings,
            bridge,
            parent,
            matches,
            addresses,
            adopt,
            optional,
            is_stated: has_own || !fields.is_extended(),
            mtu: place(fields.value_at("mtu")),
            master: place(fields.value_at("master")),
            vlans: place(fields.at("vlans")),
            port: place(fields.at("bridge-port")),
            parent_namespace: place(fields.value_within("parent", "namespace")),
            peer: place(fields.value_within("peer", "name")),
        };
        refuse_itself(&link, fields);
        Some(link)
    }
}

fn refuse_itself(link: &DeclaredLink, fields: &mut Fields<'_>) {
    let own = [
        ("master", link.settings.master == Some(link.name.value), fields.value_at("master")),
        ("parent", link.parent.iter().any(|other| link.is(other)), fields.value_at("parent")),
        ("peer", link.peer().is_some_and(|other| link.is(other)), link.peer.span),
    ];
    for (what, _, span) in own.into_iter().filter(|(_, is_itself, _)| *is_itself) {
        fields.report(Diagnostic::new(span, format!("a link cannot be its own {what}")));
    }
}

/// A link is a name, or a table with the namespace that it is in.
impl Shape for LinkRef {
    fn read(node: &Node, checker: &mut Checker) -> Option<Self> {
        if let Value::Table(_) = node.value {
            return read_record(node, checker);
        }
        LinkName::read(node, checker).map(LinkRef::here)
    }

    fn schema(definitions: &mut Definitions) -> Json {
        let name = LinkName::schema(definitions);
        json!({ "anyOf": [name, describe_record::<Self>(definitions)] })
    }
}

impl Record for LinkRef {
    const NAME: &'static str = "link-reference";
    const DOC: &'static str = "A link by name, here or in another namespace";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let name = fields.required("name", "Its name");
        let namespace: Option<NamespaceName> =
            fields.optional("namespace", "The namespace it is in, or `host`");
        Some(Self { name: name?, namespace: namespace.map(|name| name.to_string()) })
    }
}

/// A description of a link, for people.
struct Alias(String);

impl Text for Alias {
    const WHAT: &'static str = "a description";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        let fault = match text {
            _ if text.len() > 200 => "it has more than 200 bytes",
            _ if text.contains(char::is_control) => "it has a control character in it",
            _ if text.contains("homeostat:") => "`homeostat:` marks the links that we made",
            _ => return Ok(Self(text.to_owned())),
        };
        Err(ValueError::is_not(text, Self::WHAT).help(fault))
    }
}

/// One link has one name.
fn check_matches(scope: &Scope, checker: &mut Checker) {
    let says =
        |link: &&DeclaredLink| link.matches.as_ref().is_some_and(|it| *it != LinkMatch::default());
    let all: Vec<&DeclaredLink> = links(scope).filter(says).collect();
    for (at, link) in all.iter().enumerate() {
        let earlier = all.iter().take(at).find(|other| other.matches == link.matches);
        if let Some(earlier) = earlier {
            let message = format!("`{}` matches the same link", link.name.value);
            let twice = Diagnostic::new(link.name.span, message);
            checker.report(twice.also(earlier.name.span, "the other one is here"));
        }
    }
}

/// IPv4 takes one address with several lengths, IPv6 does not.
fn check_addresses(link: &DeclaredLink, checker: &mut Checker) {
    let mut twins = Twins::default();
    for address in link.addresses.iter().flatten() {
        let key = address.key.value;
        let (ip, len) = (key.ip, key.prefix_len);
        let length = ip.is_ipv4().then_some((len, key.peer));
        twins.see((ip, length), address.entry.span, checker, || {
            format!("the address {ip}/{len} of `{}`", link.name.value)
        });
    }
}

/// Refuses a link that wants IPv6 addresses and forbids them at the same time: the kernel refuses
/// addresses where `disable_ipv6` is 1 or the MTU is under 1280, and removes those that are there.
fn check_ipv6(
    link: &DeclaredLink,
    assigned: &HashMap<String, Spanned<String>>,
    checker: &mut Checker,
) {
    let mut addresses = link.addresses.iter().flatten();
    let Some(address) = addresses.find(|one| Family::of(one.key.ip) == Family::V6) else {
        return;
    };
    // The loopback link keeps IPv6 with any MTU.
    let is_loopback = link.name.as_str() == "lo";
    if link.settings.mtu.is_some_and(|mtu| mtu < IPV6_MIN_MTU) && !is_loopback {
        let message =
            format!("IPv6 needs an MTU of {IPV6_MIN_MTU}, so this address cannot be kept");
        let help = format!("set `mtu` to {IPV6_MIN_MTU} or more, or leave out the IPv6 addresses");
        let wrong = Diagnostic::new(address.entry.span, message);
        checker.report(wrong.also(link.mtu.span, "the MTU is here").help(help));
    }
    // What a link says for itself counts more than what is said for all.
    let switch = |name: &str| assigned.get(&format!("net/ipv6/conf/{name}/disable_ipv6"));
    let Some(value) = switch(link.name.as_str()).or_else(|| switch("all")) else { return };
    if value.trim().parse::<i64>().is_ok_and(|value| value != 0) {
        let message = format!(
            "IPv6 is switched off on `{}`, so this address cannot be kept",
            link.name.value
        );
        let wrong = Diagnostic::new(address.entry.span, message);
        checker.report(wrong.also(value.span, "switched off here"));
    }
}

/// Links by scope and name.
type ByName<'d> = HashMap<(&'d str, LinkName), &'d DeclaredLink>;

/// Masters, parents and peers: what links say of each other.
fn check_references(document: &Document, checker: &mut Checker) {
    let scopes = document.scopes().map(|(name, scope)| {
        let name = name.map_or(HOST, NamespaceName::as_str);
        (name, scope)
    });
    let all: Vec<(&str, &DeclaredLink)> =
        scopes.flat_map(|(name, scope)| links(scope).map(move |link| (name, link))).collect();
    let by_name: ByName<'_> =
        all.iter().map(|(scope, link)| ((*scope, link.name.value), *link)).collect();
    let mut ends = Twins::default();
    for (scope, link) in all {
        check_master(scope, link, &by_name, checker);
        check_bridge_fields(scope, link, &by_name, checker);
        check_parent(scope, link, checker);
        if let Some(peer) = link.peer() {
            let end = (peer.namespace.as_deref().unwrap_or(scope), peer.name);
            let what = || format!("the end `{}` of a veth pair", peer.name);
            ends.see(end, link.peer.span, checker, what);
            check_other_end(link, peer, by_name.get(&end), checker);
        }
    }
}

/// A master that we make must be of a kind that can be one.
fn check_master(scope: &str, link: &DeclaredLink, links: &ByName<'_>, checker: &mut Checker) {
    let Some(master) = link.settings.master else { return };
    let kind = links.get(&(scope, master)).and_then(|master| master.kind.as_ref());
    let Some(kind) = kind.filter(|kind| kind.behaviour().ports == Ports::None) else { return };
    let message = format!("a link of kind `{}` cannot be a master", kind.name());
    let wrong = Diagnostic::new(link.master.span, message).also(kind.span, "its kind is here");
    checker.report(wrong.help(format!("a master is of kind {}", MASTERS.join(", "))));
}

/// VLANs are for bridges and their ports, options of ports for ports. A link that is only configured may be put into a
/// bridge by another program.
fn check_bridge_fields(
    scope: &str,
    link: &DeclaredLink,
    links: &ByName<'_>,
    checker: &mut Checker,
) {
    let master = link.settings.master.and_then(|master| links.get(&(scope, master)));
    let master_kind = master.and_then(|master| master.kind.as_ref());
    let vlans = (link.vlans.span, "only a bridge and its ports have VLANs", "vlans");
    let port = (link.port.span, "only a port of a bridge has such options", "bridge-port");
    let has_port = link.bridge.port != PortSettings::default();
    let declared = [(link.bridge.vlans.is_some(), vlans), (has_port, port)];
    for (_, (span, message, field)) in declared.into_iter().filter(|(is_there, _)| *is_there) {
        let kind = match link.settings.master {
            Some(_) => master_kind.filter(|kind| !kind.is_bridge()),
            None => link.kind.as_ref().filter(|kind| field == "bridge-port" || !kind.is_bridge()),
        };
        if let Some(kind) = kind {
            let wrong = Diagnostic::new(span, message).also(kind.span, "its kind is here");
            let help = format!("give it a `master` of kind bridge, or leave out `{field}`");
            checker.report(wrong.help(help));
        }
    }
}

/// What can be declared and does not work.
#[must_use]
pub fn warnings(scope: &Scope) -> Vec<Diagnostic> {
    let keyless = links(scope).filter_map(|link| {
        let wireguard = link.kind.as_ref()?.wireguard()?;
        wireguard.private_key().is_none().then(|| {
            let message =
                format!("`{}` has no private key: it has no tunnel to any peer", link.name.value);
            let help =
                "add `private-key-file = \"/etc/wireguard/KEY\"`, unless another program sets one";
            Diagnostic::new(link.name.span, message).help(help)
        })
    });
    bare_bridges(scope).into_iter().chain(keyless).collect()
}

/// Bridges that filter VLANs while the document gives VLANs neither to them nor to their ports.
fn bare_bridges(scope: &Scope) -> Vec<Diagnostic> {
    let has_vlans = |bridge: LinkName| {
        let is_part = |link: &&DeclaredLink| {
            link.name.value == bridge || link.settings.master == Some(bridge)
        };
        links(scope).filter(is_part).any(|link| link.bridge.vlans.is_some())
    };
    let filtering = links(scope).filter_map(|link| match &link.kind.as_ref()?.value {
        LinkKind::Bridge(bridge) if bridge.vlan_filtering == Some(true) => Some((link, bridge)),
        _ => None,
    });
    let bare = filtering.filter(|(link, _)| !has_vlans(link.name.value));
    bare.map(|(link, bridge)| {
        let name = link.name.value;
        let effect = match bridge.vlan_default_pvid.unwrap_or(1) {
            0 => "it drops every frame".to_owned(),
            pvid => format!("all its ports are in VLAN {pvid} only"),
        };
        let message =
            format!("`{name}` filters VLANs, and no VLANs are declared for it or its ports: {effect}");
        let help = "give the ports and the bridge `vlans`, such as `vlans = [\"10 pvid untagged\", \"20-30\"]`";
        Diagnostic::new(link.name.span, message).help(help)
    })
    .collect()
}

/// Scopes read one way: a link of a namespace may be on one of the host, but none on one of another namespace.
fn check_parent(scope: &str, link: &DeclaredLink, checker: &mut Checker) {
    let Some(place) = link.parent.as_ref().and_then(|parent| parent.namespace.as_deref()) else {
        return;
    };
    if place != HOST && place != scope {
        let wrong = Diagnostic::new(
            link.parent_namespace.span,
            "a parent is in the same namespace or on the host",
        );
        checker.report(wrong.help("write `namespace = \"host\"`"));
    }
}

/// The scope that authors a pair owns both ends: the other end is only configured.
fn check_other_end(
    link: &DeclaredLink,
    peer: &LinkRef,
    other: Option<&&DeclaredLink>,
    checker: &mut Checker,
) {
    let Some(other) = other.filter(|other| !std::ptr::eq(**other, link)) else { return };
    // If each claims to make the other, the one that is written later is wrong.
    let earlier = other.name.span < link.name.span && other.peer().is_some();
    if let Some(kind) = other.kind.as_ref().filter(|_| !earlier) {
        let message = format!("`{}` is made as the other end of `{}`", peer.name, link.name.value);
        let both =
            Diagnostic::new(kind.span, message).also(link.peer.span, "the pair is made here");
        checker.report(both.help("leave out `kind` and `peer` here"));
    }
}
