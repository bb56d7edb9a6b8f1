//! The managed part of a link, why one is refused, and when what is seen agrees with what is declared. Pure.
//!
//! Each field of a link that is only configured has a key of its own, so that each has its own original.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::builder::Impossible;
use crate::link::kinds::LinkKind;
use crate::link::kinds::behaviour::{OwnMac, Parent};
use crate::link::port::PortOption;
use crate::link::vlans::Vlans;
use crate::link::{IfIndex, LinkName, alias};
use crate::neighbour::Mac;
use crate::number::ParseError;
use crate::object::agrees;

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
    /// How many packets may wait in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub txqueuelen: Option<u32>,
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
    /// What distinguishes this link from a later one of the same name: numbers are not used twice.
    pub(crate) fn identity(self) -> Option<String> {
        self.0.map(|IfIndex(number)| number.to_string())
    }
}

impl Link {
    /// A link of this kind, and no more declared.
    #[must_use]
    pub fn new(kind: LinkKind) -> Self {
        let (up, mtu, txqueuelen, mac, master) = (None, None, None, None, None);
        let (parent, alias, incarnation) = (None, None, Incarnation::default());
        Link { kind, up, mtu, txqueuelen, mac, master, parent, alias, incarnation }
    }

    /// The part of it that another link declares.
    pub(crate) fn declared_as_in(&self, other: &Link) -> Self {
        let fields = |link: &Link| serde_json::to_value(link).ok();
        let part = match (fields(self), fields(other)) {
            (Some(Value::Object(mut all)), Some(Value::Object(declared))) => {
                all.retain(|name, _| name == "kind" || declared.contains_key(name));
                serde_json::from_value(Value::Object(all)).ok()
            }
            _ => None,
        };
        part.unwrap_or_else(|| Link::new(self.kind.without(&self.kind)))
    }

    /// The link below it, and its other end.
    pub(crate) fn references(&self) -> impl Iterator<Item = &LinkRef> {
        self.parent.iter().chain(self.kind.peer())
    }

    /// The other end, if it is a pair that is declared to be in this namespace whole.
    pub(crate) fn peer_here(&self) -> Option<LinkName> {
        self.kind.peer().filter(|peer| peer.namespace.is_none()).map(|peer| peer.name)
    }
}

/// A link by name, here or in another namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkRef {
    /// Its name.
    pub name: LinkName,
    /// The namespace that it is in, by the name that the source has for it; the same one if left out.
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
    /// How many packets may wait in it.
    pub txqueuelen: Option<u32>,
    /// The hardware address.
    pub mac: Option<Mac>,
    /// The bridge, bond or VRF that it belongs to.
    pub master: Option<LinkName>,
    /// A description.
    pub alias: Option<String>,
}

/// What is declared of a link as a part of a bridge, created by us or not. Each has a key of its own: the kernel keeps
/// it only while the link is in the bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BridgeSettings {
    /// All its VLANs.
    pub vlans: Option<Vlans>,
    /// What it has as a port.
    pub port: PortSettings,
}

/// The declared options of a port of a bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortSettings(pub Vec<(PortOption, Setting)>);

/// One field of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// The largest packet.
    Mtu,
    /// How many packets may wait in it.
    TxQueueLen,
    /// The hardware address.
    Mac,
    /// The bridge, bond or VRF that it belongs to.
    Master,
    /// All its VLANs, as a bridge or as a port of one.
    Vlans,
    /// What it has as a port of a bridge.
    Port(PortOption),
    /// The description.
    Alias,
    /// Whether it is up.
    Up,
    /// Its name, which a link gets that is declared by what it is.
    Name,
}

impl Field {
    /// All of them, in the order in which they are written: a link comes up last.
    pub fn all() -> impl Iterator<Item = Field> {
        let ports = PortOption::ALL.iter().map(|option| Field::Port(*option));
        let first = [Field::Mtu, Field::TxQueueLen, Field::Mac, Field::Master, Field::Vlans];
        first.into_iter().chain(ports).chain([Field::Alias, Field::Up, Field::Name])
    }

