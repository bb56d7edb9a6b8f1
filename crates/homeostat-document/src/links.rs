//! `[links.NAME]`: interfaces. With a kind they are made and owned, without one only configured.

use serde_json::{Value as Json, json};

use crate::addresses::Address;
use crate::attributes::Mtu;
use crate::checker::Checker;
use crate::diagnostic::Diagnostic;
use crate::error::ValueError;
use crate::fields::{Fields, Keyed, Section, describe_section, read_named, read_section};
use crate::key::link_knob_path;
use crate::kinds::{self, Kind};
use crate::knobs::{Knob, KnobOfLink, refuse_key};
use crate::name::{Name, NamespaceName};
use crate::net::Mac;
use crate::node::{Node, Value};
use crate::shape::{Definitions, Shape, Text};
use crate::span::Spanned;

/// An interface by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its name.
    pub name: Spanned<Name>,
    /// What it is, if it is to be made; with the options of that kind.
    pub kind: Option<Spanned<Kind>>,
    /// Whether it is up.
    pub up: Option<Spanned<bool>>,
    /// Largest packet.
    pub mtu: Option<Spanned<Mtu>>,
    /// Hardware address.
    pub mac: Option<Spanned<Mac>>,
    /// The bridge, bond or VRF that it belongs to.
    pub master: Option<Spanned<Name>>,
    /// The link below it.
    pub parent: Option<Spanned<LinkRef>>,
    /// The user's own description.
    pub alias: Option<Spanned<Alias>>,
    /// Its addresses; an empty list was said aloud.
    pub addresses: Option<Vec<Spanned<Address>>>,
    /// Its own knobs by `FAMILY/KEY`; [`link_knob_path`] says which file that is.
    pub sysctl: Option<Vec<Knob>>,
    /// Whether it may be taken from anybody.
    pub adopt: bool,
}

/// A link by name, here or in another namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkRef {
    /// Its name.
    pub name: Spanned<Name>,
    /// The namespace it is in, `host` for the host's own; the same one if left out.
    pub namespace: Option<Spanned<NamespaceName>>,
}

/// A description of a link, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alias(String);

impl Alias {
    /// The description as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

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

impl Keyed for Link {
    const KEY: &'static str = "the name of an interface";

    fn read_entry(key: &Spanned<String>, node: &Node, checker: &mut Checker) -> Option<Self> {
        read_named(key, node, checker)
    }

    fn entry_schema(definitions: &mut Definitions) -> Json {
        describe_section::<Self>(definitions)
    }
}

impl Section for Link {
    const NAME: &'static str = "link";
    const DOC: &'static str = "An interface: with a kind it is made, without one only configured";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let name = fields.name();
        let kind = kinds::read(fields);
        let knobs: Option<Vec<KnobOfLink>> = fields.keyed("sysctl", "The link's own knobs");
        let up = fields.optional("up", "Whether it is up");
        let mtu = fields.optional("mtu", "Largest packet");
        let mac = fields.optional("mac", "Hardware address");
        let master = fields.optional("master", "The bridge, bond or VRF that it belongs to");
        let parent = fields
            .of_kinds(kinds::WITH_PARENT, |fields| fields.optional("parent", "The link below it"));
        let alias = fields.optional("alias", "A description for people");
        let addresses = fields.optional("addresses", "Its addresses");
        let adopt = fields.flag("adopt", "Standing leave to take this link from anybody");
        let sysctl = knobs.map(|knobs| knobs.into_iter().map(|knob| knob.0).collect());
        let name = name?;
        let link =
            Self { name, kind, up, mtu, mac, master, parent, alias, addresses, sysctl, adopt };
        link.check(fields);
        Some(link)
    }
}

impl Link {
    fn check(&self, fields: &mut Fields<'_>) {
        for knob in self.sysctl.iter().flatten() {
            if let Err(error) = link_knob_path(self.name.as_str(), &knob.key) {
                fields.report(refuse_key(knob.key.span, &error));
            }
        }
        let master = self.master.as_ref().filter(|master| master.value == self.name.value);
        let parent = self.parent.as_ref().filter(|parent| self.is(parent));
        let peer = self.peer().filter(|peer| self.is(peer));
        let own = [
            master.map(|master| ("master", master.span)),
            parent.map(|parent| ("parent", parent.span)),
            peer.map(|peer| ("peer", peer.name.span)),
        ];
        for (what, span) in own.into_iter().flatten() {
            fields.report(Diagnostic::new(span, format!("a link cannot be its own {what}")));
        }
    }

    fn is(&self, other: &LinkRef) -> bool {
        other.namespace.is_none() && other.name.value == self.name.value
    }

    /// The other end of a veth pair.
    #[must_use]
    pub fn peer(&self) -> Option<&LinkRef> {
        match self.kind.as_ref().map(|kind| &kind.value) {
            Some(Kind::Veth(veth)) => Some(&veth.peer.value),
            _ => None,
        }
    }
}

impl Shape for LinkRef {
    fn read(node: &Node, checker: &mut Checker) -> Option<Self> {
        if let Value::Table(_) = node.value {
            return read_section(node, checker);
        }
        let name = Spanned::read(node, checker)?;
        Some(Self { name, namespace: None })
    }

    fn schema(definitions: &mut Definitions) -> Json {
        let name = Name::schema(definitions);
        json!({ "anyOf": [name, describe_section::<Self>(definitions)] })
    }
}

impl Section for LinkRef {
    const NAME: &'static str = "link-reference";
    const DOC: &'static str = "A link by name, here or in another namespace";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let name = fields.required("name", "Its name");
        let namespace = fields.optional("namespace", "The namespace it is in, or `host`");
        Some(Self { name: name?, namespace })
    }
}
