//! The root qdisc of another owner in full: the kernel's own messages, to be sent back when it is given back.

use homeostat_core::Snapshot;
use homeostat_netlink::Error;
use homeostat_netlink::uapi::{RTM_NEWQDISC, RTM_NEWTCLASS};
use serde::{Deserialize, Serialize};

use crate::kernel::Kernel;
use crate::wire::{Reported, Requests};

/// The kinds that the kernel makes again from what it reports of them.
const KINDS: [&str; 14] = [
    "bfifo",
    "cake",
    "codel",
    "fq",
    "fq_codel",
    "fq_pie",
    "htb",
    "mq",
    "pfifo",
    "pfifo_fast",
    "pie",
    "prio",
    "sfq",
    "tbf",
];

/// A qdisc with its classes and their qdiscs, each after what it is below.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Copied {
    root: Reported,
    classes: Vec<Reported>,
    leaves: Vec<Reported>,
}

impl Copied {
    /// A copy of a root; nothing, if it could not be made again by its messages.
    pub(crate) fn of(
        kernel: &mut Kernel,
        root: &Reported,
        qdiscs: &[Reported],
    ) -> Result<Option<Self>, Error> {
        let link = root.tc.link;
        let below = |one: &&Reported| {
            one.tc.link == link && !one.is_default() && !one.is_root() && !one.is_ingress()
        };
        let leaves: Vec<Reported> = qdiscs.iter().filter(below).cloned().collect();
        let mut classes = Vec::new();
        if root.kind == "htb" {
            classes = kernel.classes(link)?;
            classes.retain(|class| class.kind == "htb");
            sort_top_down(&mut classes);
        }
        // Classes of a qdisc that is itself below a class are beyond what is copied, and so are filters.
        let is_below_root = |one: &Reported| one.tc.parent >> 16 == root.tc.handle >> 16;
        let is_class = |one: &Reported| one.is_root() || is_below_root(one);
        let has_filters = !kernel.filters(link, root.tc.handle)?.is_empty();
        let is_plain = |one: &Reported| KINDS.contains(&one.kind.as_str());
        let is_whole = is_plain(root)
            && leaves
                .iter()
                .all(|leaf| is_plain(leaf) && is_below_root(leaf) && leaf.kind != "htb")
            && classes.iter().all(is_class)
            && !has_filters;
        Ok(is_whole.then(|| Copied { root: root.clone(), classes, leaves }))
    }

    pub(crate) fn parse(snapshot: &Snapshot) -> Option<Self> {
        serde_json::from_str(&snapshot.0).ok()
    }

    pub(crate) fn snapshot(&self) -> Option<Snapshot> {
        serde_json::to_string(self).ok().map(Snapshot)
    }

    /// The requests that make it again.
    pub(crate) fn write(&self, requests: &mut Requests<'_>) -> homeostat_netlink::Result<()> {
        requests.put_again(RTM_NEWQDISC, &self.root)?;
        self.classes.iter().try_for_each(|class| requests.put_again(RTM_NEWTCLASS, class))?;
        self.leaves.iter().try_for_each(|leaf| requests.put_again(RTM_NEWQDISC, leaf))
    }
}

/// The kernel lists classes in any order.
fn sort_top_down(classes: &mut [Reported]) {
    let parents: std::collections::BTreeMap<u32, u32> =
        classes.iter().map(|class| (class.tc.handle, class.tc.parent)).collect();
    let depth = |class: &Reported| {
        let above = |handle: &u32| parents.get(handle).copied();
        std::iter::successors(Some(class.tc.handle), above).take(parents.len() + 1).count()
    };
    classes.sort_by_cached_key(depth);
}
