//! The whole document: the host's own scope, and one more for each network namespace.

use serde_json::Value as Json;

use crate::checker::Checker;
use crate::diagnostic::Diagnostic;
use crate::fields::{Fields, Keyed, Section, describe_section, read_named};
use crate::files::{Files, Location};
use crate::guests::{Guest, Proxmox};
use crate::key::knob_path;
use crate::knobs::{Cgroup, Knob};
use crate::links::Link;
use crate::name::{HOST, NamespaceName};
use crate::neighbours::Neighbour;
use crate::nexthops::Nexthop;
use crate::nftables::Nftables;
use crate::node::Node;
use crate::render;
use crate::routes::RouteEntry;
use crate::rules::Rule;
use crate::settings::Settings;
use crate::shape::Definitions;
use crate::span::{Span, Spanned};

/// A checked document. Two are equal when they wish for the same, wherever it is written.
#[derive(Clone, Debug, Default)]
pub struct Document {
    /// Whose document this is, and how sources are run.
    pub settings: Settings,
    /// What is wished for in the namespace that the program runs in.
    pub host: Scope,
    /// What is wished for in other namespaces, in the order of writing.
    pub namespaces: Vec<(Spanned<NamespaceName>, Namespace)>,
    /// Whether the document speaks of namespaces at all, if only to say that there are none.
    pub states_namespaces: bool,
    /// The texts, for messages that point into them.
    pub files: Files,
}

/// One wish. A section that is not there at all is `None`; an empty one was said aloud.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Interfaces by name.
    pub links: Option<Vec<Link>>,
    /// Routes, and files with many of them.
    pub routes: Option<Vec<Spanned<RouteEntry>>>,
    /// Routing rules.
    pub rules: Option<Vec<Spanned<Rule>>>,
    /// Permanent and proxy neighbours.
    pub neighbours: Option<Vec<Spanned<Neighbour>>>,
    /// Nexthop objects and groups.
    pub nexthops: Option<Vec<Spanned<Nexthop>>>,
    /// Kernel knobs.
    pub sysctl: Option<Vec<Knob>>,
    /// The firewall, in nft's own language.
    pub nftables: Option<Spanned<Nftables>>,
    /// Limits of control groups; only the host's scope has them.
    pub cgroups: Option<Vec<Cgroup>>,
    /// A cluster of Proxmox VE; only the host's scope has one.
    pub proxmox: Option<Spanned<Proxmox>>,
    /// Its guests by number.
    pub guests: Option<Vec<Guest>>,
}

/// A network namespace by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespace {
    /// Whether it is made when it is not there.
    pub create: bool,
    /// What is wished for inside.
    pub scope: Scope,
}

/// A namespace with its name, as it stands in the table.
struct NamedNamespace(Spanned<NamespaceName>, Namespace);

impl PartialEq for Document {
    fn eq(&self, other: &Self) -> bool {
        self.settings == other.settings
            && self.host == other.host
            && self.namespaces == other.namespaces
            && self.states_namespaces == other.states_namespaces
    }
}

impl Eq for Document {}

impl Document {
    /// Line and column of a place.
    #[must_use]
    pub fn locate(&self, span: Span) -> Location {
        self.files.locate(span)
    }

    /// What stands at a place, as it was written.
    #[must_use]
    pub fn written_at(&self, span: Span) -> &str {
        let text = self.files.text(span.file);
        text.get(span.start as usize..span.end as usize).unwrap_or_default()
    }

    /// Draws a mistake that a later stage found at a place.
    #[must_use]
    pub fn render_at(&self, span: Span, message: &str, help: Option<&str>, color: bool) -> String {
        let diagnostic = Diagnostic::new(span, message).maybe_help(help.map(str::to_owned));
        render::render(&self.files, &diagnostic, render::Style::from_color(color))
    }

    /// All scopes: the host's, then each namespace's with its name.
    pub fn scopes(&self) -> impl Iterator<Item = (Option<&NamespaceName>, &Scope)> {
        let inside = self.namespaces.iter().map(|(name, space)| (Some(&name.value), &space.scope));
        std::iter::once((None, &self.host)).chain(inside)
    }
}

