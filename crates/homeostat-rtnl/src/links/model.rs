//! The managed part of a link. In a desired state, what is not declared agrees with anything.

use serde::{Deserialize, Serialize};

use crate::link::{IfIndex, LinkName};
use crate::links::kinds::LinkKind;
use crate::neighbour::Mac;

/// A link that is made and owned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// What it is, with the options of that kind.
    #[serde(flatten)]
    pub kind: LinkKind,
    /// Whether it is up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up: Option<bool>,
    /// The largest packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// The hardware address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// The bridge, bond or VRF that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master: Option<LinkName>,
    /// The link below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<LinkRef>,
    /// The user's own description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    /// Which link of its name it is.
    #[serde(skip)]
    pub incarnation: Incarnation,
}

/// Which link of a name was seen; a desired state is for any, and all are alike as far as it goes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Incarnation(pub Option<IfIndex>);

impl PartialEq for Incarnation {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for Incarnation {}

impl Incarnation {
    /// What tells this link from a later one of the same name: numbers are not used twice.
    pub(crate) fn identity(self) -> Option<String> {
        self.0.map(|IfIndex(number)| number.to_string())
    }
}

impl Link {
    /// A link of this kind, and no more declared.
    #[must_use]
    pub fn new(kind: LinkKind) -> Self {
        let (up, mtu, mac, master) = (None, None, None, None);
        let (parent, alias, incarnation) = (None, None, Incarnation::default());
        Link { kind, up, mtu, mac, master, parent, alias, incarnation }
    }
}

/// A link by name, here or in another namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkRef {
    /// Its name.
    pub name: LinkName,
    /// The namespace that it is in, as the source was told of it; the same one if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

impl LinkRef {
    /// A link in the same namespace.
    #[must_use]
    pub fn here(name: LinkName) -> Self {
        LinkRef { name, namespace: None }
    }

    /// A link in another namespace.
    #[must_use]
    pub fn in_namespace(name: LinkName, namespace: impl Into<String>) -> Self {
        LinkRef { name, namespace: Some(namespace.into()) }
    }
}

/// What is declared of a link that is not made by us.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Whether it is up.
    pub up: Option<bool>,
    /// The largest packet.
    pub mtu: Option<u32>,
    /// The hardware address.
    pub mac: Option<Mac>,
    /// The bridge, bond or VRF that it belongs to.
    pub master: Option<LinkName>,
    /// A description.
    pub alias: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::links::field::Setting;
    use crate::links::kinds::bridge::Bridge;
    use crate::links::kinds::time::Centis;
    use crate::links::kinds::veth::Veth;
    use crate::links::kinds::vxlan::Vxlan;
    use crate::model::Object;

    #[test]
    fn what_is_recorded_of_a_link_reads_back_as_the_same() {
        let name = |text: &str| text.parse::<LinkName>().unwrap();
        let bridge = Bridge { hello_time: Some(Centis(199)), ..Bridge::default() };
        let vxlan = Vxlan { id: 5, remote: Some([10, 0, 0, 1].into()), ..Vxlan::default() };
        let peer = LinkRef::in_namespace(name("eth0"), "blue");
        let kinds = [
            LinkKind::Dummy,
            LinkKind::Ifb,
            LinkKind::Bridge(bridge),
            LinkKind::Vxlan(vxlan),
            LinkKind::Veth(Veth { peer }),
            LinkKind::Other { name: "none".to_owned() },
        ];
        for kind in kinds {
            let mut link = Link::new(kind);
            (link.up, link.mac) = (Some(true), Some(Mac([2, 0, 0, 0, 0, 1])));
            (link.master, link.parent) = (Some(name("br0")), Some(LinkRef::here(name("low"))));
            let object = Object::Link(Box::new(link));
            let text = serde_json::to_string(&object).unwrap();
            assert_eq!(serde_json::from_str::<Object>(&text).unwrap(), object, "{text}");
        }
        let settings = [Setting::Flag(true), Setting::Number(7), Setting::Text("02".to_owned())];
        for object in settings.map(|setting| Object::Setting(setting.into())) {
            let text = serde_json::to_string(&object).unwrap();
            assert_eq!(serde_json::from_str::<Object>(&text).unwrap(), object, "{text}");
        }
    }
}
