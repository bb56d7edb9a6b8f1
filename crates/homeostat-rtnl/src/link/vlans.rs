//! The VLANs of a bridge and of its ports: ids and ranges, the one that untagged frames get (`pvid`), those that leave
//! without a tag (`untagged`), and the network that each is in a VXLAN with several (`vni`). A declared list is the whole
//! list of its link.
//!
//! Start at [`Vlans`]; its messages are below it: `read` asks for the VLANs of links, `change` writes a difference.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use homeostat_netlink::uapi::{
    BRIDGE_FLAGS_MASTER, BRIDGE_FLAGS_SELF, BRIDGE_VLAN_INFO_PVID, BRIDGE_VLAN_INFO_RANGE_BEGIN,
    BRIDGE_VLAN_INFO_RANGE_END, BRIDGE_VLAN_INFO_UNTAGGED, BRIDGE_VLANDB_ENTRY,
    BRIDGE_VLANDB_ENTRY_INFO, BRIDGE_VLANDB_ENTRY_RANGE, BRIDGE_VLANDB_ENTRY_TUNNEL_INFO,
    BRIDGE_VLANDB_TINFO_ID, IFLA_AF_SPEC, IFLA_BRIDGE_FLAGS, IFLA_BRIDGE_VLAN_INFO,
    IFLA_BRIDGE_VLAN_TUNNEL_FLAGS, IFLA_BRIDGE_VLAN_TUNNEL_ID, IFLA_BRIDGE_VLAN_TUNNEL_INFO,
    IFLA_BRIDGE_VLAN_TUNNEL_VID, RTM_DELLINK, RTM_GETVLAN, RTM_SETLINK,
};
use homeostat_netlink::{Batch, Connection, Error, Malformed, Message, MessageWriter};
use serde::{Deserialize, Serialize};

use crate::builder::Impossible;
use crate::link::IfIndex;
use crate::number::{ParseError, serde_as_text};
use crate::observe::collect;

/// The family of messages about bridges.
const AF_BRIDGE: u8 = 7;

/// The lowest and the highest id that a VLAN can have.
const FIRST: u16 = 1;
const LAST: u16 = 4094;

/// The highest number of a network.
const LAST_VNI: u32 = 0x00ff_ffff;

/// What a link does with the frames of a VLAN, beside taking them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VlanFlags {
    /// Frames that come without a tag are of this VLAN. One VLAN of a link at most.
    pub pvid: bool,
    /// Frames leave without a tag.
    pub untagged: bool,
    /// The network of the frames in the VXLAN that the port is; of a range, that of its lowest id.
    pub vni: Option<u32>,
}

impl VlanFlags {
    /// Those of a VLAN so many ids above the lowest one of a range.
    fn at(self, above: u16) -> Self {
        VlanFlags { vni: self.vni.map(|vni| vni + u32::from(above)), ..self }
    }
}

/// VLANs with neighbouring ids that are alike: `10 pvid untagged`, `20-30`, `40-50 vni 10040`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanRange {
    /// The lowest id.
    pub first: u16,
    /// The highest id, which is the same for one VLAN.
    pub last: u16,
    /// What is done with their frames.
    pub flags: VlanFlags,
}

impl VlanRange {
    /// One VLAN whose frames have tags.
    #[must_use]
    pub fn one(id: u16) -> Self {
        VlanRange { first: id, last: id, flags: VlanFlags::default() }
    }

    fn is_possible(self) -> bool {
        let is_upwards = FIRST <= self.first && self.first <= self.last && self.last <= LAST;
        let most = LAST_VNI - u32::from(self.last.saturating_sub(self.first));
        is_upwards
            && (!self.flags.pvid || self.first == self.last)
            && self.flags.vni.is_none_or(|vni| (1..=most).contains(&vni))
    }
}

impl fmt::Display for VlanRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first)?;
        if self.last != self.first {
            write!(f, "-{}", self.last)?;
        }
        for (is_set, word) in [(self.flags.pvid, "pvid"), (self.flags.untagged, "untagged")] {
            if is_set {
                write!(f, " {word}")?;
            }
        }
        self.flags.vni.map_or(Ok(()), |vni| write!(f, " vni {vni}"))
    }
}

