//! A link's `addresses`.

use std::net::IpAddr;

use homeostat_document::{
    Checker, Definitions, Diagnostic, Fields, Json, Node, Record, Shape, Span, Spanned, Text,
    Value, ValueError, describe_record, read_record,
};
use ipnet::IpNet;
use serde_json::json;

use crate::address::{Address, AddressKey, Lifetime, is_never_deprecated};
use crate::builder::Impossible;
use crate::link::LinkName;
use crate::net::Family;
use crate::section::{Declared, WHILE};

/// An address as a document declares it: `"192.0.2.1/24"`, or a table with more. Its link has no name before the
/// reader of the link has filled it in.
pub type DeclaredAddress = Declared<AddressKey, Address>;

/// Nothing, if the peer is of another family, which was reported.
fn declared(
    prefix: IpNet,
    peer: Option<IpAddr>,
    address: Address,
    adopt: bool,
    span: Span,
) -> Option<DeclaredAddress> {
    let key = AddressKey::new(LinkName::default(), prefix.addr(), prefix.prefix_len())?;
    let key = peer.map_or(Some(key), |peer| key.with_peer(peer))?;
    Some(Declared::new(Spanned::new(key, span), address, adopt, span))
}

impl Shape for DeclaredAddress {
    fn read(node: &Node, checker: &mut Checker) -> Option<Self> {
        if let Value::Table(_) = node.value {
            return read_record(node, checker);
        }
        let prefix = IpNet::read(node, checker)?;
        declared(prefix, None, Address::default(), false, node.span)
    }

    fn schema(definitions: &mut Definitions) -> Json {
        let plain = IpNet::schema(definitions);
        json!({ "anyOf": [plain, describe_record::<Self>(definitions)] })
    }
}

impl Record for DeclaredAddress {
    const NAME: &'static str = "address";
    const DOC: &'static str = "An address of a link";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let ip: Option<Spanned<IpNet>> =
            fields.required("ip", "The address with its prefix length");
        let peer: Option<Spanned<IpAddr>> =
            fields.optional("peer", "The other end of a point-to-point link");
        let broadcast: Option<Spanned<IpAddr>> =
            fields.optional("broadcast", "The broadcast address");
        let scope = fields.optional("scope", "How far the address is valid");
        let label: Option<Label> =
            fields.optional("label", "A label that begins with the link's name");
        let valid: Option<Spanned<Lifetime>> =
            fields.optional("lifetime", "How long it lives from when it is set");
        let preferred: Option<Spanned<Lifetime>> =
            fields.optional("preferred-lifetime", "How long new connections prefer it");
        let noprefixroute =
            fields.flag("noprefixroute", "Keep the kernel from making a route for its network");
        let adopt = fields.flag("adopt", "Take this address over from any owner");
        let condition = fields.optional("while", WHILE);
        let ip = ip?;
        check_families(fields, ip, [peer, broadcast]);
        check_lifetimes(fields, ip, valid, preferred);
        let address = Address {
            scope,
            valid: valid.map(|valid| valid.value),
            preferred: preferred.map(|preferred| preferred.value),
            label: label.map(|Label(label)| label),
            broadcast: broadcast.and_then(|broadcast| match broadcast.value {
                IpAddr::V4(broadcast) => Some(broadcast),
                IpAddr::V6(_) => None,
            }),
            noprefixroute: noprefixroute.then_some(true),
            is_duplicate: false,
        };
        let peer = peer.map(|peer| peer.value);
        let declared = declared(ip.value, peer, address, adopt, fields.span())?;
        Some(declared.only_while(condition))
    }
}

fn check_families(
    fields: &mut Fields<'_>,
    ip: Spanned<IpNet>,
    others: [Option<Spanned<IpAddr>>; 2],
) {
    let family = Family::of(ip.addr());
    for other in others.into_iter().flatten() {
        if Family::of(other.value) != family {
            let mixed = Diagnostic::new(other.span, "this is of another family than the address");
            fields.report(mixed.also(ip.span, "the address is here"));
        }
    }
    for name in ["broadcast", "label"] {
        if family == Family::V6 && fields.has(name) {
            let message = format!("an IPv6 address has no `{name}`");
            fields.report(Diagnostic::new(fields.at(name), message));
        }
    }
}

fn check_lifetimes(
    fields: &mut Fields<'_>,
    ip: Spanned<IpNet>,
    valid: Option<Spanned<Lifetime>>,
    preferred: Option<Spanned<Lifetime>>,
) {
    if let Some(valid) = valid.filter(|valid| valid.value == Lifetime::Seconds(0)) {
        fields.report(Diagnostic::new(valid.span, Impossible::NoLifetime.to_string()));
    }
    let lives = valid.map(|valid| valid.value);
    if let Some(preferred) = preferred
        && Family::of(ip.addr()) == Family::V4
        && is_never_deprecated(lives, Some(preferred.value))
    {
        fields.report(Diagnostic::new(preferred.span, Impossible::NeverDeprecated.to_string()));
    }
    let (Some(valid), Some(preferred)) = (valid, preferred) else { return };
    if preferred.to_kernel() > valid.to_kernel() {
        let message = "an address cannot be preferred longer than it lives";
        let longer = Diagnostic::new(preferred.span, message);
        fields.report(longer.also(valid.span, "the lifetime is here"));
    }
}

/// A label of an address: at most 15 bytes, it begins with the link's name.
struct Label(String);

impl Text for Label {
    const WHAT: &'static str = "a label of an address, such as \"eth0:web\"";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        match LinkName::fault(&text.replace(':', "_")) {
            Some(fault) => Err(ValueError::is_not(text, Self::WHAT).help(fault)),
            None => Ok(Self(text.to_owned())),
        }
    }
}
