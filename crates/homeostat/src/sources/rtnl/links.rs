//! `[links.NAME]`: with a kind they are made and owned, without one only configured.

mod kinds;

use anyhow::Result;
use homeostat_document::{Link as Declared, LinkRef as DeclaredRef, Scope};
use homeostat_rtnl::{Builder, Key, Link, LinkRef, Mac, Settings};

use super::Fault;
use super::addresses::link_name;

/// Wishes for all links.
pub(super) fn fill(section: &Scope, builder: &mut Builder, fault: &mut dyn FnMut(Fault)) {
    for link in section.links.iter().flatten() {
        if let Err(error) = add(link, builder) {
            fault((link.name.span, error));
        }
    }
}

fn add(declared: &Declared, builder: &mut Builder) -> Result<()> {
    let name = link_name(&declared.name)?;
    let set = settings(declared)?;
    let Some(kind) = &declared.kind else {
        builder.configure(name, set)?;
        return Ok(());
    };
    let Settings { up, mtu, mac, master, alias } = set;
    let parent = declared.parent.as_ref().map(|parent| reference(parent)).transpose()?;
    let kind = kinds::kind(kind)?;
    let link = Link { up, mtu, mac, master, parent, alias, ..Link::new(kind) };
    builder.link(name, link)?;
    if declared.adopt {
        builder.may_adopt(Key::Link(name));
    }
    Ok(())
}

fn settings(declared: &Declared) -> Result<Settings> {
    Ok(Settings {
        up: declared.up.map(|up| up.value),
        mtu: declared.mtu.map(|mtu| mtu.get()),
        mac: declared.mac.map(|mac| Mac(mac.0)),
        master: declared.master.as_ref().map(|master| link_name(master)).transpose()?,
        alias: declared.alias.as_ref().map(|alias| alias.as_str().to_owned()),
    })
}

fn reference(declared: &DeclaredRef) -> Result<LinkRef> {
    let namespace = declared.namespace.as_ref().map(|name| name.as_str().to_owned());
    Ok(LinkRef { name: link_name(&declared.name)?, namespace })
}

/// Whether a link has more than knobs.
pub(super) fn is_stated(link: &Declared) -> bool {
    let Declared { kind, up, mtu, mac, master, alias, addresses, sysctl, .. } = link;
    let is_configured = up.is_some() || mtu.is_some() || mac.is_some() || alias.is_some();
    let has_more = kind.is_some() || master.is_some() || addresses.is_some();
    sysctl.is_none() || is_configured || has_more
}

/// The namespaces that the links of a section refer to.
pub(super) fn namespaces(
    section: &Scope,
) -> impl Iterator<Item = &homeostat_document::NamespaceName> {
    section.links.iter().flatten().flat_map(|link| {
        let parent = link.parent.as_ref().map(|parent| &parent.value);
        let references = [parent, link.peer()].into_iter().flatten();
        references.filter_map(|other| other.namespace.as_ref().map(|name| &name.value))
    })
}