impl FromStr for VlanRange {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let is = "no VLAN id or range such as `10`, `20-30` or `40 pvid untagged`";
        ParseError::unless(parse_range(text).filter(|range| range.is_possible()), text, is)
    }
}

serde_as_text!(VlanRange);

fn parse_range(text: &str) -> Option<VlanRange> {
    let mut words = text.split_ascii_whitespace();
    let ids = words.next()?;
    let (first, last) = ids.split_once('-').unwrap_or((ids, ids));
    let is_plain = |text: &str| text == "0" || !text.starts_with(['0', '+']);
    let id = |text: &str| text.parse().ok().filter(|_| is_plain(text));
    let mut range = VlanRange { first: id(first)?, last: id(last)?, flags: VlanFlags::default() };
    while let Some(word) = words.next() {
        match word {
            "pvid" => range.flags.pvid = true,
            "untagged" => range.flags.untagged = true,
            "vni" => {
                let vni = words.next().filter(|text| is_plain(text));
                range.flags.vni = Some(vni?.parse().ok()?);
            }
            _ => return None,
        }
    }
    Some(range)
}

/// All VLANs of a link. It is kept in its shortest form, so that lists that say the same are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<VlanRange>")]
pub struct Vlans(Vec<VlanRange>);

impl From<Vec<VlanRange>> for Vlans {
    fn from(ranges: Vec<VlanRange>) -> Self {
        ranges.into_iter().collect()
    }
}

impl FromIterator<VlanRange> for Vlans {
    fn from_iter<I: IntoIterator<Item = VlanRange>>(ranges: I) -> Self {
        Vlans::of_ids(&ById::from_ranges(ranges))
    }
}

impl Vlans {
    /// Takes VLANs that are declared; refuses a list that a link can never have.
    pub fn declared(ranges: &[VlanRange]) -> Result<Self, Impossible> {
        if !ranges.iter().all(|range| range.is_possible()) {
            return Err(Impossible::VlanId);
        }
        let ids: usize = ranges.iter().map(|range| usize::from(range.last - range.first) + 1).sum();
        let by_id = ById::from_ranges(ranges.iter().copied());
        match () {
            () if by_id.0.len() != ids => Err(Impossible::VlanTwice),
            () if by_id.0.values().filter(|flags| flags.pvid).count() > 1 => {
                Err(Impossible::TwoPvids)
            }
            () => Ok(Vlans::of_ids(&by_id)),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one of them is a network of a VXLAN.
    pub(crate) fn has_networks(&self) -> bool {
        self.0.iter().any(|range| range.flags.vni.is_some())
    }

    /// The shortest list of them, in the order of their ids.
    #[must_use]
    pub fn ranges(&self) -> &[VlanRange] {
        &self.0
    }

    fn of_ids(by_id: &ById) -> Self {
        let mut ranges: Vec<VlanRange> = Vec::new();
        for (&id, &flags) in &by_id.0 {
            let last = ranges.last_mut().filter(|range| range.last.checked_add(1) == Some(id));
            let follows = |range: &VlanRange| range.flags.at(id - range.first) == flags;
            match last.filter(|range| follows(range) && !flags.pvid) {
                Some(range) => range.last = id,
                None => ranges.push(VlanRange { first: id, last: id, flags }),
            }
        }
        Vlans(ranges)
    }

    /// The VLANs that are not the same in another list, whatever their networks are.
    fn unlike(&self, other: &Vlans) -> Vlans {
        let bare = |flags: &VlanFlags| VlanFlags { vni: None, ..*flags };
        let (mut ids, other) = (self.by_id(), other.by_id());
        ids.0.retain(|id, flags| other.0.get(id).map(bare) != Some(bare(flags)));
        ids.0.values_mut().for_each(|flags| flags.vni = None);
        Vlans::of_ids(&ids)
    }

    /// The VLANs that another list does not have.
    fn missing_in(&self, other: &Vlans) -> Vlans {
        let (mut ids, other) = (self.by_id(), other.by_id());
        ids.0.retain(|id, _| !other.0.contains_key(id));
        Vlans::of_ids(&ids)
    }

    fn by_id(&self) -> ById {
        ById::from_ranges(self.0.iter().copied())
    }
}

/// VLANs one by one, by their ids.
struct ById(BTreeMap<u16, VlanFlags>);

impl ById {
    fn from_ranges(ranges: impl IntoIterator<Item = VlanRange>) -> Self {
        let each = |range: VlanRange| {
            (range.first..=range.last).map(move |id| (id, range.flags.at(id - range.first)))
        };
        ById(ranges.into_iter().flat_map(each).collect())
    }
}

impl fmt::Display for Vlans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges: Vec<String> = self.0.iter().map(VlanRange::to_string).collect();
        f.write_str(&ranges.join(", "))
    }
}

