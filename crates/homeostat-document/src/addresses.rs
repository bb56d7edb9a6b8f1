//! A link's `addresses`.

use std::net::IpAddr;

use serde_json::{Value as Json, json};

use crate::attributes::Reach;
use crate::checker::Checker;
use crate::diagnostic::Diagnostic;
use crate::error::ValueError;
use crate::fields::{Fields, Section, describe_section, read_section};
use crate::name::Name;
use crate::net::{Family, Prefix};
use crate::node::{Node, Value};
use crate::shape::{Definitions, Shape, Text};
use crate::span::Spanned;
use crate::time::Lifetime;

/// An address of a link: `"192.0.2.1/24"`, or a table with more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address and the length of its network.
    pub ip: Spanned<Prefix>,
    /// The other end of a point-to-point link.
    pub peer: Option<Spanned<IpAddr>>,
    /// The broadcast address, IPv4 only.
    pub broadcast: Option<Spanned<IpAddr>>,
    /// How far it is valid.
    pub scope: Option<Spanned<Reach>>,
    /// A label such as `eth0:web`, IPv4 only.
    pub label: Option<Spanned<Label>>,
    /// How long it lives.
    pub lifetime: Option<Spanned<Lifetime>>,
    /// How long it is preferred for new connections.
    pub preferred_lifetime: Option<Spanned<Lifetime>>,
    /// Whether the kernel is kept from making a route for its network.
    pub noprefixroute: bool,
    /// Whether it may be taken from anybody.
    pub adopt: bool,
}

/// A label of an address: at most 15 bytes, it begins with the link's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label(String);

impl Label {
    /// The label as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Text for Label {
    const WHAT: &'static str = "a label of an address, such as \"eth0:web\"";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        let named = text.replace(':', "_").parse::<Name>();
        named.map(|_| Self(text.to_owned())).map_err(|error| ValueError {
            message: ValueError::is_not(text, Self::WHAT).message,
            ..error
        })
    }
}

impl Shape for Address {
    fn read(node: &Node, checker: &mut Checker) -> Option<Self> {
        if let Value::Table(_) = node.value {
            return read_section(node, checker);
        }
        Spanned::read(node, checker).map(Self::plain)
    }

    fn schema(definitions: &mut Definitions) -> Json {
        let plain = Prefix::schema(definitions);
        json!({ "anyOf": [plain, describe_section::<Self>(definitions)] })
    }
}

impl Address {
    fn plain(ip: Spanned<Prefix>) -> Self {
        Self {
            ip,
            peer: None,
            broadcast: None,
            scope: None,
            label: None,
            lifetime: None,
            preferred_lifetime: None,
            noprefixroute: false,
            adopt: false,
        }
    }
}

impl Section for Address {
    const NAME: &'static str = "address";
    const DOC: &'static str = "An address of a link";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let ip: Option<Spanned<Prefix>> =
            fields.required("ip", "The address with its prefix length");
        let unset = Spanned::new(Prefix::host(IpAddr::V4(0.into())), fields.span());
        let address = Self {
            peer: fields.optional("peer", "The other end of a point-to-point link"),
            broadcast: fields.optional("broadcast", "The broadcast address"),
            scope: fields.optional("scope", "How far the address is valid"),
            label: fields.optional("label", "A label that begins with the link's name"),
            lifetime: fields.optional("lifetime", "How long it lives from when it is set"),
            preferred_lifetime: fields
                .optional("preferred-lifetime", "How long new connections prefer it"),
            noprefixroute: fields
                .flag("noprefixroute", "Keep the kernel from making a route for its network"),
            adopt: fields.flag("adopt", "Standing leave to take this address from anybody"),
            ..Self::plain(ip.unwrap_or(unset))
        };
        ip?;
        address.check(fields);
        Some(address)
    }
}

impl Address {
    fn check(&self, fields: &mut Fields<'_>) {
        let family = self.ip.family();
        for other in [self.peer, self.broadcast].into_iter().flatten() {
            if Family::of(other.value) != family {
                let mixed =
                    Diagnostic::new(other.span, "this is of another family than the address");
                fields.report(mixed.also(self.ip.span, "the address is here"));
            }
        }
        for name in ["broadcast", "label"] {
            if family == Family::V6 && fields.has(name) {
                let message = format!("an IPv6 address has no `{name}`");
                fields.report(Diagnostic::new(fields.at(name), message));
            }
        }
        if let (Some(valid), Some(preferred)) = (self.lifetime, self.preferred_lifetime)
            && order(preferred.value) > order(valid.value)
        {
            let message = "an address cannot be preferred longer than it lives";
            let longer = Diagnostic::new(preferred.span, message);
            fields.report(longer.also(valid.span, "the lifetime is here"));
        }
    }
}

fn order(lifetime: Lifetime) -> std::time::Duration {
    match lifetime {
        Lifetime::Forever => std::time::Duration::MAX,
        Lifetime::For(period) => period.get(),
    }
}
