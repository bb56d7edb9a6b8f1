//! `[[rules]]`.

use crate::attributes::{IpProtocol, Mark, Ports, Priority, SuppressLength, Table};
use crate::diagnostic::Diagnostic;
use crate::fields::{Fields, Section, section};
use crate::name::Name;
use crate::net::{Family, Network, Prefix};
use crate::span::Spanned;
use crate::words::words;

/// A routing rule: which packets, and what is done with them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    /// The family, given or taken from the prefixes; IPv4 if nothing says.
    pub family: Family,
    /// Source of the packets.
    pub from: Option<Spanned<Prefix>>,
    /// Destination of the packets.
    pub to: Option<Spanned<Prefix>>,
    /// The link that they come in by.
    pub iif: Option<Spanned<Name>>,
    /// The link that they are bound to.
    pub oif: Option<Spanned<Name>>,
    /// Their firewall mark.
    pub fwmark: Option<Spanned<Mark>>,
    /// Place among the rules; the kernel chooses if left out.
    pub priority: Option<Spanned<Priority>>,
    /// The table that is asked.
    pub table: Option<Spanned<Table>>,
    /// What is done; a table is asked if left out.
    pub kind: Option<Spanned<RuleType>>,
    /// The protocol inside.
    pub ipproto: Option<Spanned<IpProtocol>>,
    /// Source ports.
    pub sport: Option<Spanned<Ports>>,
    /// Destination ports.
    pub dport: Option<Spanned<Ports>>,
    /// Whether the table is that of the packet's VRF.
    pub l3mdev: bool,
    /// Routes with a prefix this short or shorter are passed over.
    pub suppress_prefixlength: Option<Spanned<SuppressLength>>,
    /// Whether it may be taken from anybody.
    pub adopt: bool,
}

words! {
    /// What a rule does.
    RuleType, "a type of rule":
    /// Asks a table.
    Lookup = "lookup",
    /// Drops silently.
    Blackhole = "blackhole",
    /// Drops; the sender is told that the destination cannot be reached.
    Unreachable = "unreachable",
    /// Drops; the sender is told that it is forbidden.
    Prohibit = "prohibit",
}

section!(Rule);

impl Section for Rule {
    const NAME: &'static str = "rule";
    const DOC: &'static str = "A routing rule: which packets, and what is done with them";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let from: Option<Spanned<Network>> = fields.optional("from", "Source of the packets");
        let to: Option<Spanned<Network>> = fields.optional("to", "Destination of the packets");
        let family: Option<Spanned<Family>> =
            fields.optional("family", "Needed only if neither `from` nor `to` tells it");
        let rule = Self {
            family: family_of(fields, from, to, family),
            from: from.map(|from| from.map(|from| from.prefix)),
            to: to.map(|to| to.map(|to| to.prefix)),
            iif: fields.optional("iif", "The link that the packets come in by"),
            oif: fields.optional("oif", "The link that the packets are bound to"),
            fwmark: fields.optional("fwmark", "Their firewall mark"),
            priority: fields.optional("priority", "Place among the rules, the smallest first"),
            table: fields.optional("table", "The routing table that is asked"),
            kind: fields.optional("type", "What is done; `lookup` if left out"),
            ipproto: fields.optional("ipproto", "The protocol inside of the packets"),
            sport: fields.optional("sport", "Source ports"),
            dport: fields.optional("dport", "Destination ports"),
            l3mdev: fields.flag("l3mdev", "Ask the table of the packet's VRF"),
            suppress_prefixlength: fields
                .optional("suppress-prefixlength", "Pass over routes with a prefix this short"),
            adopt: fields.flag("adopt", "Standing leave to take this rule from anybody"),
        };
        check_action(fields, &rule);
        Some(rule)
    }
}

type Wanted = Option<Spanned<Network>>;

/// All that tells a family must tell the same one.
fn family_of(
    fields: &mut Fields<'_>,
    from: Wanted,
    to: Wanted,
    family: Option<Spanned<Family>>,
) -> Family {
    let told = [
        family,
        from.map(|from| from.map(|from| from.prefix.family())),
        to.map(|to| to.map(|to| to.prefix.family())),
    ];
    let mut told = told.into_iter().flatten();
    let Some(first) = told.next() else { return Family::V4 };
    for other in told.filter(|other| other.value != first.value) {
        let message = format!("this is {}, and the rule is {}", other.value, first.value);
        let mixed = Diagnostic::new(other.span, message);
        fields.report(mixed.also(first.span, "the family is told here"));
    }
    first.value
}

fn check_action(fields: &mut Fields<'_>, rule: &Rule) {
    fields.exclusive("table", "l3mdev");
    let asks = rule.kind.is_none_or(|kind| kind.value == RuleType::Lookup);
    if asks && fields.lacks(&["table", "l3mdev"]) {
        let nothing = Diagnostic::new(fields.span(), "this rule does nothing");
        fields
            .report(nothing.help("add `table`, `l3mdev = true`, or a `type` such as `blackhole`"));
    }
    if !asks {
        for other in ["table", "l3mdev", "suppress-prefixlength"] {
            fields.exclusive("type", other);
        }
    }
    let ports = ["sport", "dport"].into_iter().find(|name| fields.has(name));
    if let Some(port) = ports.filter(|_| fields.lacks(&["ipproto"])) {
        let message = format!("`{port}` needs `ipproto`");
        fields.report(Diagnostic::new(fields.at(port), message).help("add `ipproto = \"tcp\"`"));
    }
}