impl Section for Document {
    const NAME: &'static str = "document";
    const DOC: &'static str = "What one owner wishes for on one machine";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let settings = fields.optional("settings", "Whose document this is, how sources are run");
        let mut host = read_scope(fields);
        host.cgroups = fields.keyed("cgroups", "Limits of control groups by path");
        host.proxmox = fields.optional("proxmox", "A cluster of Proxmox VE");
        host.guests = fields.keyed("guests", "Guests of the cluster by number");
        if host.guests.is_some() && !fields.has("proxmox") {
            let missing =
                Diagnostic::new(fields.at("guests"), "there is no `[proxmox]` for these guests");
            fields.report(missing.help("say where the cluster is: `endpoint` and `token-file`"));
        }
        let namespaces: Option<Vec<_>> =
            fields.keyed("namespaces", "Other network namespaces by name");
        let states_namespaces = namespaces.is_some();
        let unpack = |NamedNamespace(name, space)| (name, space);
        let namespaces = namespaces.unwrap_or_default().into_iter().map(unpack).collect();
        let settings = settings.unwrap_or_default();
        Some(Self { settings, host, namespaces, states_namespaces, files: Files::default() })
    }
}

/// What the host and a namespace have in common.
fn read_scope(fields: &mut Fields<'_>) -> Scope {
    Scope {
        links: fields.keyed("links", "Interfaces by name"),
        routes: fields.optional("routes", "Routes"),
        rules: fields.optional("rules", "Routing rules"),
        neighbours: fields.optional("neighbours", "Permanent and proxy neighbours"),
        nexthops: fields.optional("nexthops", "Nexthop objects and groups"),
        sysctl: fields.keyed("sysctl", "Kernel knobs by key"),
        nftables: fields.optional("nftables", "The firewall, in nft's own language"),
        cgroups: None,
        proxmox: None,
        guests: None,
    }
}

impl Section for NamedNamespace {
    const NAME: &'static str = "namespace";
    const DOC: &'static str = "What is wished for inside a network namespace";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let name: Option<Spanned<NamespaceName>> = fields.name();
        let create = fields.flag("create", "Whether the namespace is made when it is not there");
        let scope = read_scope(fields);
        let outside = "move it to the top level of the document";
        fields.refused("cgroups", "control groups belong to the host, not to a namespace", outside);
        fields.refused("proxmox", "a cluster belongs to the host, not to a namespace", outside);
        fields.refused("guests", "guests belong to the host, not to a namespace", outside);
        fields.refused("namespaces", "a namespace cannot hold another namespace", outside);
        fields.refused("settings", "settings are the same for all namespaces", outside);
        scope.sysctl.iter().flatten().for_each(|knob| refuse_host_wide(knob, fields));
        let name = name?;
        if name.as_str() == HOST {
            let reserved = Diagnostic::new(name.span, "`host` cannot be the name of a namespace");
            let help = "it stands for the host itself: write its sections at the top level";
            fields.report(reserved.help(help));
        }
        Some(Self(name, Namespace { create, scope }))
    }
}

/// Only `net` exists once per namespace: any other knob would change the host.
fn refuse_host_wide(knob: &Knob, fields: &mut Fields<'_>) {
    let Ok(path) = knob_path(&knob.key) else { return };
    if path.first().is_none_or(|first| first != "net") {
        let message = format!("`{}` is host-wide, not a knob of a namespace", knob.key.value);
        let help = "move it to the `sysctl` section at the top level of the document";
        fields.report(Diagnostic::new(knob.key.span, message).help(help));
    }
}

impl Keyed for NamedNamespace {
    const KEY: &'static str = "the name of a network namespace";

    fn read_entry(key: &Spanned<String>, node: &Node, checker: &mut Checker) -> Option<Self> {
        read_named(key, node, checker)
    }

    fn entry_schema(definitions: &mut Definitions) -> Json {
        describe_section::<Self>(definitions)
    }
}