    /// Whether a link has it only as a bridge or as a port of one.
    #[must_use]
    pub fn is_of_bridge(self) -> bool {
        matches!(self, Field::Vlans | Field::Port(_))
    }

    /// The word in keys and documents.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Field::Mtu => "mtu",
            Field::TxQueueLen => "txqueuelen",
            Field::Mac => "mac",
            Field::Master => "master",
            Field::Vlans => "vlans",
            Field::Port(option) => option.key_word(),
            Field::Alias => "alias",
            Field::Up => "up",
            Field::Name => "name",
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Field {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let field = Field::all().find(|field| field.word() == text);
        ParseError::unless(field, text, "no field of a link such as `mtu` or `up`")
    }
}

/// The value of a field. Links always have one: no master and no alias are the empty text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Setting {
    /// Of `up`.
    Flag(bool),
    /// Of `mtu` and `txqueuelen`.
    Number(u32),
    /// Of `mac`, `master`, `alias` and `name`.
    Text(String),
    /// Of `vlans`.
    Vlans(Vlans),
}

impl Setting {
    /// The link that a text names, if it names one.
    pub(crate) fn link_name(&self) -> Option<LinkName> {
        match self {
            Setting::Text(text) => text.parse().ok(),
            _ => None,
        }
    }
}

/// The value of a field of one link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Configured {
    /// The value.
    pub setting: Setting,
    /// Which link of its name it was seen on.
    #[serde(skip)]
    pub incarnation: Incarnation,
}

impl From<Setting> for Configured {
    fn from(setting: Setting) -> Self {
        Configured { setting, incarnation: Incarnation::default() }
    }
}

impl Settings {
    /// The declared fields.
    #[cfg(feature = "document")]
    pub(crate) fn each(self) -> impl Iterator<Item = (Field, Setting)> {
        let Settings { up, mtu, txqueuelen, mac, master, alias } = self;
        let declared = [
            (Field::Mtu, mtu.map(Setting::Number)),
            (Field::TxQueueLen, txqueuelen.map(Setting::Number)),
            (Field::Mac, mac.map(|mac| Setting::Text(mac.to_string()))),
            (Field::Master, master.map(|master| Setting::Text(master.to_string()))),
            (Field::Alias, alias.map(Setting::Text)),
            (Field::Up, up.map(Setting::Flag)),
        ];
        declared.into_iter().filter_map(|(field, setting)| Some((field, setting?)))
    }
}

impl BridgeSettings {
    /// The declared fields.
    #[cfg(feature = "document")]
    pub(crate) fn each(self) -> impl Iterator<Item = (Field, Setting)> {
        let BridgeSettings { vlans, port: PortSettings(port) } = self;
        let vlans = vlans.map(|vlans| (Field::Vlans, Setting::Vlans(vlans)));
        let port = port.into_iter().map(|(option, setting)| (Field::Port(option), setting));
        vlans.into_iter().chain(port)
    }
}

/// Brings a declared link to the form in which it is compared.
pub(crate) fn normalize(name: LinkName, desired: &mut Link) -> Result<(), Impossible> {
    let is_itself = |link: &LinkRef| link.namespace.is_none() && link.name == name;
    if desired.master == Some(name) || desired.references().any(is_itself) {
        return Err(Impossible::Itself);
    }
    let behaviour = desired.kind.behaviour();
    match (behaviour.parent, &desired.parent) {
        (Parent::Required, None) => return Err(Impossible::NoParent),
        (Parent::None, Some(_)) => return Err(Impossible::NeedlessParent),
        _ => {}
    }
    check_parts(desired.mtu, desired.mac, desired.alias.as_deref())?;
    if desired.mac.is_some() && behaviour.mac == OwnMac::None {
        return Err(Impossible::NoMac);
    }
    desired.kind.check()
}

