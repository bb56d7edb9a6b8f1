//! What few routes have: what TCP is told about the path, a preference among routers, an end, an encapsulation. It is kept
//! apart, so that a route without any of it stays small.

use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::LazyLock;

use homeostat_netlink::uapi::{
    RTAX_ADVMSS, RTAX_CC_ALGO, RTAX_CWND, RTAX_FASTOPEN_NO_COOKIE, RTAX_FEATURE_ECN, RTAX_FEATURES,
    RTAX_HOPLIMIT, RTAX_INITCWND, RTAX_INITRWND, RTAX_LOCK, RTAX_MTU, RTAX_QUICKACK,
    RTAX_REORDERING, RTAX_RTO_MIN, RTAX_SSTHRESH, RTAX_WINDOW,
};
use homeostat_netlink::{Attr, Malformed, MessageWriter};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::builder::Impossible;
use crate::link::LinkName;
use crate::link::kinds::options::{AttrValue, OptionTable as _, named_values, options};
use crate::route::encap::Encap;

/// Attributes that few routes have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RareAttributes {
    #[serde(flatten)]
    pub metrics: PathMetrics,
    /// Which of several IPv6 routers is preferred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pref: Option<Preference>,
    /// In so many seconds the kernel deletes it; IPv6 only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u32>,
    /// What its packets are wrapped into.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encap: Option<Encap>,
    /// The link whose gateway it follows: that of the default route that another has put there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway_of: Option<LinkName>,
}

options! {
    /// What is known about the path of a route, beside its MTU.
    #[derive(Hash)]
    PathMetrics [] {
        mtu_lock: Bit<{ 1 << RTAX_MTU }> = "mtu-lock", "Take the MTU as it is, whatever the path says" as bool => RTAX_LOCK;
        advmss: u32 = "advmss", "Largest segment that TCP tells the other end to send", ("a segment size in bytes", 1..=65_495) => RTAX_ADVMSS;
        window: u32 = "window", "Largest window that TCP tells the other end", ("a window in bytes", 1..=u32::MAX) => RTAX_WINDOW;
        initcwnd: u32 = "initcwnd", "Segments that TCP sends at first without an answer", ("a number of segments", 1..=u32::MAX) => RTAX_INITCWND;
        initrwnd: u32 = "initrwnd", "Segments that TCP lets the other end send at first", ("a number of segments", 1..=u32::MAX) => RTAX_INITRWND;
        cwnd: u32 = "cwnd", "Most segments that TCP has on their way", ("a number of segments", 1..=u32::MAX) => RTAX_CWND;
        ssthresh: u32 = "ssthresh", "Segments at which TCP ends its slow start", ("a number of segments", 1..=u32::MAX) => RTAX_SSTHRESH;
        reordering: u32 = "reordering", "Segments out of order that are no loss yet", ("a number of segments", 1..=u32::MAX) => RTAX_REORDERING;
        hoplimit: u32 = "hoplimit", "Hops that packets may take", ("a hop limit", 1..=255) => RTAX_HOPLIMIT;
        rto_min: Millis = "rto-min", "Least time until TCP sends a segment again" => RTAX_RTO_MIN;
        quickack: Bit<1> = "quickack", "Have TCP answer every segment at once" as bool => RTAX_QUICKACK;
        ecn: Bit<{ RTAX_FEATURE_ECN }> = "ecn", "Have TCP ask for congestion marks" as bool => RTAX_FEATURES;
        fastopen_no_cookie: Bit<1> = "fastopen-no-cookie", "Send data with the first packet of TCP, without a cookie" as bool => RTAX_FASTOPEN_NO_COOKIE;
        congctl: String = "congctl", "How TCP avoids congestion" => RTAX_CC_ALGO;
    }
}

/// A switch in a number of the kernel, by its bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bit<const MASK: u32>(pub bool);

impl<const MASK: u32> From<bool> for Bit<MASK> {
    fn from(on: bool) -> Self {
        Bit(on)
    }
}

impl<const MASK: u32> AttrValue for Bit<MASK> {
    fn put(&self, data: &mut MessageWriter<'_>, kind: u16) {
        if self.0 {
            data.attr_u32(kind, MASK);
        }
    }

    fn read(attr: &Attr<'_>) -> Result<Option<Self>, Malformed> {
        Ok(Some(Bit(attr.u32()? & MASK != 0)))
    }
}

/// Whole milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub u32);

impl AttrValue for Millis {
    fn put(&self, data: &mut MessageWriter<'_>, kind: u16) {
        data.attr_u32(kind, self.0);
    }

    fn read(attr: &Attr<'_>) -> Result<Option<Self>, Malformed> {
        Ok(Some(Millis(attr.u32()?)))
    }
}

