//! The networks that a VXLAN with several takes part in (`bridge vni`). A declared list is the whole list.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use homeostat_netlink::uapi::{
    RTM_DELTUNNEL, RTM_GETTUNNEL, RTM_NEWTUNNEL, VXLAN_VNIFILTER_ENTRY, VXLAN_VNIFILTER_ENTRY_END,
    VXLAN_VNIFILTER_ENTRY_START,
};
use homeostat_netlink::{Attr, Batch, Connection, Error, Malformed, Message, MessageWriter};
use serde::{Deserialize, Serialize};

use crate::fdb::AF_BRIDGE;
use crate::link::IfIndex;
use crate::link::kinds::options::AttrValue;
use crate::number::{ParseError, serde_as_text};
use crate::observe::collect;

/// The highest number of a network.
const LAST: u32 = 0x00ff_ffff;

/// Neighbouring networks: `10010`, `10020-10030`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VniRange {
    /// The lowest number.
    pub first: u32,
    /// The highest one, which is the same for one network.
    pub last: u32,
}

impl VniRange {
    fn is_possible(self) -> bool {
        1 <= self.first && self.first <= self.last && self.last <= LAST
    }
}

impl fmt::Display for VniRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first)?;
        if self.last == self.first { Ok(()) } else { write!(f, "-{}", self.last) }
    }
}

impl FromStr for VniRange {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let is = "no VXLAN network id or range such as `10010` or `10020-10030`";
        ParseError::unless(parse(text).filter(|range| range.is_possible()), text, is)
    }
}

serde_as_text!(VniRange);

fn parse(text: &str) -> Option<VniRange> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let is_plain = |text: &str| text == "0" || !text.starts_with(['0', '+']);
    let number = |text: &str| text.parse().ok().filter(|_| is_plain(text));
    Some(VniRange { first: number(first)?, last: number(last)? })
}

/// All networks of a VXLAN, in its shortest form.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<VniRange>")]
pub struct Vnis(Vec<VniRange>);

impl From<Vec<VniRange>> for Vnis {
    fn from(mut ranges: Vec<VniRange>) -> Self {
        ranges.sort_by_key(|range| (range.first, range.last));
        let mut merged: Vec<VniRange> = Vec::new();
        for range in ranges {
            match merged.last_mut().filter(|last| range.first <= last.last.saturating_add(1)) {
                Some(last) => last.last = last.last.max(range.last),
                None => merged.push(range),
            }
        }
        Vnis(merged)
    }
}

impl Vnis {
    fn numbers(&self) -> BTreeSet<u32> {
        self.0.iter().flat_map(|range| range.first..=range.last).collect()
    }

    fn without(&self, other: &Vnis) -> Vnis {
        let one = |number: &u32| VniRange { first: *number, last: *number };
        self.numbers().difference(&other.numbers()).map(one).collect::<Vec<_>>().into()
    }
}

/// The kernel has them in messages of their own, and says with the link only that there may be some.
impl AttrValue for Vnis {
    fn put(&self, _data: &mut MessageWriter<'_>, _kind: u16) {}

    fn read(attr: &Attr<'_>) -> Result<Option<Self>, Malformed> {
        Ok((attr.u8()? != 0).then(Vnis::default))
    }
}

/// The networks of a link.
pub(crate) fn read(connection: &mut Connection, index: IfIndex) -> Result<Vnis, Error> {
    let [i0, i1, i2, i3] = index.0.to_ne_bytes();
    let fixed = [AF_BRIDGE, 0, 0, 0, i0, i1, i2, i3];
    let found = collect(connection, RTM_GETTUNNEL, &fixed, |message| decode(message).map(Some))?;
    Ok(found.into_iter().flatten().collect::<Vec<_>>().into())
}

fn decode(message: &Message<'_>) -> Result<Vec<VniRange>, Malformed> {
    let (_, attrs) = message.split::<8>()?;
    let mut ranges = Vec::new();
    for attr in attrs {
        let attr = attr?;
        if attr.kind != VXLAN_VNIFILTER_ENTRY {
            continue;
        }
        let Some(first) = attr.attrs().first(VXLAN_VNIFILTER_ENTRY_START)? else { continue };
        let first = first.u32()?;
        let last = attr.attrs().first(VXLAN_VNIFILTER_ENTRY_END)?;
        ranges.push(VniRange { first, last: last.map_or(Ok(first), |last| last.u32())? });
    }
    Ok(ranges)
}

/// The link whose networks an event is about.
pub(crate) fn of_event(message: &Message<'_>) -> Result<IfIndex, Malformed> {
    let ([_, _, _, _, i0, i1, i2, i3], _) = message.split::<8>()?;
    Ok(IfIndex(u32::from_ne_bytes([*i0, *i1, *i2, *i3])))
}

/// Makes the networks of a link those that are declared.
pub(crate) fn change(
    batch: &mut Batch,
    index: IfIndex,
    seen: &Vnis,
    desired: &Vnis,
) -> Result<(), Error> {
    for (kind, vnis) in
        [(RTM_NEWTUNNEL, desired.without(seen)), (RTM_DELTUNNEL, seen.without(desired))]
    {
        for range in vnis.0 {
            let [i0, i1, i2, i3] = index.0.to_ne_bytes();
            let mut message = batch.message(kind, 0);
            message.fixed(&[AF_BRIDGE, 0, 0, 0, i0, i1, i2, i3]);
            message.nest(VXLAN_VNIFILTER_ENTRY, |entry| {
                entry.attr_u32(VXLAN_VNIFILTER_ENTRY_START, range.first);
                entry.attr_u32(VXLAN_VNIFILTER_ENTRY_END, range.last);
            });
            message.finish()?;
        }
    }
    Ok(())
}

/// How a document writes them: `[10010, "10020-10030"]`.
#[cfg(feature = "document")]
mod section {
    use homeostat_document::{
        Checker, Definitions, Json, Node, Shape, Text, Value, ValueError, read_list,
    };
    use serde_json::json;

