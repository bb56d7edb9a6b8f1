//! `[[rules]]`.

use homeostat_document::{
    Checker, Definitions, Diagnostic, Fields, Json, Node, Number, Record, Shape, Spanned, Value,
    ValueError, check, words,
};
use serde_json::json;

use crate::net::Family;
use crate::number::{Table, Tos};
use crate::rule::{Mark, Ports, Rule, RuleAction, RuleKey, TunId, UidRange};
use crate::section::{Declared, WHILE, list_section};
use crate::show::plain;
use crate::values::{Destination, TOS};

// A rule is known by its priority and its selectors: what it leads to is what is kept.
list_section! {
    Rules of Declared<RuleKey, Rule> as rules, "rules", "Routing rules",
    each of rules: |rule| rule.entry.span, "a rule with this priority and these selectors".to_owned()
}

words! {
    /// What a rule does.
    RuleType, "a type of rule":
    /// Asks a table.
    Lookup = "lookup",
    /// Drops silently.
    Blackhole = "blackhole",
    /// Drops; the sender learns that the destination cannot be reached.
    Unreachable = "unreachable",
    /// Drops; the sender learns that it is forbidden.
    Prohibit = "prohibit",
}

const PRIORITY: Number<u32> = Number { what: "a priority", least: 0, most: u32::MAX };
const SUPPRESS: Number<u8> = Number { what: "a prefix length", least: 0, most: 128 };

impl Record for Declared<RuleKey, Rule> {
    const NAME: &'static str = "rule";
    const DOC: &'static str = "A routing rule: which packets, and what is done with them";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let from: Option<Spanned<Destination>> = fields.optional("from", "Source of the packets");
        let to: Option<Spanned<Destination>> = fields.optional("to", "Destination of the packets");
        let family: Option<Spanned<Family>> =
            fields.optional("family", "Needed only if neither `from` nor `to` implies it");
        let mut key = RuleKey::new(family_of(fields, from, to, family));
        (key.from, key.to) = (from.map(|from| from.net), to.map(|to| to.net));
        key.not = fields.flag("not", "For the packets that do not match");
        key.iif = fields.optional("iif", "The link that the packets come in by");
        key.oif = fields.optional("oif", "The link that the packets are bound to");
        key.fwmark = fields.optional("fwmark", "Their firewall mark");
        key.priority =
            fields.number("priority", "Place among the rules, the smallest first", PRIORITY);
        let table: Option<Table> = fields.optional("table", "The routing table that is asked");
        let kind: Option<RuleType> = fields.optional("type", "What is done; `lookup` if left out");
        key.ipproto = fields.optional("ipproto", "The protocol inside of the packets");
        key.sport = fields.optional("sport", "Source ports");
        key.dport = fields.optional("dport", "Destination ports");
        key.uidrange = fields.optional("uidrange", "The users of the sockets, by their ids");
        key.tun_id = fields.number("tun-id", "The number of the tunnel", TUN_ID).map(TunId);
        key.tos = fields.optional("tos", "Type of service").unwrap_or_default();
        key.dscp = fields.optional("dscp", "DSCP, by number or name; Linux 6.13 or later");
        let goto = fields.number("goto", "Go on with the rules from this priority on", PRIORITY);
        let nop = fields.flag("nop", "Do nothing: a place for `goto`");
        let l3mdev = fields.flag("l3mdev", "Ask the table of the packet's VRF");
        let suppress_prefixlength = fields.number(
            "suppress-prefixlength",
            "Pass over routes with a prefix this short",
            SUPPRESS,
        );
        let adopt = fields.flag("adopt", "Take this rule over from any owner");
        let condition = fields.optional("while", WHILE);
        check_action(fields, kind);
        let action = match kind {
            Some(RuleType::Blackhole) => RuleAction::Blackhole,
            Some(RuleType::Unreachable) => RuleAction::Unreachable,
            Some(RuleType::Prohibit) => RuleAction::Prohibit,
            Some(RuleType::Lookup) | None if l3mdev => RuleAction::L3mdev,
            Some(RuleType::Lookup) | None if nop => RuleAction::Nop,
            Some(RuleType::Lookup) | None if let Some(target) = goto => RuleAction::Goto(target),
            Some(RuleType::Lookup) | None => RuleAction::Table(table.unwrap_or(Table::MAIN)),
        };
        let key = Spanned::new(key.plain(), fields.span());
        let rule = Rule { action, suppress_prefixlength };
        Some(Self::new(key, rule, adopt, fields.span()).only_while(condition))
    }
}