/// Whose VLANs a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// Of a bridge itself: what reaches the host through it.
    Bridge,
    Port,
}

/// The VLANs of one link, or of all links.
pub(crate) fn read(
    connection: &mut Connection,
    of: Option<IfIndex>,
) -> Result<BTreeMap<IfIndex, Vlans>, Error> {
    let [i0, i1, i2, i3] = of.map_or(0, |IfIndex(index)| index).to_ne_bytes();
    let fixed = [AF_BRIDGE, 0, 0, 0, i0, i1, i2, i3];
    let found = collect(connection, RTM_GETVLAN, &fixed, |message| decode(message).map(Some))?;
    let mut all: BTreeMap<IfIndex, Vec<VlanRange>> = BTreeMap::new();
    for (index, ranges) in found {
        all.entry(index).or_default().extend(ranges);
    }
    Ok(all.into_iter().map(|(index, ranges)| (index, Vlans::from(ranges))).collect())
}

/// A message has some of the VLANs of a link; several messages have all of them.
fn decode(message: &Message<'_>) -> Result<(IfIndex, Vec<VlanRange>), Malformed> {
    let ([_, _, _, _, i0, i1, i2, i3], attrs) = message.split::<8>()?;
    let index = IfIndex(u32::from_ne_bytes([*i0, *i1, *i2, *i3]));
    let mut ranges = Vec::new();
    for attr in attrs {
        let attr = attr?;
        if attr.kind != BRIDGE_VLANDB_ENTRY {
            continue;
        }
        let Some(info) = attr.attrs().first(BRIDGE_VLANDB_ENTRY_INFO)? else { continue };
        let [f0, f1, v0, v1] = info.array()?;
        let (flags, first) = (u16::from_ne_bytes([f0, f1]), u16::from_ne_bytes([v0, v1]));
        let last = attr.attrs().first(BRIDGE_VLANDB_ENTRY_RANGE)?;
        let last = last.map_or(Ok(first), |last| last.u16())?;
        let tunnel = attr.attrs().first(BRIDGE_VLANDB_ENTRY_TUNNEL_INFO)?;
        let vni = tunnel.map(|tunnel| tunnel.attrs().first(BRIDGE_VLANDB_TINFO_ID)).transpose()?;
        let flags = VlanFlags {
            pvid: flags & BRIDGE_VLAN_INFO_PVID != 0,
            untagged: flags & BRIDGE_VLAN_INFO_UNTAGGED != 0,
            vni: vni.flatten().map(|vni| vni.u32()).transpose()?,
        };
        ranges.push(VlanRange { first, last, flags });
    }
    Ok((index, ranges))
}

/// Makes the VLANs of a link those that are declared. What is new comes first, so that a VLAN that stays is never
/// without its place. Networks come after the VLANs that have them; one that a VLAN has no more is deleted, and so is one
/// that it changes for another: the kernel keeps the former one otherwise.
pub(crate) fn change(
    batch: &mut Batch,
    index: IfIndex,
    holder: Holder,
    seen: &Vlans,
    desired: &Vlans,
) -> Result<(), Error> {
    for (kind, vlans) in
        [(RTM_SETLINK, desired.unlike(seen)), (RTM_DELLINK, seen.missing_in(desired))]
    {
        if vlans.is_empty() {
            continue;
        }
        let [i0, i1, i2, i3] = index.0.to_ne_bytes();
        let mut message = batch.message(kind, 0);
        message.fixed(&[AF_BRIDGE, 0, 0, 0, i0, i1, i2, i3, 0, 0, 0, 0, 0, 0, 0, 0]);
        message.nest_unmarked(IFLA_AF_SPEC, |spec| {
            let flags = match holder {
                Holder::Bridge => BRIDGE_FLAGS_SELF,
                Holder::Port => BRIDGE_FLAGS_MASTER,
            };
            spec.attr_u16(IFLA_BRIDGE_FLAGS, flags);
            vlans.0.iter().for_each(|range| put_range(spec, *range));
        });
        message.finish()?;
    }
    if holder == Holder::Port && (seen.has_networks() || desired.has_networks()) {
        change_networks(batch, index, seen, desired)?;
    }
    Ok(())
}

