//! What packets of a route are wrapped into: labels of MPLS, or a list of segments of IPv6.

use std::net::Ipv6Addr;

use homeostat_netlink::uapi::{
    LWTUNNEL_ENCAP_MPLS, LWTUNNEL_ENCAP_SEG6, MPLS_IPTUNNEL_DST, MPLS_IPTUNNEL_TTL, RTA_ENCAP,
    RTA_ENCAP_TYPE, SEG6_IPTUN_MODE_ENCAP, SEG6_IPTUN_MODE_ENCAP_RED, SEG6_IPTUN_MODE_INLINE,
    SEG6_IPTUN_MODE_L2ENCAP, SEG6_IPTUN_MODE_L2ENCAP_RED, SEG6_IPTUNNEL_SRH,
};
use homeostat_netlink::{Attr, Malformed, MessageWriter};
use serde::{Deserialize, Serialize};

use crate::builder::Impossible;

/// What packets are wrapped into.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Encap {
    Mpls {
        /// The outermost first.
        #[serde(rename = "mpls")]
        labels: Vec<u32>,
        /// Zero is that of the packet; if left out, the namespace says.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ttl: Option<u8>,
    },
    Seg6 {
        /// In the order in which they are passed.
        #[serde(rename = "seg6")]
        segments: Vec<Ipv6Addr>,
        mode: Seg6Mode,
    },
    /// One that cannot be declared, by the kernel's number.
    Other {
        #[serde(rename = "type")]
        number: u16,
    },
}

macro_rules! seg6_modes {
    ($($(#[$doc:meta])* $mode:ident = $word:literal, $number:ident;)+) => {
        /// How a packet gets its segments.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Seg6Mode {
            $($(#[$doc])* #[serde(rename = $word)] $mode,)+
        }

        impl Seg6Mode {
            fn number(self) -> u32 {
                match self {
                    $(Seg6Mode::$mode => $number,)+
                }
            }

            fn of(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Seg6Mode::$mode),)+
                    _ => None,
                }
            }
        }

        #[cfg(feature = "document")]
        homeostat_document::word_values! { Seg6Mode, "a way to add segments": $($word = Seg6Mode::$mode),+ }
    };
}

seg6_modes! {
    /// In an IPv6 packet around it.
    #[default] Encap = "encap", SEG6_IPTUN_MODE_ENCAP;
    /// In the packet itself, which is of IPv6.
    Inline = "inline", SEG6_IPTUN_MODE_INLINE;
    /// In an IPv6 packet around the frame.
    L2Encap = "l2encap", SEG6_IPTUN_MODE_L2ENCAP;
    /// As `encap`, without the first segment in the list.
    EncapRed = "encap.red", SEG6_IPTUN_MODE_ENCAP_RED;
    /// As `l2encap`, likewise.
    L2EncapRed = "l2encap.red", SEG6_IPTUN_MODE_L2ENCAP_RED;
}

/// Labels have 20 bits.
const MOST_LABEL: u32 = (1 << 20) - 1;
/// It stands for no label at all.
const IMPLICIT_NULL: u32 = 3;
/// The kernel takes no more.
const MOST_LABELS: usize = 30;
/// The header counts its length in one byte, and `inline` adds the destination.
const MOST_SEGMENTS: usize = 126;
/// Of a routing header: its type, and the part before its segments.
const SRH_TYPE: u8 = 4;
const SRH_LEN: usize = 8;

impl Encap {
    /// Refuses what can never be.
    pub(crate) fn check(&self, is_v6: bool) -> Result<(), Impossible> {
        let is_label = |label: &u32| *label <= MOST_LABEL && *label != IMPLICIT_NULL;
        match self {
            Encap::Mpls { labels, .. } => {
                let is_fine =
                    (1..=MOST_LABELS).contains(&labels.len()) && labels.iter().all(is_label);
                is_fine.then_some(()).ok_or(Impossible::MplsLabels)
            }
            Encap::Seg6 { segments, .. } if !(1..=MOST_SEGMENTS).contains(&segments.len()) => {
                Err(Impossible::Segments)
            }
            Encap::Seg6 { mode: Seg6Mode::Inline, .. } if !is_v6 => Err(Impossible::InlineOnIpv4),
            Encap::Seg6 { .. } => Ok(()),
            Encap::Other { .. } => Err(Impossible::OtherEncap),
        }
    }

