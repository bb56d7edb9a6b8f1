//! Lists what is there and is not the kernel's default.

use std::collections::BTreeMap;

use homeostat_core::Failure;
use homeostat_netlink::Error;

use crate::kernel::{Kernel, failure};
use crate::key::{Key, LinkName, Side as KeySide};
use crate::model::{Class, Ingress, Object, Side};
use crate::observe::whole;
use crate::source::Qdiscs;
use crate::wire::AT_INGRESS;

/// What is there.
#[derive(Debug, Default)]
pub struct Shown {
    pub sides: Vec<(Key, Object)>,
    /// What cannot be declared, with its kind.
    pub left_out: Vec<(Key, String)>,
}

/// Everything that is not the kernel's default.
pub fn list(source: &Qdiscs) -> Result<Shown, Failure> {
    let mut kernel = source.kernel()?;
    list_from(&mut kernel).map_err(|error| failure(&error))
}

fn list_from(kernel: &mut Kernel) -> Result<Shown, Error> {
    let mut shown = Shown::default();
    let qdiscs = kernel.qdiscs()?;
    let mut names: BTreeMap<u32, Option<LinkName>> = BTreeMap::new();
    for seen in qdiscs.iter().filter(|one| one.is_ingress() || one.is_root() && !one.is_default()) {
        let link = seen.tc.link;
        let name = match names.get(&link) {
            Some(name) => name.clone(),
            None => names.entry(link).or_insert(kernel.name(link)?).clone(),
        };
        let Some(name) = name else { continue };
        let side = if seen.is_ingress() { KeySide::Ingress } else { KeySide::Root };
        let key = Key::new(name, side);
        let side = match side {
            KeySide::Root => {
                let mut root = whole(kernel, seen, &qdiscs)?;
                root.classes.values_mut().for_each(drop_computed);
                Side::Root(root)
            }
            KeySide::Ingress => {
                let mut redirect = None;
                for filter in kernel.filters(link, AT_INGRESS)? {
                    if let Some(to) = filter.redirects_to()? {
                        redirect = kernel.name(to)?;
                    }
                }
                Side::Ingress(Ingress { redirect })
            }
        };
        let is_declarable = match &side {
            Side::Root(root) => root.qdisc.spec().is_some(),
            Side::Ingress(ingress) => ingress.redirect.is_some(),
        };
        if is_declarable {
            shown.sides.push((key, Object::new(side)));
        } else {
            shown.left_out.push((key, seen.kind.clone()));
        }
    }
    shown.sides.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(shown)
}

/// The kernel computes a quantum from the rate where nobody says it.
fn drop_computed(class: &mut Class) {
    let rate = class.options.get("rate").copied().unwrap_or_default();
    if class.options.get("quantum") == Some(&(rate / R2Q).clamp(1000, 200_000)) {
        class.options.remove("quantum");
    }
}

/// What rates are divided by, unless htb is told another number.
const R2Q: i64 = 10;