/// The families of all fields must be the same.
fn family_of(
    fields: &mut Fields<'_>,
    from: Option<Spanned<Destination>>,
    to: Option<Spanned<Destination>>,
    family: Option<Spanned<Family>>,
) -> Family {
    let of_net = |net: Spanned<Destination>| net.map(|net| Family::of(net.net.addr()));
    let mut all = [family, from.map(of_net), to.map(of_net)].into_iter().flatten();
    let Some(first) = all.next() else { return Family::V4 };
    for other in all.filter(|other| other.value != first.value) {
        let [other_is, first_is] = [other, first].map(|one| one.to_string().to_lowercase());
        let message = format!("this is {other_is}, and the rule is {first_is}");
        let mixed = Diagnostic::new(other.span, message);
        fields.report(mixed.also(first.span, "the family is given here"));
    }
    first.value
}

fn check_action(fields: &mut Fields<'_>, kind: Option<RuleType>) {
    const ACTIONS: [&str; 4] = ["table", "l3mdev", "goto", "nop"];
    for (at, first) in ACTIONS.iter().enumerate() {
        ACTIONS.iter().skip(at + 1).for_each(|second| fields.exclusive(first, second));
    }
    for other in ["goto", "nop"] {
        fields.exclusive(other, "suppress-prefixlength");
    }
    fields.exclusive("tos", "dscp");
    let asks = kind.is_none_or(|kind| kind == RuleType::Lookup);
    if asks && fields.lacks(&ACTIONS) {
        let nothing = Diagnostic::new(fields.span(), "this rule does nothing");
        fields
            .report(nothing.help("add `table`, `l3mdev = true`, or a `type` such as `blackhole`"));
    }
    if !asks {
        for other in ACTIONS.into_iter().chain(["suppress-prefixlength"]) {
            fields.exclusive("type", other);
        }
    }
    let ports = ["sport", "dport"].into_iter().find(|name| fields.has(name));
    if let Some(port) = ports.filter(|_| fields.lacks(&["ipproto"])) {
        let message = format!("`{port}` needs `ipproto`");
        fields.report(Diagnostic::new(fields.at(port), message).help("add `ipproto = \"tcp\"`"));
    }
}

const MARK: Number<u32> = Number { what: "a mark", least: 0, most: u32::MAX };
const TUN_ID: Number<u64> = Number { what: "a tunnel id", least: 1, most: 0xffff_ffff };
const UID: Number<u32> = Number { what: "a user id", least: 0, most: u32::MAX - 1 };
const PORT: Number<u16> = Number { what: "a port", least: 1, most: u16::MAX };

impl Shape for Mark {
    fn read(node: &Node, checker: &mut Checker) -> Option<Self> {
        if let Value::Text(text) = &node.value {
            return check(mark_from(text), node, checker);
        }
        MARK.read(node, checker).map(|value| Self { value, mask: u32::MAX })
    }

    fn schema(_: &mut Definitions) -> Json {
        json!({ "description": "a mark: a number, or text such as \"0x10/0xff\"",
            "anyOf": [{ "type": "integer", "minimum": 0, "maximum": u32::MAX },
                { "type": "string" }] })
    }
}

fn mark_from(text: &str) -> Result<Mark, ValueError> {
    match Mark::read(text) {
        Some(mark) if mark.can_match() => Ok(mark),
        Some(_) => Err(ValueError::new(format!("the mask of `{text}` hides bits of it"))
            .help("every bit of the mark must be in the mask")),
        None => Err(ValueError::is_not(text, "a mark").help("write \"0x10\" or \"0x10/0xff\"")),
    }
}

impl Shape for Ports {
    fn read(node: &Node, checker: &mut Checker) -> Option<Self> {
        if let Value::Text(text) = &node.value {
            return check(ports_from(text), node, checker);
        }
        PORT.read(node, checker).map(|port| Self { first: port, last: port })
    }

    fn schema(_: &mut Definitions) -> Json {
        json!({ "description": "a port: a number, or a range such as \"8000-8080\"",
            "anyOf": [{ "type": "integer", "minimum": 1, "maximum": 65_535 },
                { "type": "string" }] })
    }
}