    use super::{LAST, VniRange, Vnis, parse};

    impl Text for VniRange {
        const WHAT: &'static str = "a VXLAN network id, or a range of them";

        fn from_text(text: &str) -> Result<Self, ValueError> {
            match parse(text) {
                Some(range) if range.is_possible() => Ok(range),
                _ => {
                    let error = ValueError::is_not(text, Self::WHAT);
                    Err(error.help("write such as 10010 or \"10020-10030\", from 1 to 16777215"))
                }
            }
        }
    }

    /// A list of ids and ranges; a number is an id.
    impl Shape for Vnis {
        fn read(node: &Node, checker: &mut Checker) -> Option<Self> {
            let before = checker.count();
            let mut ranges = Vec::new();
            for item in read_list(node, checker)? {
                let range = match &item.value {
                    Value::Int(id) => homeostat_document::check(
                        VniRange::from_text(&id.to_string()),
                        item,
                        checker,
                    ),
                    _ => VniRange::read(item, checker),
                };
                ranges.extend(range);
            }
            (checker.count() == before).then(|| ranges.into())
        }

        fn schema(definitions: &mut Definitions) -> Json {
            let id = json!({ "type": "integer", "minimum": 1, "maximum": LAST });
            let range = VniRange::schema(definitions);
            json!({ "type": "array", "items": { "anyOf": [id, range] } })
        }
    }
}

#[cfg(test)]
mod tests {
    use homeostat_netlink::Messages;

    use super::*;

    fn vnis(texts: &[&str]) -> Vnis {
        texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<VniRange>>().into()
    }

    #[test]
    fn lists_are_shown_in_their_shortest_form_and_impossible_ones_are_refused() {
        let list = vnis(&["30", "12-20", "10-11", "15-21"]);
        assert_eq!(serde_json::to_string(&list).unwrap(), r#"["10-21","30"]"#);
        assert_eq!(serde_json::from_str::<Vnis>(r#"["30","10-21"]"#).unwrap(), list);
        for text in ["", "0", "x", "3-2", "16777216", "01", "1-"] {
            assert!(text.parse::<VniRange>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_change_adds_and_deletes_what_differs_and_reads_back() {
        let (seen, desired) = (vnis(&["10-20", "30"]), vnis(&["15-25"]));
        let mut batch = Batch::new();
        change(&mut batch, IfIndex(7), &seen, &desired).unwrap();
        let messages = Messages::new(batch.bytes()).map(Result::unwrap);
        let told: Vec<_> =
            messages.map(|message| (message.kind, Vnis::from(decode(&message).unwrap()))).collect();
        let expected = [
            (RTM_NEWTUNNEL, vnis(&["21-25"])),
            (RTM_DELTUNNEL, vnis(&["10-14"])),
            (RTM_DELTUNNEL, vnis(&["30"])),
        ];
        assert_eq!(told, expected);
    }
}