    /// How many bytes its attributes take.
    pub(crate) fn len(&self) -> u16 {
        let inside = match self {
            Encap::Mpls { labels, ttl } => 4 + 4 * labels.len() + ttl.map_or(0, |_| 8),
            Encap::Seg6 { segments, mode } => {
                let room = usize::from(*mode == Seg6Mode::Inline);
                4 + 4 + SRH_LEN + 16 * (segments.len() + room)
            }
            Encap::Other { .. } => return 0,
        };
        // The attribute around it, and the one of the type.
        u16::try_from(4 + inside + 8).unwrap_or(u16::MAX)
    }

    /// Writes it into a route, or into one of its ways.
    pub(crate) fn put(&self, message: &mut MessageWriter<'_>) {
        let number = match self {
            Encap::Mpls { labels, ttl } => {
                message.nest_unmarked(RTA_ENCAP, |encap| {
                    encap.attr(MPLS_IPTUNNEL_DST, &stack(labels));
                    ttl.map(|ttl| encap.attr_u8(MPLS_IPTUNNEL_TTL, ttl));
                });
                LWTUNNEL_ENCAP_MPLS
            }
            Encap::Seg6 { segments, mode } => {
                message.nest_unmarked(RTA_ENCAP, |encap| {
                    encap.attr(SEG6_IPTUNNEL_SRH, &routing_header(segments, *mode));
                });
                LWTUNNEL_ENCAP_SEG6
            }
            Encap::Other { .. } => return,
        };
        message.attr_u16(RTA_ENCAP_TYPE, number);
    }
}

/// Reads what the two attributes of a route say. They come in any order.
#[derive(Default)]
pub(crate) struct SeenEncap<'a> {
    kind: Option<u16>,
    inside: Option<Attr<'a>>,
}

impl<'a> SeenEncap<'a> {
    /// Takes one of them; nothing happens with any other attribute.
    pub(crate) fn take(&mut self, attr: &Attr<'a>) -> Result<(), Malformed> {
        match attr.kind {
            RTA_ENCAP_TYPE => self.kind = Some(attr.u16()?),
            RTA_ENCAP => self.inside = Some(*attr),
            _ => {}
        }
        Ok(())
    }

    pub(crate) fn read(self) -> Result<Option<Encap>, Malformed> {
        let Some(number) = self.kind.filter(|kind| *kind != 0) else { return Ok(None) };
        let read = match (number, &self.inside) {
            (LWTUNNEL_ENCAP_MPLS, Some(inside)) => mpls(inside)?,
            (LWTUNNEL_ENCAP_SEG6, Some(inside)) => {
                inside.attrs().first(SEG6_IPTUNNEL_SRH)?.and_then(|srh| seg6(srh.value))
            }
            _ => None,
        };
        Ok(Some(read.unwrap_or(Encap::Other { number })))
    }
}

/// Labels as they are in packets: 20 bits, three for classes, one that says which is the last, and a TTL.
fn stack(labels: &[u32]) -> Vec<u8> {
    let last = labels.len().saturating_sub(1);
    let entries = labels.iter().enumerate();
    entries
        .flat_map(|(at, label)| (label << 12 | u32::from(at == last) << 8).to_be_bytes())
        .collect()
}

fn mpls(inside: &Attr<'_>) -> Result<Option<Encap>, Malformed> {
    let Some(stack) = inside.attrs().first(MPLS_IPTUNNEL_DST)? else { return Ok(None) };
    let ttl = inside.attrs().first(MPLS_IPTUNNEL_TTL)?.map(|ttl| ttl.u8()).transpose()?;
    let entries = stack.value.as_chunks::<4>().0.iter();
    let labels = entries.map(|entry| u32::from_be_bytes(*entry) >> 12).collect();
    Ok(Some(Encap::Mpls { labels, ttl }))
}

