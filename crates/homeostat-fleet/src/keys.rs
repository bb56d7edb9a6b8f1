//! The keys of a fleet in its store. No other module builds one.
//!
//! | key, below `/homeostat/v1/FLEET/` | written by | has |
//! |---|---|---|
//! | `fleet` | operator | hints for all nodes: spread of reconnects, time of leases |
//! | `inventory/NODE` | operator | labels, groups, ring |
//! | `blob/GROUP/SHA256` | operator | one deflated chunk; it never changes |
//! | `doc/GROUP/SHA256` | operator | the manifest of a document |
//! | `rollout/ID/statement` | operator | the signed bytes and their signatures |
//! | `rollout/ID/request` | operator | run, pause or abort |
//! | `rollout/ID/state` | coordinator | phase, wave, why |
//! | `leaves/ID/PART` | operator | which node gets which document in a rollout, in the order of the waves |
//! | `node/NODE/want` | coordinator | what the node shall have, with its proof |
//! | `node/NODE/plan` | operator | a want whose statement asks for a plan |
//! | `status/NODE` | node | what the node has; without a lease |
//! | `alive/NODE` | node | machine and boot, with a lease |
//! | `plan/NODE` | node | the answer to a request for a plan, with a lease |
//! | `lead/coordinator`, `lead/SOURCE/TARGET` | candidates | the election; its create revision is the term |
//! | `prune/began` | operator | who has begun last to delete what nobody needs any more |
//! | `prune/uploads` | operator | who has begun last to upload documents, or to delete: a later upload stops a deletion |
//! | `once/SOURCE/TARGET/journal/` | the machine that leads there | operations on what is shared |

use crate::{Digest, Name};

/// The group whose documents a node reads if its settings name no other.
pub const GROUP: &str = "all";

/// Builds keys of one fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    prefix: String,
}

impl Keys {
    #[must_use]
    pub fn new(fleet: &Name) -> Self {
        Keys { prefix: format!("/homeostat/v1/{fleet}/") }
    }

    /// What all keys of the fleet begin with.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    #[must_use]
    pub fn fleet(&self) -> String {
        self.below("fleet")
    }

    /// What all keys of a kind begin with, such as those of `status` or `rollout`.
    #[must_use]
    pub fn all(&self, kind: &str) -> String {
        self.below(&format!("{kind}/"))
    }

    #[must_use]
    pub fn inventory(&self, node: &Name) -> String {
        self.below(&format!("inventory/{node}"))
    }

    #[must_use]
    pub fn blob(&self, group: &Name, digest: &Digest) -> String {
        self.below(&format!("blob/{group}/{}", digest.hex()))
    }

    #[must_use]
    pub fn document(&self, group: &Name, digest: &Digest) -> String {
        self.below(&format!("doc/{group}/{}", digest.hex()))
    }

    #[must_use]
    pub fn statement(&self, rollout: &Name) -> String {
        self.below(&format!("rollout/{rollout}/statement"))
    }

    /// Parts count from 0, with digits that sort.
    #[must_use]
    pub fn leaves(&self, rollout: &Name, part: usize) -> String {
        format!("{}{part:04}", self.all_leaves(rollout))
    }

    /// What the keys of all leaves of a rollout begin with. They are not below `rollout/`, which coordinators list often.
    #[must_use]
    pub fn all_leaves(&self, rollout: &Name) -> String {
        self.below(&format!("leaves/{rollout}/"))
    }

    #[must_use]
    pub fn request(&self, rollout: &Name) -> String {
        self.below(&format!("rollout/{rollout}/request"))
    }

    #[must_use]
    pub fn state(&self, rollout: &Name) -> String {
        self.below(&format!("rollout/{rollout}/state"))
    }

    #[must_use]
    pub fn want(&self, node: &Name) -> String {
        self.below(&format!("node/{node}/want"))
    }

    /// Everything that is meant for a node begins with this.
    #[must_use]
    pub fn node(&self, node: &Name) -> String {
        self.below(&format!("node/{node}/"))
    }

    #[must_use]
    pub fn plan_request(&self, node: &Name) -> String {
        self.below(&format!("node/{node}/plan"))
    }

    #[must_use]
    pub fn status(&self, node: &Name) -> String {
        self.below(&format!("status/{node}"))
    }

    #[must_use]
    pub fn alive(&self, node: &Name) -> String {
        self.below(&format!("alive/{node}"))
    }

    #[must_use]
    pub fn plan(&self, node: &Name) -> String {
        self.below(&format!("plan/{node}"))
    }

    #[must_use]
    pub fn prune_began(&self) -> String {
        self.below("prune/began")
    }

    #[must_use]
    pub fn uploads(&self) -> String {
        self.below("prune/uploads")
    }

    /// Of the coordinators.
    #[must_use]
    pub fn leader(&self) -> String {
        self.below("lead/coordinator")
    }

    /// Of the machines that take turns in acting on what they share.
    #[must_use]
    pub fn turn(&self, source: &str, target: &str) -> String {
        self.below(&format!("lead/{source}/{target}"))
    }

    /// Their journal is below it.
    #[must_use]
    pub fn journal(&self, source: &str, target: &str) -> String {
        self.below(&format!("once/{source}/{target}/journal"))
    }

    /// The node whose status, alive key, inventory, plan or want has this key.
    #[must_use]
    pub fn node_of(&self, key: &str) -> Option<Name> {
        let rest = key.strip_prefix(&self.prefix)?;
        let name = match rest.split_once('/')? {
            ("status" | "alive" | "inventory" | "plan", name) => name,
            ("node", rest) => rest.strip_suffix("/want")?,
            _ => return None,
        };
        name.parse().ok()
    }

    fn below(&self, rest: &str) -> String {
        format!("{}{rest}", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_below_their_fleet_and_lead_back_to_their_node() {
        let name = |text: &str| text.parse::<Name>().unwrap();
        let keys = Keys::new(&name("edge"));
        assert_eq!(keys.want(&name("r1")), "/homeostat/v1/edge/node/r1/want");
        assert_eq!(keys.leaves(&name("5"), 7), "/homeostat/v1/edge/leaves/5/0007");
        let blob = format!("/homeostat/v1/edge/blob/all/{}", Digest::of(b"").hex());
        assert_eq!(keys.blob(&name("all"), &Digest::of(b"")), blob);
        let node = name("r1");
        for key in [keys.want(&node), keys.status(&node), keys.alive(&node), keys.plan(&node)] {
            assert_eq!(keys.node_of(&key), Some(node.clone()), "{key}");
        }
        for key in [keys.leader(), blob, keys.fleet(), "/homeostat/v1/other/status/r1".to_owned()] {
            assert_eq!(keys.node_of(&key), None, "{key}");
        }
    }
}
