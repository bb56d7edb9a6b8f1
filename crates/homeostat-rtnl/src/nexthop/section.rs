//! `[[nexthops]]`: objects that routes refer to by id.

use std::net::IpAddr;

use homeostat_document::{
    Checker, Definitions, Diagnostic, Fields, Json, Node, Record, Shape, Span, Spanned, Value,
    describe_record, read_record,
};
use serde_json::json;

use crate::net::Family;
use crate::nexthop::{Member, Nexthop, NexthopId};
use crate::section::{Declared, list_section};
use crate::show::{fields, plain};
use crate::values::{NEXTHOP_ID, WEIGHT};

list_section! {
    Nexthops of Declared<NexthopId, Nexthop> as nexthops, "nexthops", "Nexthop objects and groups",
    each of nexthops: |one| one.key.span, format!("the nexthop {}", one.key.value)
}

impl Record for Declared<NexthopId, Nexthop> {
    const NAME: &'static str = "nexthop";
    const DOC: &'static str =
        "A nexthop object: a gateway or a link, a blackhole, or a group of nexthops";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let id = fields.required_number("id", "Its identity", NEXTHOP_ID).map(NexthopId);
        let via: Option<Spanned<IpAddr>> = fields.optional("via", "The gateway");
        let dev = fields.optional("dev", "The link");
        let family: Option<Spanned<Family>> =
            fields.optional("family", "Needed only where no gateway implies it");
        let onlink = fields.optional("onlink", "Take the gateway to be on the link");
        let scope = fields.optional("scope", "How far it is");
        let blackhole = fields.flag("blackhole", "Drop the packets");
        let group: Option<Vec<MemberEntry>> =
            fields.optional("group", "Ids of other nexthops, or `{ id, weight }`");
        let adopt = fields.flag("adopt", "Take this nexthop over from any owner");
        check_way(fields, blackhole);
        check_family(fields, via, family);
        check_group(fields, id, group.as_deref());
        let nexthop = Nexthop {
            family: family.map(|family| family.value),
            via: via.map(|via| via.value),
            dev,
            onlink,
            scope,
            blackhole,
            group: group.into_iter().flatten().map(|entry| entry.member).collect(),
            unusual: None,
        };
        let id = Spanned::new(id?, fields.value_at("id"));
        Some(Self::new(id, nexthop, adopt, fields.span()))
    }
}

fn check_way(fields: &mut Fields<'_>, blackhole: bool) {
    for other in ["via", "dev", "family", "onlink", "scope", "blackhole"] {
        fields.exclusive("group", other);
    }
    if blackhole {
        for other in ["via", "dev", "onlink"] {
            fields.exclusive("blackhole", other);
        }
        return;
    }
    if fields.lacks(&["group", "dev", "blackhole"]) {
        let nowhere = Diagnostic::new(fields.span(), "this nexthop has no link");
        fields.report(nowhere.help("add `dev`, `group` or `blackhole = true`"));
    }
}

fn check_family(
    fields: &mut Fields<'_>,
    via: Option<Spanned<IpAddr>>,
    family: Option<Spanned<Family>>,
) {
    let (Some(via), Some(family)) = (via, family) else { return };
    if Family::of(via.value) != family.value {
        let mixed = Diagnostic::new(family.span, "the gateway is of another family");
        fields.report(mixed.also(via.span, "the gateway is here"));
    }
}

fn check_group(fields: &mut Fields<'_>, id: Option<NexthopId>, group: Option<&[MemberEntry]>) {
    let Some(group) = group else { return };
    if group.is_empty() {
        fields.report(Diagnostic::new(fields.at("group"), "a group needs members"));
    }
    for (position, entry) in group.iter().enumerate() {
        let member = entry.member.id;
        if id == Some(member) {
            let message = "a group cannot be a member of itself";
            fields.report(Diagnostic::new(entry.span, message));
        }
        let before = group.iter().take(position).find(|other| other.member.id == member);
        if let Some(first) = before {
            let again =
                Diagnostic::new(entry.span, format!("nexthop {member} is in the group twice"));
            fields.report(again.also(first.span, "first here").help("give it a larger `weight`"));
        }
    }
}

/// A member, and where its id is written.
struct MemberEntry {
    member: Member,
    span: Span,
}

/// A member is an id, or a table with a weight.
impl Shape for MemberEntry {
    fn read(node: &Node, checker: &mut Checker) -> Option<Self> {
        if let Value::Table(_) = node.value {
            return read_record(node, checker);
        }
        let id = NexthopId(NEXTHOP_ID.read(node, checker)?);
        Some(Self { member: Member { id, weight: 1 }, span: node.span })
    }

    fn schema(definitions: &mut Definitions) -> Json {
        json!({ "anyOf": [NEXTHOP_ID.schema(), describe_record::<Self>(definitions)] })
    }
}

impl Record for MemberEntry {
    const NAME: &'static str = "member";
    const DOC: &'static str = "A member of a group";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let id = fields.required_number("id", "The nexthop", NEXTHOP_ID).map(NexthopId);
        let weight = fields.number("weight", "Its share of the traffic", WEIGHT).unwrap_or(1);
        Some(Self { member: Member { id: id?, weight }, span: fields.value_at("id") })
    }
}

/// A nexthop that is there, as an entry of the list; nothing for one that cannot be declared.
pub(crate) fn show(id: NexthopId, nexthop: &Nexthop) -> Option<Json> {
    if nexthop.unusual.is_some() {
        return None;
    }
    let mut shown = plain([("id", id.0.into())]);
    let mut way = fields(nexthop);
    way.remove("scope");
    way.retain(|_, value| *value != json!(false));
    if nexthop.is_group() || nexthop.via.is_some() {
        way.remove("family");
    }
    shown.extend(way);
    Some(Json::Object(shown))
}