/// Changes the networks of VLANs that are there.
fn change_networks(
    batch: &mut Batch,
    index: IfIndex,
    seen: &Vlans,
    desired: &Vlans,
) -> Result<(), Error> {
    let (seen, desired) = (seen.by_id().0, desired.by_id().0);
    let vni = |all: &BTreeMap<u16, VlanFlags>, id: u16| all.get(&id).and_then(|flags| flags.vni);
    // Those of VLANs that are deleted went with them.
    let gone = seen.keys().filter(|id| {
        desired.contains_key(id)
            && vni(&seen, **id).is_some_and(|it| vni(&desired, **id) != Some(it))
    });
    let gone = gone.filter_map(|id| Some((*id, vni(&seen, *id)?)));
    let new = desired.keys().filter(|id| vni(&desired, **id) != vni(&seen, **id));
    let new = new.filter_map(|id| Some((*id, vni(&desired, *id)?)));
    for (kind, networks) in [(RTM_DELLINK, runs(gone)), (RTM_SETLINK, runs(new))] {
        // The kernel takes one range of networks in a message.
        for (first, last, vni) in networks {
            let [i0, i1, i2, i3] = index.0.to_ne_bytes();
            let mut message = batch.message(kind, 0);
            message.fixed(&[AF_BRIDGE, 0, 0, 0, i0, i1, i2, i3, 0, 0, 0, 0, 0, 0, 0, 0]);
            message.nest_unmarked(IFLA_AF_SPEC, |spec| {
                spec.attr_u16(IFLA_BRIDGE_FLAGS, BRIDGE_FLAGS_MASTER);
                let mut put = |flags: u16, id: u16, vni: u32| {
                    spec.nest_unmarked(IFLA_BRIDGE_VLAN_TUNNEL_INFO, |info| {
                        info.attr_u32(IFLA_BRIDGE_VLAN_TUNNEL_ID, vni);
                        info.attr_u16(IFLA_BRIDGE_VLAN_TUNNEL_VID, id);
                        info.attr_u16(IFLA_BRIDGE_VLAN_TUNNEL_FLAGS, flags);
                    });
                };
                if first == last {
                    put(0, first, vni);
                } else {
                    put(BRIDGE_VLAN_INFO_RANGE_BEGIN, first, vni);
                    put(BRIDGE_VLAN_INFO_RANGE_END, last, vni + u32::from(last - first));
                }
            });
            message.finish()?;
        }
    }
    Ok(())
}

/// Ids with their networks as ranges in which both count up: the lowest id, the highest, the lowest network.
fn runs(networks: impl Iterator<Item = (u16, u32)>) -> Vec<(u16, u16, u32)> {
    let mut runs: Vec<(u16, u16, u32)> = Vec::new();
    for (id, vni) in networks {
        match runs.last_mut() {
            Some((first, last, lowest))
                if *last + 1 == id && *lowest + u32::from(id - *first) == vni =>
            {
                *last = id;
            }
            _ => runs.push((id, id, vni)),
        }
    }
    runs
}

fn put_range(spec: &mut MessageWriter<'_>, range: VlanRange) {
    let pvid = if range.flags.pvid { BRIDGE_VLAN_INFO_PVID } else { 0 };
    let untagged = if range.flags.untagged { BRIDGE_VLAN_INFO_UNTAGGED } else { 0 };
    let mut put = |flags: u16, id: u16| {
        let ([f0, f1], [v0, v1]) = ((flags | pvid | untagged).to_ne_bytes(), id.to_ne_bytes());
        spec.attr(IFLA_BRIDGE_VLAN_INFO, &[f0, f1, v0, v1]);
    };
    if range.first == range.last {
        put(0, range.first);
    } else {
        put(BRIDGE_VLAN_INFO_RANGE_BEGIN, range.first);
        put(BRIDGE_VLAN_INFO_RANGE_END, range.last);
    }
}

