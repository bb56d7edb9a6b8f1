//! Events of links: which links they are about, whether anybody cares, and what went along unsaid.
//!
//! Quirk `a-bridge-tells-of-ports-as-of-links` (Linux 6.18): `ip link set va nomaster` sends a message
//! that a link went, of the family of bridges: the port did, and the link is still there.
//!
//! Quirk `a-link-that-is-down-says-little` (Linux 6.18): `ip link set br0 alias mine` sends nothing while
//! `br0` is down. The next look at everything finds it.

use homeostat_core::Desired as _;
use homeostat_netlink::uapi::RTM_DELLINK;
use homeostat_netlink::{Malformed, Message};

use super::{Notices, doubt};
use crate::decode;
use crate::desired::DesiredState;
use crate::key::Key;
use crate::link::LinkName;
use crate::links;
use crate::links::alias;
use crate::links::carry::Carriers;
use crate::links::desired::DesiredField;
use crate::links::field::Field;
use crate::shadow::Shadow;

impl Notices {
    /// False, if only a look at everything tells what changed.
    pub(super) fn link(
        &mut self,
        message: &Message<'_>,
        shadow: &mut Option<Shadow>,
    ) -> Result<bool, Malformed> {
        let (index, name) = decode::link(message)?;
        if !decode::is_of_any_family(message)? {
            self.name_link(name, shadow.as_ref());
            return Ok(true);
        }
        let former = self.links.knows(index).then(|| self.links.name(index));
        let former = former.filter(|former| *former != name);
        let went = message.kind == RTM_DELLINK;
        self.links.remove(index);
        if !went {
            self.links.insert(name, index);
        }
        // Quirk `nexthops-go-with-the-carrier` (Linux 6.18): a link that stays up and loses its
        // carrier loses its nexthops with their routes, and neither is announced (`ip link set vb
        // down` at the other end of a pair). One that has it has lost nothing: every way down is
        // announced on its own.
        let mut is_known = true;
        if went || former.is_some() || !decode::has_carrier(message)? {
            let is_one = |link: LinkName| link == name || Some(link) == former;
            is_known = doubt(shadow, |shadow| doubt_links(shadow, &is_one));
        }
        let is_marked = is_marked(message, &self.owner);
        for name in former.into_iter().chain([name]) {
            if is_marked {
                self.name(Key::Link(name));
            }
            self.name_link(name, shadow.as_ref());
        }
        Ok(is_known)
    }

    /// Names a link, and what is declared of it, if anything declared has to do with it.
    fn name_link(&mut self, name: LinkName, shadow: Option<&Shadow>) {
        let Some(desired) = shadow.map(Shadow::desired) else {
            self.name(Key::Link(name));
            for field in Field::ALL {
                self.name(Key::LinkField(name, field));
            }
            return;
        };
        if concerns(desired, name) {
            self.name(Key::Link(name));
        }
        let fields = desired.links.fields.iter().filter(|desired| desired.name == name);
        fields.map(DesiredField::key).for_each(|key| self.name(key));
    }
}

fn concerns(desired: &DesiredState, name: LinkName) -> bool {
    let mut carries = false;
    desired.dependants(&Key::Link(name), &mut |_| carries = true);
    carries
        || desired.links.maker_of(name).is_some()
        || desired.links.fields.iter().any(|desired| desired.name == name)
}

/// Whether it carries our mark, declared or not.
fn is_marked(message: &Message<'_>, owner: &str) -> bool {
    let seen = links::decode::link(message).ok();
    let text = seen.as_ref().and_then(|seen| seen.alias.as_deref());
    text.and_then(|text| alias::split(text).1) == Some(owner)
}

/// What went with links, or may go by another name now.
fn doubt_links(shadow: &mut Shadow, is_one: &dyn Fn(LinkName) -> bool) -> bool {
    let desired = shadow.desired().clone();
    let carriers = Carriers::new(&desired, is_one);
    shadow.doubt(|route, rests_on| carriers.may_carry(route, rests_on))
}