/// The mode, and a routing header with the last segment first. With `inline` the destination of the packet becomes the
/// last segment, and its place stays empty here.
fn routing_header(segments: &[Ipv6Addr], mode: Seg6Mode) -> Vec<u8> {
    let room = (mode == Seg6Mode::Inline).then_some(Ipv6Addr::UNSPECIFIED);
    let listed: Vec<Ipv6Addr> = room.into_iter().chain(segments.iter().rev().copied()).collect();
    let eighths = u8::try_from(2 * listed.len()).unwrap_or(u8::MAX);
    let last = u8::try_from(listed.len().saturating_sub(1)).unwrap_or(u8::MAX);
    let mut bytes = mode.number().to_ne_bytes().to_vec();
    bytes.extend([0, eighths, SRH_TYPE, last, last, 0, 0, 0]);
    bytes.extend(listed.iter().flat_map(Ipv6Addr::octets));
    bytes
}

/// None for a header with more in it than segments.
fn seg6(value: &[u8]) -> Option<Encap> {
    let (mode, header) = value.split_first_chunk::<4>()?;
    let mode = Seg6Mode::of(u32::from_ne_bytes(*mode))?;
    let (start, listed) = header.split_at_checked(SRH_LEN)?;
    let [_, eighths, SRH_TYPE, left, last, 0, 0, 0] = *start else { return None };
    let (listed, rest) = listed.as_chunks::<16>();
    let is_plain = left == last && rest.is_empty() && usize::from(eighths) == 2 * listed.len();
    let is_plain = is_plain && usize::from(last) + 1 == listed.len();
    let segments = listed.iter().rev().map(|octets| Ipv6Addr::from(*octets));
    let count = listed.len().checked_sub(usize::from(mode == Seg6Mode::Inline))?;
    is_plain.then(|| Encap::Seg6 { segments: segments.take(count).collect(), mode })
}

/// How a document writes it: `encap = { mpls = [100, 200] }`.
#[cfg(feature = "document")]
mod section {
    use std::net::Ipv6Addr;

    use homeostat_document::{
        Checker, Definitions, Diagnostic, Fields, Json, Node, Number, Record, Shape, Text,
        ValueError,
    };

    use super::{Encap, MOST_LABEL, Seg6Mode};

    homeostat_document::record!(Encap);

    impl Record for Encap {
        const NAME: &'static str = "encapsulation";
        const DOC: &'static str = "What packets of a route are wrapped into";

        fn read(fields: &mut Fields<'_>) -> Option<Self> {
            let labels: Option<Vec<Label>> =
                fields.optional("mpls", "Labels of MPLS, the outermost first");
            let ttl = Number { what: "a time to live", least: 0, most: u8::MAX };
            let ttl = fields.number("ttl", "TTL of the labels; 0 is that of the packet", ttl);
            let segments: Option<Vec<Segment>> =
                fields.optional("seg6", "IPv6 addresses of segments that packets pass, in order");
            let mode: Option<Seg6Mode> =
                fields.optional("mode", "How a packet gets its segments; `encap` if left out");
            fields.exclusive("mpls", "seg6");
            fields.exclusive("mpls", "mode");
            fields.exclusive("seg6", "ttl");
            if fields.lacks(&["mpls", "seg6"]) {
                let message = "it says nothing of what packets are wrapped into";
                let nothing = Diagnostic::new(fields.span(), message);
                fields.report(nothing.help("write `mpls = [100]` or `seg6 = [\"2001:db8::1\"]`"));
            }
            match (labels, segments) {
                (Some(labels), _) => {
                    let labels = labels.into_iter().map(|Label(label)| label).collect();
                    Some(Encap::Mpls { labels, ttl })
                }
                (None, Some(segments)) => {
                    let segments = segments.into_iter().map(|Segment(segment)| segment).collect();
                    Some(Encap::Seg6 { segments, mode: mode.unwrap_or_default() })
                }
                (None, None) => None,
            }
        }
    }

    struct Segment(Ipv6Addr);