/// How a document writes VLANs: `[10, "20-30", "40 pvid untagged", "50-60 vni 10050"]`.
#[cfg(feature = "document")]
mod section {
    use homeostat_document::{
        Checker, Definitions, Diagnostic, Json, Node, Shape, Text, Value, ValueError, read_list,
    };
    use serde_json::json;

    use super::{FIRST, LAST, VlanRange, Vlans, parse_range};

    impl Text for VlanRange {
        const WHAT: &'static str = "a VLAN id, or a range of them";

        fn from_text(text: &str) -> Result<Self, ValueError> {
            let wrong = |help: &str| Err(ValueError::is_not(text, Self::WHAT).help(help));
            let Some(range) = parse_range(text) else {
                return wrong(
                    "write such as 10, \"20-30\", \"40 pvid untagged\" or \"50-60 vni 10050\"",
                );
            };
            let (first, last) = (range.first, range.last);
            match () {
                () if first < FIRST || last > LAST => wrong("ids are from 1 to 4094"),
                () if first > last => wrong(&format!("write \"{last}-{first}\"")),
                () if !range.is_possible() && range.flags.vni.is_some() && !range.flags.pvid => {
                    wrong("VXLAN network ids are from 1 to 16777215, also that of the last VLAN")
                }
                () if range.flags.pvid && first != last => {
                    wrong("frames without a tag are of one VLAN: give `pvid` to a single id")
                }
                () => Ok(range),
            }
        }
    }

    /// A list of ids and ranges; a number is an id.
    impl Shape for Vlans {
        fn read(node: &Node, checker: &mut Checker) -> Option<Self> {
            let before = checker.count();
            let mut ranges = Vec::new();
            for item in read_list(node, checker)? {
                let range = match &item.value {
                    Value::Int(id) => homeostat_document::check(
                        VlanRange::from_text(&id.to_string()),
                        item,
                        checker,
                    ),
                    _ => VlanRange::read(item, checker),
                };
                ranges.extend(range);
            }
            if checker.count() != before {
                return None;
            }
            match Vlans::declared(&ranges) {
                Ok(vlans) => Some(vlans),
                Err(error) => {
                    checker.report(Diagnostic::new(node.span, error.to_string()));
                    None
                }
            }
        }

        fn schema(definitions: &mut Definitions) -> Json {
            let id = json!({ "type": "integer", "minimum": FIRST, "maximum": LAST });
            let range = VlanRange::schema(definitions);
            json!({ "type": "array", "items": { "anyOf": [id, range] } })
        }
    }
}

#[cfg(test)]
mod tests {
    use homeostat_netlink::Messages;
    use proptest::prelude::*;

    use super::*;

    fn vlans(texts: &[&str]) -> Vlans {
        texts.iter().map(|text| text.parse::<VlanRange>().unwrap()).collect()
    }

    #[test]
    fn ranges_read_back_from_their_own_text() {
        for text in [
            "1",
            "4094",
            "20-30",
            "10 pvid",
            "10 pvid untagged",
            "2-4094 untagged",
            "10 vni 10010",
            "20-30 untagged vni 16777205",
        ] {
            assert_eq!(text.parse::<VlanRange>().unwrap().to_string(), text);
        }
        for text in
            ["", "0", "4095", "30-20", "1-", "-1", "01", "+1", "1 2", "20-30 pvid", "1 tagged"]
        {
            assert!(text.parse::<VlanRange>().is_err(), "{text}");
        }
        for text in ["1 vni", "1 vni 0", "1 vni x", "20-30 vni 16777206", "1 vni 16777216"] {
            assert!(text.parse::<VlanRange>().is_err(), "{text}");
        }
    }