named_values! {
    /// Which of several IPv6 routers is preferred.
    #[derive(Hash)]
    Preference(u8), "a preference":
        Low = "low", 3;
        Medium = "medium", 0;
        High = "high", 1;
}

/// The rare attributes of a route, mostly none. `RareAttributes { .. }.into()` makes one.
#[derive(Clone, Debug, Default)]
pub struct Rare(Option<Box<RareAttributes>>);

static NONE: LazyLock<RareAttributes> = LazyLock::new(RareAttributes::default);

impl Rare {
    /// Makes room for one.
    pub(crate) fn edit(&mut self) -> &mut RareAttributes {
        self.0.get_or_insert_default()
    }

    fn is_none(&self) -> bool {
        self.0.as_deref().is_none_or(|rare| *rare == *NONE)
    }
}

impl Deref for Rare {
    type Target = RareAttributes;

    fn deref(&self) -> &RareAttributes {
        self.0.as_deref().unwrap_or(&NONE)
    }
}

impl From<RareAttributes> for Rare {
    fn from(rare: RareAttributes) -> Self {
        Rare((rare != *NONE).then(|| Box::new(rare)))
    }
}

impl PartialEq for Rare {
    fn eq(&self, other: &Self) -> bool {
        (self.0.is_none() && other.0.is_none()) || **self == **other
    }
}

impl Eq for Rare {}

impl Hash for Rare {
    fn hash<H: Hasher>(&self, state: &mut H) {
        if !self.is_none() {
            (**self).hash(state);
        }
    }
}

impl Serialize for Rare {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Rare {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        RareAttributes::deserialize(deserializer).map(Rare::from)
    }
}

/// The kernel's names of ways to avoid congestion have fewer bytes.
const LONGEST_CONGCTL: usize = 16;

/// The kernel counts down in hundredths of a second.
pub(crate) const LONGEST_EXPIRES: u32 = i32::MAX.unsigned_abs() / 100;

impl RareAttributes {
    /// Refuses what can never be.
    pub(crate) fn check(&self, is_v6: bool) -> Result<(), Impossible> {
        let is_name = |name: &str| {
            (1..LONGEST_CONGCTL).contains(&name.len())
                && name.bytes().all(|byte| byte.is_ascii_graphic())
        };
        match self {
            _ if !is_v6 && self.pref.is_some() => Err(Impossible::PrefOnIpv4),
            _ if !is_v6 && self.expires.is_some() => Err(Impossible::ExpiresOnIpv4),
            _ if self.expires.is_some_and(|left| !(1..=LONGEST_EXPIRES).contains(&left)) => {
                Err(Impossible::Expires)
            }
            _ if self.metrics.congctl.as_deref().is_some_and(|name| !is_name(name)) => {
                Err(Impossible::CongestionControl)
            }
            _ => self.encap.as_ref().map_or(Ok(()), |encap| encap.check(is_v6)),
        }
    }

    /// Whether what is declared is there. Where the packets go does not belong to it: an encapsulation is compared by
    /// the caller.
    pub(crate) fn agree(&self, seen: &Self) -> bool {
        self == &*NONE
            || self.metrics.is_alike(&seen.metrics.spelled_out())
                && self.pref.is_none_or(|pref| pref == seen.pref.unwrap_or(Preference::Medium))
                && self.expires.is_none_or(|most| runs_down(most, seen.expires))
    }
}

impl PathMetrics {
    /// What is not said of a switch is that it is off.
    fn spelled_out(&self) -> Self {
        let mut metrics = self.clone();
        metrics.mtu_lock.get_or_insert_default();
        metrics.quickack.get_or_insert_default();
        metrics.ecn.get_or_insert_default();
        metrics.fastopen_no_cookie.get_or_insert_default();
        metrics
    }
}

/// Whether a route goes in this time or earlier, and not just now.
fn runs_down(most: u32, seen: Option<u32>) -> bool {
    seen.is_some_and(|left| (1..=most).contains(&left))
}

/// The seconds that a route still has, in the kernel's `rta_cacheinfo`; none, if it stays for ever. Zero is one whose
/// time is over and that the kernel deletes soon.
pub(crate) fn expires(attr: &Attr<'_>) -> Option<u32> {
    let left = i32::from_ne_bytes(*attr.value.get(8..12)?.first_chunk()?);
    (left != 0).then(|| u32::try_from(left).map_or(0, |left| left.div_ceil(100)))
}

/// How a document writes them.
#[cfg(feature = "document")]
mod section {
    use homeostat_document::{Fields, Period, Text, ValueError};

    use super::{LONGEST_EXPIRES, Millis, PathMetrics, RareAttributes};
    use crate::link::kinds::options::OptionTable as _;