impl Shape for UidRange {
    fn read(node: &Node, checker: &mut Checker) -> Option<Self> {
        if let Value::Text(text) = &node.value {
            return check(uids_from(text), node, checker);
        }
        UID.read(node, checker).map(|uid| Self { first: uid, last: uid })
    }

    fn schema(_: &mut Definitions) -> Json {
        json!({ "description": "a user id: a number, or a range such as \"1000-1999\"",
            "anyOf": [{ "type": "integer", "minimum": 0, "maximum": u32::MAX - 1 },
                { "type": "string" }] })
    }
}

fn uids_from(text: &str) -> Result<UidRange, ValueError> {
    text.parse().ok().filter(|uids: &UidRange| uids.first <= uids.last).ok_or_else(|| {
        ValueError::is_not(text, "a user id or a range of them")
            .help("write 1000, or \"1000-1999\"; names of users are not looked up")
    })
}

/// A type of service of a rule.
impl Shape for Tos {
    fn read(node: &Node, checker: &mut Checker) -> Option<Self> {
        TOS.read(node, checker).map(Self)
    }

    fn schema(_: &mut Definitions) -> Json {
        TOS.schema()
    }
}

fn ports_from(text: &str) -> Result<Ports, ValueError> {
    let is_range = |ports: &Ports| (1..=ports.last).contains(&ports.first) && !text.contains('+');
    text.parse().ok().filter(is_range).ok_or_else(|| {
        ValueError::is_not(text, "a port or a range of ports").help("write 53, or \"8000-8080\"")
    })
}

/// A rule that is there, as an entry of the list; nothing for one that cannot be declared.
pub(crate) fn show(key: &RuleKey, rule: &Rule) -> Option<Json> {
    let mut shown = plain([
        ("family", json!((key.family == Family::V6).then_some("ipv6"))),
        ("priority", json!(key.priority)),
        ("not", json!(key.not.then_some(true))),
        ("from", json!(key.from.map(|net| net.to_string()))),
        ("to", json!(key.to.map(|net| net.to_string()))),
        ("iif", json!(key.iif)),
        ("oif", json!(key.oif)),
        ("fwmark", json!(key.fwmark.map(|mark| mark.to_string()))),
        ("ipproto", json!(key.ipproto.map(|protocol| protocol.0))),
        ("sport", json!(key.sport.map(|ports| format!("{}-{}", ports.first, ports.last)))),
        ("dport", json!(key.dport.map(|ports| format!("{}-{}", ports.first, ports.last)))),
    ]);
    shown.extend(plain([
        ("uidrange", json!(key.uidrange.map(|uids| uids.to_string()))),
        ("tun-id", json!(key.tun_id.map(|TunId(id)| id))),
        ("tos", json!(Some(key.tos.0).filter(|tos| *tos != 0))),
        ("dscp", json!(key.dscp.map(|dscp| dscp.0))),
    ]));
    shown.extend(match rule.action {
        RuleAction::Table(table) => plain([("table", table.0.into())]),
        RuleAction::L3mdev => plain([("l3mdev", true.into())]),
        RuleAction::Goto(target) => plain([("goto", target.into())]),
        RuleAction::Nop => plain([("nop", true.into())]),
        RuleAction::Blackhole => plain([("type", "blackhole".into())]),
        RuleAction::Unreachable => plain([("type", "unreachable".into())]),
        RuleAction::Prohibit => plain([("type", "prohibit".into())]),
        RuleAction::Other(_) => return None,
    });
    shown.extend(plain([("suppress-prefixlength", json!(rule.suppress_prefixlength))]));
    Some(Json::Object(shown))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_have_their_bits_inside_their_mask() {
        assert_eq!(mark_from("0x10/0xff").unwrap(), Mark { value: 16, mask: 255 });
        assert_eq!(mark_from("16").unwrap(), Mark { value: 16, mask: u32::MAX });
        for text in ["", "0x", "x", "1/", "/1", "0x100/0xff", "1/2/3", "-1", "+1", "0x+1"] {
            assert!(mark_from(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ranges_of_ports_go_upwards() {
        assert_eq!(ports_from("80-90").unwrap(), Ports { first: 80, last: 90 });
        for text in ["", "90-80", "0", "0-5", "5-", "-5", "65536", "http", "+5"] {
            assert!(ports_from(text).is_err(), "{text}");
        }
    }
}
