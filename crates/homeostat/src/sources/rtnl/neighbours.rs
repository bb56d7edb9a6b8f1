//! `[[neighbours]]`.

use anyhow::Result;
use homeostat_document::{Neighbour as Declared, Scope};
use homeostat_rtnl::{Builder, Mac, Neighbour, NeighbourKey};

use super::Fault;
use super::addresses::link_name;

/// Wishes for all neighbours.
pub(super) fn fill(section: &Scope, builder: &mut Builder, fault: &mut dyn FnMut(Fault)) {
    for neighbour in section.neighbours.iter().flatten() {
        if let Err(error) = add(neighbour, builder) {
            fault((neighbour.span, error));
        }
    }
}

fn add(declared: &Declared, builder: &mut Builder) -> Result<()> {
    let (link, ip) = (link_name(&declared.dev)?, declared.to.value);
    let make = if declared.proxy { NeighbourKey::proxy } else { NeighbourKey::new };
    let key = make(link, ip);
    let mac = declared.mac.map(|mac| Mac(mac.0));
    builder.neighbour(key, Neighbour { mac })?;
    if declared.adopt {
        builder.may_adopt(key);
    }
    Ok(())
}