    impl Text for Segment {
        const WHAT: &'static str = "an IPv6 address";

        fn from_text(text: &str) -> Result<Self, ValueError> {
            text.parse().map(Segment).map_err(|_| ValueError::is_not(text, Self::WHAT))
        }
    }

    struct Label(u32);

    const LABEL: Number<u32> = Number { what: "a label of MPLS", least: 0, most: MOST_LABEL };

    impl Shape for Label {
        fn read(node: &Node, checker: &mut Checker) -> Option<Self> {
            LABEL.read(node, checker).map(Label)
        }

        fn schema(_: &mut Definitions) -> Json {
            LABEL.schema()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments(count: u16) -> Vec<Ipv6Addr> {
        (1..=count).map(|last| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last)).collect()
    }

    /// As `ip -6 route add 2001:db8::/32 encap seg6 mode encap segs fd00::1,fd00::2 dev va` sends it.
    #[test]
    fn a_routing_header_has_the_last_segment_first() {
        let bytes = routing_header(&segments(2), Seg6Mode::Encap);
        assert_eq!(bytes[4..12], [0, 4, 4, 1, 1, 0, 0, 0]);
        assert_eq!((bytes[27], bytes[43], bytes.len()), (2, 1, 44));
        let bytes = routing_header(&segments(1), Seg6Mode::Inline);
        assert_eq!(bytes[4..12], [0, 4, 4, 1, 1, 0, 0, 0]);
        assert_eq!((bytes[27], bytes[43]), (0, 1), "the first place is the destination's");
    }

    #[test]
    fn a_routing_header_reads_back_and_one_with_more_in_it_is_another_encapsulation() {
        for mode in [Seg6Mode::Encap, Seg6Mode::Inline, Seg6Mode::L2EncapRed] {
            for count in [1, 3, 126] {
                let read = seg6(&routing_header(&segments(count), mode));
                assert_eq!(read, Some(Encap::Seg6 { segments: segments(count), mode }));
            }
        }
        let mut tagged = routing_header(&segments(2), Seg6Mode::Encap);
        tagged[11] = 7;
        assert_eq!(seg6(&tagged), None);
        let mut long = routing_header(&segments(2), Seg6Mode::Encap);
        long.extend([0; 8]);
        assert_eq!(seg6(&long), None);
        assert_eq!(seg6(&[]), None);
    }

    #[test]
    fn the_last_label_says_that_it_is_the_last() {
        assert_eq!(stack(&[100, 200]), [0, 6, 0x40, 0, 0, 0x0c, 0x81, 0]);
    }

    #[test]
    fn what_can_never_be_is_refused() {
        let mpls = |labels: &[u32]| Encap::Mpls { labels: labels.to_vec(), ttl: None };
        let seg6 = |count, mode| Encap::Seg6 { segments: segments(count), mode };
        for (encap, is_v6, is_fine) in [
            (mpls(&[16, 1_048_575]), false, true),
            (mpls(&[]), false, false),
            (mpls(&[3]), false, false),
            (mpls(&[1_048_576]), false, false),
            (mpls(&[16; 31]), false, false),
            (seg6(1, Seg6Mode::Encap), false, true),
            (seg6(0, Seg6Mode::Encap), true, false),
            (seg6(127, Seg6Mode::Encap), true, false),
            (seg6(1, Seg6Mode::Inline), true, true),
            (seg6(1, Seg6Mode::Inline), false, false),
            (Encap::Other { number: 3 }, true, false),
        ] {
            assert_eq!(encap.check(is_v6).is_ok(), is_fine, "{encap:?}");
        }
    }

    #[test]
    fn what_is_recorded_reads_back() {
        for encap in [
            Encap::Mpls { labels: vec![16], ttl: Some(0) },
            Encap::Seg6 { segments: segments(2), mode: Seg6Mode::EncapRed },
            Encap::Other { number: 7 },
        ] {
            let text = serde_json::to_string(&encap).unwrap();
            assert_eq!(serde_json::from_str::<Encap>(&text).unwrap(), encap, "{text}");
        }
    }
}