    #[test]
    fn lists_that_say_the_same_are_equal_and_are_shown_in_the_shortest_form() {
        let list = vlans(&["12", "10-11", "13 untagged", "14 pvid untagged"]);
        assert_eq!(list, vlans(&["14 untagged pvid", "13 untagged", "10-12"]));
        assert_eq!(list.to_string(), "10-12, 13 untagged, 14 pvid untagged");
        let networks = vlans(&["10 vni 100", "11-12 vni 101", "13 vni 103", "14 vni 105", "15"]);
        assert_eq!(networks.to_string(), "10-13 vni 100, 14 vni 105, 15");
        let text = serde_json::to_string(&list).unwrap();
        assert_eq!(text, r#"["10-12","13 untagged","14 pvid untagged"]"#);
        assert_eq!(serde_json::from_str::<Vlans>(&text).unwrap(), list);
    }

    #[test]
    fn a_link_has_each_id_once_and_one_pvid() {
        let declared = |texts: &[&str]| {
            let ranges: Vec<VlanRange> = texts.iter().map(|text| text.parse().unwrap()).collect();
            Vlans::declared(&ranges)
        };
        assert!(declared(&["1-4094"]).is_ok() && declared(&[]).is_ok());
        assert_eq!(declared(&["10", "5-10"]), Err(Impossible::VlanTwice));
        assert_eq!(declared(&["10 pvid", "11 pvid"]), Err(Impossible::TwoPvids));
        let zero = VlanRange::one(0);
        assert_eq!(Vlans::declared(&[zero]), Err(Impossible::VlanId));
    }

    #[test]
    fn a_change_adds_what_differs_and_deletes_what_is_not_declared() {
        let seen = vlans(&["1 pvid untagged", "10-20"]);
        let desired = vlans(&["10 pvid untagged", "11-19", "30"]);
        assert_eq!(desired.unlike(&seen).to_string(), "10 pvid untagged, 30");
        assert_eq!(seen.missing_in(&desired).to_string(), "1 pvid untagged, 20");
        let mut batch = Batch::new();
        change(&mut batch, IfIndex(7), Holder::Port, &seen, &desired).unwrap();
        let kinds: Vec<u16> =
            Messages::new(batch.bytes()).map(|message| message.unwrap().kind).collect();
        assert_eq!(kinds, [RTM_SETLINK, RTM_DELLINK]);
        batch.clear();
        change(&mut batch, IfIndex(7), Holder::Port, &seen, &seen).unwrap();
        assert!(batch.is_empty());
    }

    #[test]
    fn networks_are_written_in_ranges_after_the_vlans_and_deleted_before_others_take_their_place() {
        let seen = vlans(&["10-20 vni 10010", "30"]);
        let desired = vlans(&["10-14 vni 10010", "15 vni 5", "16-20", "30-31 vni 10030"]);
        let mut batch = Batch::new();
        change(&mut batch, IfIndex(7), Holder::Port, &seen, &desired).unwrap();
        let kinds: Vec<u16> =
            Messages::new(batch.bytes()).map(|message| message.unwrap().kind).collect();
        // VLAN 31, the networks of 15-20, then those of 15 and of 30-31.
        assert_eq!(kinds, [RTM_SETLINK, RTM_DELLINK, RTM_SETLINK, RTM_SETLINK]);
    }

    proptest! {
        #[test]
        fn no_message_about_vlans_can_panic(
            attrs in proptest::collection::vec((0u16..5, proptest::collection::vec(any::<u8>(), 0..12)), 0..6),
        ) {
            let mut batch = Batch::new();
            let mut message = batch.message(RTM_GETVLAN, 0);
            message.fixed(&[0; 8]).nest(BRIDGE_VLANDB_ENTRY, |entry| {
                for (kind, value) in &attrs {
                    entry.attr(*kind, value);
                }
            });
            message.finish().unwrap();
            let message = Messages::new(batch.bytes()).next().unwrap().unwrap();
            if let Ok((index, ranges)) = decode(&message) {
                prop_assert_eq!(index, IfIndex(0));
                let vlans: Vlans = ranges.into_iter().collect();
                let again: Vlans = vlans.ranges().iter().copied().collect();
                prop_assert_eq!(again, vlans);
            }
        }
    }
}
