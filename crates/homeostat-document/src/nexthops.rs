//! `[[nexthops]]`: objects that routes refer to by id.

use std::net::IpAddr;

use serde_json::{Value as Json, json};

use crate::attributes::{NexthopId, Reach, Weight};
use crate::checker::Checker;
use crate::diagnostic::Diagnostic;
use crate::fields::{Fields, Section, describe_section, read_section, section};
use crate::name::Name;
use crate::net::Family;
use crate::node::{Node, Value};
use crate::shape::{Definitions, Shape};
use crate::span::Spanned;

/// A nexthop object: a way, a hole, or a group of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nexthop {
    /// Its identity.
    pub id: Spanned<NexthopId>,
    /// The gateway.
    pub via: Option<Spanned<IpAddr>>,
    /// The link.
    pub dev: Option<Spanned<Name>>,
    /// Needed only where no gateway tells it.
    pub family: Option<Spanned<Family>>,
    /// Whether the gateway is taken to be on the link.
    pub onlink: Option<Spanned<bool>>,
    /// How far it is.
    pub scope: Option<Spanned<Reach>>,
    /// Whether packets are dropped.
    pub blackhole: bool,
    /// The members of a group.
    pub group: Option<Vec<Member>>,
    /// Whether it may be taken from anybody.
    pub adopt: bool,
}

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The nexthop.
    pub id: Spanned<NexthopId>,
    /// Its share.
    pub weight: Option<Spanned<Weight>>,
}

section!(Nexthop);

impl Section for Nexthop {
    const NAME: &'static str = "nexthop";
    const DOC: &'static str = "A nexthop object: a way, a hole, or a group of others";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let id = fields.required("id", "Its identity");
        let via: Option<Spanned<IpAddr>> = fields.optional("via", "The gateway");
        let dev = fields.optional("dev", "The link");
        let family: Option<Spanned<Family>> =
            fields.optional("family", "Needed only where no gateway tells it");
        let onlink = fields.optional("onlink", "Take the gateway to be on the link");
        let scope = fields.optional("scope", "How far it is");
        let blackhole = fields.flag("blackhole", "Drop the packets");
        let group: Option<Vec<Member>> =
            fields.optional("group", "Ids of other nexthops, or `{ id, weight }`");
        let adopt = fields.flag("adopt", "Standing leave to take this nexthop from anybody");
        check_way(fields, blackhole);
        check_family(fields, via, family);
        check_group(fields, id, group.as_deref());
        Some(Self { id: id?, via, dev, family, onlink, scope, blackhole, group, adopt })
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

fn check_group(fields: &mut Fields<'_>, id: Option<Spanned<NexthopId>>, group: Option<&[Member]>) {
    let Some(group) = group else { return };
    if group.is_empty() {
        fields.report(Diagnostic::new(fields.at("group"), "a group needs members"));
    }
    for (position, member) in group.iter().enumerate() {
        if id.is_some_and(|id| id.value == member.id.value) {
            let message = "a group cannot be a member of itself";
            fields.report(Diagnostic::new(member.id.span, message));
        }
        let before = group.iter().take(position).find(|other| other.id == member.id);
        if let Some(first) = before {
            let message = format!("nexthop {} is in the group twice", member.id.value);
            let again = Diagnostic::new(member.id.span, message);
            fields
                .report(again.also(first.id.span, "first here").help("give it a larger `weight`"));
        }
    }
}

/// A member is an id, or a table with a weight.
impl Shape for Member {
    fn read(node: &Node, checker: &mut Checker) -> Option<Self> {
        if let Value::Table(_) = node.value {
            return read_section(node, checker);
        }
        let id = Spanned::read(node, checker)?;
        Some(Self { id, weight: None })
    }

    fn schema(definitions: &mut Definitions) -> Json {
        let id = NexthopId::schema(definitions);
        json!({ "anyOf": [id, describe_section::<Self>(definitions)] })
    }
}

impl Section for Member {
    const NAME: &'static str = "member";
    const DOC: &'static str = "A member of a group";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let id = fields.required("id", "The nexthop");
        let weight = fields.optional("weight", "Its share among the others");
        Some(Self { id: id?, weight })
    }
}