    /// The words that only routes with a way of their own have.
    pub(crate) const WORDS: [&str; 18] = [
        "mtu-lock",
        "advmss",
        "window",
        "initcwnd",
        "initrwnd",
        "cwnd",
        "ssthresh",
        "reordering",
        "hoplimit",
        "rto-min",
        "quickack",
        "ecn",
        "fastopen-no-cookie",
        "congctl",
        "pref",
        "expires",
        "encap",
        "gateway-of",
    ];

    pub(crate) fn read(fields: &mut Fields<'_>) -> RareAttributes {
        let metrics = PathMetrics::read(fields).unwrap_or_default();
        let pref = fields.optional("pref", "Which of several IPv6 routers is preferred");
        let expires: Option<Expires> =
            fields.optional("expires", "The time until the kernel deletes it; IPv6 only");
        let encap = fields.optional("encap", "What its packets are wrapped into");
        let gateway_of = fields.optional(
            "gateway-of",
            "The link whose gateway it takes, as a lease or a router brought it, instead of `via`",
        );
        let expires = expires.map(|Expires(seconds)| seconds);
        RareAttributes { metrics, pref, expires, encap, gateway_of }
    }

    struct Expires(u32);

    impl Text for Expires {
        const WHAT: &'static str = Period::WHAT;

        fn from_text(text: &str) -> Result<Self, ValueError> {
            let period: Period = text.parse()?;
            let seconds = u32::try_from(period.get().as_millis().div_ceil(1000));
            let seconds = seconds.ok().filter(|seconds| (1..=LONGEST_EXPIRES).contains(seconds));
            seconds.map(Expires).ok_or_else(|| {
                ValueError::is_not(text, "a time that the kernel counts down")
                    .help("it has at most 248 days")
            })
        }
    }

    impl Text for Millis {
        const WHAT: &'static str = Period::WHAT;

        fn from_text(text: &str) -> Result<Self, ValueError> {
            let period: Period = text.parse()?;
            let millis = u32::try_from(period.get().as_millis()).ok().filter(|millis| *millis > 0);
            millis.map(Millis).ok_or_else(|| {
                ValueError::is_not(text, "a time to send again")
                    .help("it has at least a millisecond, such as \"200ms\"")
            })
        }
    }
}

#[cfg(feature = "document")]
pub(crate) use section::{WORDS, read};

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rare(fields: serde_json::Value) -> RareAttributes {
        serde_json::from_value(fields).unwrap()
    }

    #[test]
    fn only_what_is_declared_counts_and_a_countdown_is_no_drift() {
        let seen = rare(json!({ "advmss": 1400, "quickack": true, "expires": 50, "pref": "high" }));
        for (desired, agrees) in [
            (json!({}), true),
            (json!({ "advmss": 1400, "quickack": true }), true),
            (json!({ "advmss": 1401 }), false),
            (json!({ "initcwnd": 10 }), false),
            (json!({ "quickack": false }), false),
            (json!({ "ecn": false, "mtu-lock": false }), true),
            (json!({ "expires": 50 }), true),
            (json!({ "expires": 3600 }), true),
            (json!({ "expires": 49 }), false),
            (json!({ "pref": "high" }), true),
            (json!({ "pref": "medium" }), false),
        ] {
            assert_eq!(rare(desired.clone()).agree(&seen), agrees, "{desired}");
        }
        assert!(rare(json!({ "pref": "medium" })).agree(&RareAttributes::default()));
        assert!(!rare(json!({ "expires": 60 })).agree(&RareAttributes::default()));
        assert!(!rare(json!({ "expires": 60 })).agree(&rare(json!({ "expires": 0 }))), "over");
    }

    #[test]
    fn a_route_without_any_of_it_has_none_of_it_however_it_was_made() {
        let (empty, mut edited) = (Rare::from(RareAttributes::default()), Rare::default());
        edited.edit().pref = None;
        assert!(empty == edited && empty.0.is_none());
        let read: Rare = serde_json::from_value(json!({})).unwrap();
        assert!(read.0.is_none());
        assert_eq!(serde_json::to_value(&edited).unwrap(), json!({}));
    }

    #[cfg(feature = "document")]
    #[test]
    fn every_attribute_is_in_the_list_of_words() {
        let full = json!({
            "mtu-lock": true, "advmss": 1, "window": 1, "initcwnd": 1, "initrwnd": 1, "cwnd": 1,
            "ssthresh": 1, "reordering": 1, "hoplimit": 1, "rto-min": 1, "quickack": true,
            "ecn": true, "fastopen-no-cookie": true, "congctl": "reno", "pref": "low",
            "expires": 1, "encap": { "mpls": [16] }, "gateway-of": "eth0",
        });
        let shown = serde_json::to_value(rare(full)).unwrap();
        let mut names: Vec<&str> = shown.as_object().unwrap().keys().map(String::as_str).collect();
        let mut words = WORDS.to_vec();
        words.sort_unstable();
        names.sort_unstable();
        assert_eq!(names, words);
    }
}