/// Checks what is declared of a link that is only configured.
pub(crate) fn check_setting(
    name: LinkName,
    field: Field,
    setting: &Setting,
) -> Result<(), Impossible> {
    match (field, setting) {
        (Field::Mtu, Setting::Number(mtu)) => check_parts(Some(*mtu), None, None),
        (Field::Mac, Setting::Text(mac)) => check_parts(None, mac.parse().ok(), None),
        (Field::Master, Setting::Text(master)) if *master == name.as_str() => {
            Err(Impossible::Itself)
        }
        (Field::Name, Setting::Text(text)) if *text != name.as_str() => {
            Err(Impossible::MadeElsewhere)
        }
        (Field::Alias, Setting::Text(words)) => check_parts(None, None, Some(words)),
        (Field::Port(option), setting) => option.check(setting),
        (Field::Vlans, Setting::Vlans(vlans)) => Vlans::declared(vlans.ranges()).map(|_| ()),
        _ => Ok(()),
    }
}

fn check_parts(mtu: Option<u32>, mac: Option<Mac>, words: Option<&str>) -> Result<(), Impossible> {
    // All zero, or that of a group.
    let is_unusable = |Mac(mac): Mac| mac == [0; 6] || mac[0] & 1 != 0;
    let is_bad = |words: &str| {
        words.len() > 200 || words.contains(char::is_control) || words.contains(alias::PREFIX)
    };
    match () {
        () if mtu == Some(0) => Err(Impossible::Mtu),
        () if mac.is_some_and(is_unusable) => Err(Impossible::UnusableMac),
        () if words.is_some_and(is_bad) => Err(Impossible::Alias),
        () => Ok(()),
    }
}

/// Whether a link is as declared.
pub(crate) fn link_agrees(desired: &Link, seen: &Link) -> bool {
    let alias = seen.alias.as_deref().unwrap_or_default();
    desired.kind.is_alike(&seen.kind)
        && agrees(desired.up.as_ref(), seen.up.as_ref())
        && agrees(desired.mtu.as_ref(), seen.mtu.as_ref())
        && agrees(desired.txqueuelen.as_ref(), seen.txqueuelen.as_ref())
        && agrees(desired.mac.as_ref(), seen.mac.as_ref())
        && agrees(desired.master.as_ref(), seen.master.as_ref())
        && agrees(desired.parent.as_ref(), seen.parent.as_ref())
        && desired.alias.as_deref().is_none_or(|desired| desired == alias)
}

/// Whether what differs can be changed while the link is there.
pub(crate) fn changes_in_place(desired: &Link, seen: &Link) -> bool {
    let has_fixed_mac = desired.kind.behaviour().mac == OwnMac::Fixed;
    desired.kind.changes_in_place(&seen.kind)
        && parent_changes_in_place(desired, seen)
        && (!has_fixed_mac || agrees(desired.mac.as_ref(), seen.mac.as_ref()))
}

/// Only tunnels can be put on another link, and only on one in their own namespace.
fn parent_changes_in_place(desired: &Link, seen: &Link) -> bool {
    let is_here =
        |link: &Link| link.parent.as_ref().is_none_or(|parent| parent.namespace.is_none());
    let is_tunnel = desired.kind.behaviour().parent == Parent::Optional;
    agrees(desired.parent.as_ref(), seen.parent.as_ref())
        || is_tunnel && is_here(desired) && is_here(seen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::kinds::bridge::{Bridge, Centis};
    use crate::link::kinds::veth::Veth;
    use crate::link::kinds::vxlan::Vxlan;
    use crate::link::model::Setting;
    use crate::link::vlans::VlanRange;
    use crate::object::Object;

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
        let vlans = Vlans::from(vec![VlanRange::one(7)]);
        let settings = [
            Setting::Flag(true),
            Setting::Number(7),
            Setting::Text("02".to_owned()),
            Setting::Vlans(vlans),
            Setting::Vlans(Vlans::default()),
        ];
        for object in settings.map(|setting| Object::Setting(setting.into())) {
            let text = serde_json::to_string(&object).unwrap();
            assert_eq!(serde_json::from_str::<Object>(&text).unwrap(), object, "{text}");
        }
    }
}
