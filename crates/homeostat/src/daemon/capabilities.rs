//! Drops every capability that the document does not need, once, before any thread exists.
//!
//! What stays allowed is what the kernel asks for: `NET_ADMIN` for everything of the network and for
//! sysctls below `net/`, `SYS_ADMIN` to enter and make namespaces, also to compile nftables in, `SYS_PTRACE` to see who else is in
//! one before it is removed, `DAC_OVERRIDE` for documents and cgroups that belong to others, `LEASE` to know whether a process
//! has a document of another user open for writing, `NET_RAW` for the checks of a trial that ping. Other
//! sysctls are guarded by capabilities of many kinds, so a document with one of them keeps all.

use anyhow::{Context as _, Result};
use homeostat_document::{Document, HOST};
use homeostat_engine::Pages;
use homeostat_registry::OwnScopes;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities,
};

use crate::context::{Context, Top};
use crate::failure::helped;
use crate::registry;

const ALWAYS: CapabilitySet = CapabilitySet::NET_ADMIN
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::LEASE);
/// To enter and make namespaces.
const SPACES: CapabilitySet = CapabilitySet::SYS_ADMIN.union(CapabilitySet::SYS_PTRACE);

/// The highest number that a set of capabilities can have.
const LAST: u32 = 63;

/// What is needed for a document, and for what the ledger says that we own elsewhere.
pub(super) fn needed(
    context: &Context,
    document: &Document,
    pages: &dyn Pages,
) -> Result<CapabilitySet> {
    let recorded = pages.places(&context.caller.owner)?;
    let is_elsewhere = !matches!(context.top, Top::Host)
        || !document.namespaces.is_empty()
        || !document.patterns.is_empty()
        || recorded.iter().any(|place| place.scope != HOST && own_scopes(&place.source).is_none());
    let mut needed = ALWAYS;
    for own in recorded.iter().filter_map(|place| own_scopes(&place.source)) {
        needed |= own.capabilities;
    }
    if is_elsewhere {
        needed |= SPACES;
    }
    for (_, section) in document.scopes() {
        for source in registry::SOURCES {
            needed |= (source.capabilities)(section);
            if !(source.namespaces)(section).is_empty() {
                needed |= SPACES;
            }
        }
    }
    Ok(needed)
}

fn own_scopes(source: &str) -> Option<&'static OwnScopes> {
    registry::find(source).and_then(|source| source.own_scopes.as_ref())
}

/// Drops all but the allowed ones, for this process and for all that it may start. In a sandbox there is nothing to
/// drop that would reach beyond it.
pub(super) fn drop_others(allowed: CapabilitySet, context: &Context) -> Result<()> {
    if matches!(context.top, Top::Sandbox) || allowed == CapabilitySet::all() {
        return Ok(());
    }
    let has = capabilities(None).context("cannot tell which capabilities there are")?;
    if has.effective.contains(CapabilitySet::SETPCAP) {
        shrink_bounds(allowed);
    }
    // Old kernels have no ambient set.
    let _ = clear_ambient_capability_set();
    let kept = has.permitted.intersection(allowed);
    let sets =
        CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).context("cannot drop capabilities")
}

/// Refuses a document that needs what was dropped.
pub(super) fn check(allowed: CapabilitySet, needed: CapabilitySet) -> Result<()> {
    if allowed.contains(needed) {
        return Ok(());
    }
    Err(helped(
        "the new document needs capabilities that the daemon dropped when it started",
        "restart the daemon for it",
    ))
}

fn shrink_bounds(allowed: CapabilitySet) {
    for number in 0..=LAST {
        let one = CapabilitySet::from_bits_retain(1 << number);
        if !allowed.contains(one) {
            // The kernel knows fewer than there are bits.
            let _ = remove_capability_from_bounding_set(one);
        }
    }
}
