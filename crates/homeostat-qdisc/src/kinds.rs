//! The kinds of qdiscs, a table each: what their options are called, and how the kernel's messages have them. Pure.
//!
//! An option is one line. Kinds whose options are attributes need no more; `wire` has those whose options are structs.

use std::collections::BTreeMap;

use homeostat_netlink::uapi::{
    CAKE_ACK_AGGRESSIVE, CAKE_ACK_FILTER, CAKE_ACK_NONE, CAKE_ATM_ATM, CAKE_ATM_NONE, CAKE_ATM_PTM,
    CAKE_DIFFSERV_BESTEFFORT, CAKE_DIFFSERV_DIFFSERV3, CAKE_DIFFSERV_DIFFSERV4,
    CAKE_DIFFSERV_DIFFSERV8, CAKE_DIFFSERV_PRECEDENCE, CAKE_FLOW_DST_IP, CAKE_FLOW_DUAL_DST,
    CAKE_FLOW_DUAL_SRC, CAKE_FLOW_FLOWS, CAKE_FLOW_HOSTS, CAKE_FLOW_NONE, CAKE_FLOW_SRC_IP,
    CAKE_FLOW_TRIPLE, TCA_CAKE_ACK_FILTER, TCA_CAKE_ATM, TCA_CAKE_AUTORATE, TCA_CAKE_BASE_RATE64,
    TCA_CAKE_DIFFSERV_MODE, TCA_CAKE_FLOW_MODE, TCA_CAKE_FWMARK, TCA_CAKE_INGRESS, TCA_CAKE_MEMORY,
    TCA_CAKE_MPU, TCA_CAKE_NAT, TCA_CAKE_OVERHEAD, TCA_CAKE_RTT, TCA_CAKE_SPLIT_GSO, TCA_CAKE_WASH,
    TCA_FQ_BUCKETS_LOG, TCA_FQ_CE_THRESHOLD, TCA_FQ_CODEL_CE_THRESHOLD,
    TCA_FQ_CODEL_DROP_BATCH_SIZE, TCA_FQ_CODEL_ECN, TCA_FQ_CODEL_FLOWS, TCA_FQ_CODEL_INTERVAL,
    TCA_FQ_CODEL_LIMIT, TCA_FQ_CODEL_MEMORY_LIMIT, TCA_FQ_CODEL_QUANTUM, TCA_FQ_CODEL_TARGET,
    TCA_FQ_FLOW_MAX_RATE, TCA_FQ_FLOW_PLIMIT, TCA_FQ_FLOW_REFILL_DELAY, TCA_FQ_HORIZON,
    TCA_FQ_HORIZON_DROP, TCA_FQ_INITIAL_QUANTUM, TCA_FQ_LOW_RATE_THRESHOLD, TCA_FQ_ORPHAN_MASK,
    TCA_FQ_PLIMIT, TCA_FQ_QUANTUM, TCA_FQ_RATE_ENABLE, TCA_FQ_TIMER_SLACK,
};
use serde_json::{Map, Value, json};

use crate::quantity::{Rate, Share, Size, Time};
use crate::ticks;

/// The values of options, by name, in the smallest unit of each.
pub type Options = BTreeMap<&'static str, i64>;

/// A kind of qdisc, or the classes of one.
#[derive(Debug)]
pub struct Spec {
    pub name: &'static str,
    pub options: &'static [Opt],
    /// The options without which there is none.
    pub required: &'static [&'static str],
    /// What is sent where nothing is declared, since a request has to say it.
    pub defaults: &'static [(&'static str, i64)],
    pub(crate) form: Form,
    /// Whether the kernel changes one that is there.
    pub(crate) is_changeable: bool,
}

/// How the options are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// One attribute each.
    Attributes,
    Fifo,
    Tbf,
    Htb,
    HtbClass,
    Netem,
}

#[derive(Debug)]
pub struct Opt {
    pub name: &'static str,
    pub doc: &'static str,
    pub unit: Unit,
    pub(crate) wire: Wire,
    pub(crate) round: Round,
    /// Whether the kernel takes it at the creation only.
    pub(crate) is_fixed: bool,
}

/// What the value of an option is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Rate,
    Size,
    Time,
    Share,
    /// A number from the first to the second.
    Count(i64, i64),
    Flag,
    /// The id of a class.
    Class,
    Diffserv,
    Isolation,
    AckFilter,
    Atm,
}

/// The attribute that carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    /// None: the kind's own struct has it.
    Struct,
    U32(u16),
    U64(u16),
    /// In microseconds.
    Micros(u16),
    /// The exponent of a power of two.
    Log2(u16),
    U8(u16),
}

/// What the kernel makes of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    Exact,
    /// Whole microseconds.
    Micros,
    /// Whole units of 1024 ns, read back in microseconds.
    Codel,
    /// Whole ticks of the kernel's clock, of which there are 100 to 1000 a second, upwards.
    Jiffies,
    /// A time at the rate of this name.
    Bucket(&'static str),
}

/// The longest tick.
const JIFFY: i64 = 10_000_000;

/// Words for numbers.
#[derive(Debug)]
pub struct Words {
    pub what: &'static str,
    pub words: &'static [(&'static str, u32)],
}

pub static DIFFSERV: Words = Words {
    what: "a way to put packets into tins",
    words: &[
        ("besteffort", CAKE_DIFFSERV_BESTEFFORT),
        ("precedence", CAKE_DIFFSERV_PRECEDENCE),
        ("diffserv3", CAKE_DIFFSERV_DIFFSERV3),
        ("diffserv4", CAKE_DIFFSERV_DIFFSERV4),
        ("diffserv8", CAKE_DIFFSERV_DIFFSERV8),
    ],
};

pub static ISOLATION: Words = Words {
    what: "a way to keep packets apart",
    words: &[
        ("flowblind", CAKE_FLOW_NONE),
        ("srchost", CAKE_FLOW_SRC_IP),
        ("dsthost", CAKE_FLOW_DST_IP),
        ("hosts", CAKE_FLOW_HOSTS),
        ("flows", CAKE_FLOW_FLOWS),
        ("dual-srchost", CAKE_FLOW_DUAL_SRC),
        ("dual-dsthost", CAKE_FLOW_DUAL_DST),
        ("triple-isolate", CAKE_FLOW_TRIPLE),
    ],
};

pub static ACK_FILTER: Words = Words {
    what: "a way to drop acknowledgements",
    words: &[
        ("none", CAKE_ACK_NONE),
        ("filter", CAKE_ACK_FILTER),
        ("aggressive", CAKE_ACK_AGGRESSIVE),
    ],
};

pub static ATM: Words = Words {
    what: "a framing of the line",
    words: &[("none", CAKE_ATM_NONE), ("atm", CAKE_ATM_ATM), ("ptm", CAKE_ATM_PTM)],
};

const fn opt(name: &'static str, doc: &'static str, unit: Unit, wire: Wire) -> Opt {
    let round = match wire {
        Wire::Micros(_) => Round::Micros,
        _ => Round::Exact,
    };
    Opt { name, doc, unit, wire, round, is_fixed: false }
}

impl Opt {
    const fn rounded(self, round: Round) -> Self {
        Opt { round, ..self }
    }

    const fn fixed(self) -> Self {
        Opt { is_fixed: true, ..self }
    }
}

const ANY: Unit = Unit::Count(0, 0xffff_ffff);
const SOME: Unit = Unit::Count(1, 0xffff_ffff);

/// All kinds that can be declared.
pub static KINDS: [&Spec; 8] = [&FQ_CODEL, &FQ, &CAKE, &TBF, &HTB, &NETEM, &PFIFO, &BFIFO];

static FQ_CODEL: Spec = Spec {
    name: "fq_codel",
    options: &[
        opt("limit", "Packets that may wait", SOME, Wire::U32(TCA_FQ_CODEL_LIMIT)),
        opt(
            "memory-limit",
            "Bytes that may wait",
            Unit::Size,
            Wire::U32(TCA_FQ_CODEL_MEMORY_LIMIT),
        ),
        opt(
            "flows",
            "Queues that flows are spread over",
            Unit::Count(1, 65_536),
            Wire::U32(TCA_FQ_CODEL_FLOWS),
        )
        .fixed(),
        opt("target", "Delay that is accepted", Unit::Time, Wire::Micros(TCA_FQ_CODEL_TARGET))
            .rounded(Round::Codel),
        opt(
            "interval",
            "How long a delay may last",
            Unit::Time,
            Wire::Micros(TCA_FQ_CODEL_INTERVAL),
        )
        .rounded(Round::Codel),
        opt(
            "quantum",
            "Bytes that a flow sends in its turn",
            Unit::Count(256, 1 << 20),
            Wire::U32(TCA_FQ_CODEL_QUANTUM),
        ),
        opt(
            "ecn",
            "Whether packets are marked before they are dropped",
            Unit::Flag,
            Wire::U32(TCA_FQ_CODEL_ECN),
        ),
        opt(
            "ce-threshold",
            "Delay beyond which all packets are marked",
            Unit::Time,
            Wire::Micros(TCA_FQ_CODEL_CE_THRESHOLD),
        )
        .rounded(Round::Codel),
        opt(
            "drop-batch",
            "Packets that are dropped at once",
            SOME,
            Wire::U32(TCA_FQ_CODEL_DROP_BATCH_SIZE),
        ),
    ],
    required: &[],
    defaults: &[],
    form: Form::Attributes,
    is_changeable: true,
};

static FQ: Spec = Spec {
    name: "fq",
    options: &[
        opt("limit", "Packets that may wait", SOME, Wire::U32(TCA_FQ_PLIMIT)),
        opt("flow-limit", "Packets of one flow that may wait", SOME, Wire::U32(TCA_FQ_FLOW_PLIMIT)),
        opt(
            "buckets",
            "Size of the table of flows, a power of two",
            Unit::Count(2, 1 << 18),
            Wire::Log2(TCA_FQ_BUCKETS_LOG),
        ),
        opt(
            "quantum",
            "Bytes that a flow sends in its turn",
            Unit::Count(1, 1 << 20),
            Wire::U32(TCA_FQ_QUANTUM),
        ),
        opt(
            "initial-quantum",
            "Bytes that a new flow sends at first",
            Unit::Count(0, 0x7fff_ffff),
            Wire::U32(TCA_FQ_INITIAL_QUANTUM),
        ),
        opt("maxrate", "Most that a flow sends", Unit::Rate, Wire::U32(TCA_FQ_FLOW_MAX_RATE)),
        opt("pacing", "Whether flows are paced", Unit::Flag, Wire::U32(TCA_FQ_RATE_ENABLE)),
        opt(
            "refill-delay",
            "Idle time after which a flow has its quantum again",
            Unit::Time,
            Wire::Micros(TCA_FQ_FLOW_REFILL_DELAY),
        )
        .rounded(Round::Jiffies),
        opt(
            "orphan-mask",
            "Mask of the hashes of packets without a socket",
            ANY,
            Wire::U32(TCA_FQ_ORPHAN_MASK),
        ),
        opt(
            "low-rate-threshold",
            "Rate under which a flow is not paced in bursts",
            Unit::Rate,
            Wire::U32(TCA_FQ_LOW_RATE_THRESHOLD),
        ),
        opt(
            "ce-threshold",
            "Delay beyond which all packets are marked",
            Unit::Time,
            Wire::Micros(TCA_FQ_CE_THRESHOLD),
        ),
        opt(
            "timer-slack",
            "How inexact its timer may be",
            Unit::Time,
            Wire::U32(TCA_FQ_TIMER_SLACK),
        ),
        opt(
            "horizon",
            "How far in the future packets may be sent",
            Unit::Time,
            Wire::Micros(TCA_FQ_HORIZON),
        ),
        opt(
            "horizon-drop",
            "Whether packets beyond the horizon are dropped",
            Unit::Flag,
            Wire::U8(TCA_FQ_HORIZON_DROP),
        ),
    ],
    required: &[],
    defaults: &[],
    form: Form::Attributes,
    is_changeable: true,
};

static CAKE: Spec = Spec {
    name: "cake",
    options: &[
        opt(
            "bandwidth",
            "The rate to shape to; unlimited without it",
            Unit::Rate,
            Wire::U64(TCA_CAKE_BASE_RATE64),
        ),
        opt(
            "autorate-ingress",
            "Whether it follows the rate that comes in",
            Unit::Flag,
            Wire::U32(TCA_CAKE_AUTORATE),
        ),
        opt(
            "diffserv",
            "How packets are put into tins",
            Unit::Diffserv,
            Wire::U32(TCA_CAKE_DIFFSERV_MODE),
        ),
        opt(
            "isolation",
            "Whose packets are kept apart",
            Unit::Isolation,
            Wire::U32(TCA_CAKE_FLOW_MODE),
        ),
        opt("nat", "Whether it looks behind NAT", Unit::Flag, Wire::U32(TCA_CAKE_NAT)),
        opt("wash", "Whether DSCP is cleared", Unit::Flag, Wire::U32(TCA_CAKE_WASH)),
        opt(
            "split-gso",
            "Whether large packets are split",
            Unit::Flag,
            Wire::U32(TCA_CAKE_SPLIT_GSO),
        ),
        opt("ingress", "Whether it shapes what comes in", Unit::Flag, Wire::U32(TCA_CAKE_INGRESS)),
        opt(
            "ack-filter",
            "Which acknowledgements are dropped",
            Unit::AckFilter,
            Wire::U32(TCA_CAKE_ACK_FILTER),
        ),
        opt("rtt", "Usual round trip time", Unit::Time, Wire::Micros(TCA_CAKE_RTT)),
        opt(
            "overhead",
            "Bytes that the line adds to a packet",
            Unit::Count(-64, 256),
            Wire::U32(TCA_CAKE_OVERHEAD),
        ),
        opt(
            "mpu",
            "Bytes that a packet takes at least",
            Unit::Count(0, 256),
            Wire::U32(TCA_CAKE_MPU),
        ),
        opt("atm", "How the line frames packets", Unit::Atm, Wire::U32(TCA_CAKE_ATM)),
        opt("memory-limit", "Bytes that may wait", Unit::Size, Wire::U32(TCA_CAKE_MEMORY)),
        opt("fwmark", "Mask of the mark that selects the tin", ANY, Wire::U32(TCA_CAKE_FWMARK)),
    ],
    required: &[],
    defaults: &[],
    form: Form::Attributes,
    is_changeable: true,
};

static TBF: Spec = Spec {
    name: "tbf",
    options: &[
        opt("rate", "The rate to shape to", Unit::Rate, Wire::Struct),
        opt("burst", "Bytes that may be sent at once", Unit::Size, Wire::Struct)
            .rounded(Round::Bucket("rate")),
        opt("limit", "Bytes that may wait", Unit::Size, Wire::Struct),
    ],
    required: &["rate", "burst"],
    defaults: &[],
    form: Form::Tbf,
    is_changeable: true,
};

static HTB: Spec = Spec {
    name: "htb",
    options: &[
        opt(
            "default",
            "The class of packets that nothing else puts into one",
            Unit::Class,
            Wire::Struct,
        ),
        opt("r2q", "What rates are divided by to have the quantum of a class", SOME, Wire::Struct),
        opt(
            "direct-qlen",
            "Packets without a class that may wait",
            ANY,
            Wire::U32(homeostat_netlink::uapi::TCA_HTB_DIRECT_QLEN),
        ),
    ],
    required: &[],
    defaults: &[("default", 0), ("r2q", 10)],
    form: Form::Htb,
    is_changeable: false,
};

/// Bytes of the bucket of a class that says nothing of it, as `tc` has it.
const BUCKET: i64 = 1600;

/// The classes of htb.
pub static HTB_CLASS: Spec = Spec {
    name: "htb",
    options: &[
        opt("rate", "What it may always send", Unit::Rate, Wire::Struct),
        opt(
            "ceil",
            "What it may send at most, if its parent has some left; its rate without it",
            Unit::Rate,
            Wire::Struct,
        ),
        opt("burst", "Bytes that it may send at once beyond its rate", Unit::Size, Wire::Struct)
            .rounded(Round::Bucket("rate")),
        opt("cburst", "Bytes that it may send at once beyond its ceil", Unit::Size, Wire::Struct)
            .rounded(Round::Bucket("ceil")),
        opt("prio", "Which classes are served first: 0 before 7", Unit::Count(0, 7), Wire::Struct),
        opt("quantum", "Bytes that it sends in its turn", Unit::Count(1000, 200_000), Wire::Struct),
    ],
    required: &["rate"],
    defaults: &[("burst", BUCKET), ("cburst", BUCKET), ("prio", 0)],
    form: Form::HtbClass,
    is_changeable: true,
};

static NETEM: Spec = Spec {
    name: "netem",
    options: &[
        opt("limit", "Packets that may wait", SOME, Wire::Struct),
        opt("delay", "How long each packet waits", Unit::Time, Wire::Struct),
        opt("jitter", "How much the delay varies", Unit::Time, Wire::Struct),
        opt("loss", "How many packets are lost", Unit::Share, Wire::Struct),
        opt("duplicate", "How many packets are sent twice", Unit::Share, Wire::Struct),
        opt("corrupt", "How many packets have a bit turned", Unit::Share, Wire::Struct),
        opt(
            "reorder",
            "How many packets are sent at once, before those that wait",
            Unit::Share,
            Wire::Struct,
        ),
        opt("rate", "The rate to shape to", Unit::Rate, Wire::Struct),
    ],
    required: &[],
    defaults: &[
        ("limit", 1000),
        ("delay", 0),
        ("jitter", 0),
        ("loss", 0),
        ("duplicate", 0),
        ("corrupt", 0),
        ("reorder", 0),
        ("rate", 0),
    ],
    form: Form::Netem,
    is_changeable: true,
};

static PFIFO: Spec = Spec {
    name: "pfifo",
    options: &[opt("limit", "Packets that may wait", SOME, Wire::Struct)],
    required: &["limit"],
    defaults: &[],
    form: Form::Fifo,
    is_changeable: true,
};

static BFIFO: Spec = Spec {
    name: "bfifo",
    options: &[opt("limit", "Bytes that may wait", Unit::Size, Wire::Struct)],
    required: &["limit"],
    defaults: &[],
    form: Form::Fifo,
    is_changeable: true,
};

/// The kind of this name.
#[must_use]
pub fn spec(name: &str) -> Option<&'static Spec> {
    KINDS.into_iter().find(|spec| spec.name == name)
}

impl Spec {
    #[must_use]
    pub fn option(&self, name: &str) -> Option<&Opt> {
        self.options.iter().find(|option| option.name == name)
    }

    /// Whether it has classes.
    #[must_use]
    pub fn has_classes(&self) -> bool {
        self.form == Form::Htb
    }

    /// With what a request has to say and nobody declared.
    pub(crate) fn completed(&self, options: &Options) -> Options {
        let mut options = options.clone();
        for (name, value) in self.defaults {
            options.entry(name).or_insert(*value);
        }
        if self.form == Form::HtbClass
            && let Some(rate) = options.get("rate").copied()
        {
            options.entry("ceil").or_insert(rate);
        }
        options
    }

    /// Without what a request would say anyway.
    pub(crate) fn reduced(&self, mut options: Options) -> Options {
        if options.get("ceil").is_some_and(|ceil| options.get("rate") == Some(ceil)) {
            options.remove("ceil");
        }
        let all = self.completed(&options);
        for (name, value) in self.defaults {
            let default = Options::from([(*name, *value)]);
            let default: Options =
                all.iter().map(|(name, value)| (*name, *value)).chain(default).collect();
            if self.is_same(name, &default, &all) {
                options.remove(name);
            }
        }
        options
    }

    /// Whether what is declared is so.
    pub(crate) fn agrees(&self, wanted: &Options, seen: &Options) -> bool {
        let (wanted, seen) = (self.completed(wanted), self.completed(seen));
        wanted.keys().all(|name| self.is_same(name, &wanted, &seen))
    }

    /// Whether the kernel reports the value that is wanted of an option so.
    fn is_same(&self, name: &str, wanted: &Options, seen: &Options) -> bool {
        let (Some(one), Some(other)) = (wanted.get(name), seen.get(name)) else {
            return !wanted.contains_key(name);
        };
        if one == other {
            return true;
        }
        match self.option(name).map_or(Round::Exact, |option| option.round) {
            Round::Exact => false,
            Round::Micros => one / 1000 == other / 1000,
            Round::Codel => (((one / 1000 * 1000) >> 10) << 10) / 1000 == other / 1000,
            Round::Jiffies => other >= one && other - one < JIFFY,
            Round::Bucket(rate) => match (wanted.get(rate), seen.get(rate)) {
                (Some(rate), Some(seen)) => {
                    ticks::of_bytes(*one, *rate) == ticks::of_bytes(*other, *seen)
                }
                _ => false,
            },
        }
    }

    /// Whether a change of one that is there can fulfil what is declared.
    pub(crate) fn can_change(&self, wanted: &Options, seen: &Options) -> bool {
        let fixed = self.options.iter().filter(|option| option.is_fixed);
        let mut fixed = fixed.filter(|option| wanted.contains_key(option.name));
        self.agrees(wanted, seen)
            || self.is_changeable && fixed.all(|option| self.is_same(option.name, wanted, seen))
    }

    /// Options in the words of documents.
    pub(crate) fn words(&self, options: &Options) -> Map<String, Value> {
        let known = options.iter().filter_map(|(name, value)| Some((self.option(name)?, *value)));
        known.map(|(option, value)| (option.name.to_owned(), option.unit.show(value))).collect()
    }

    /// The reverse. What is no option is left out.
    pub(crate) fn of_words(&self, words: &Map<String, Value>) -> Options {
        let known = words.iter().filter_map(|(name, value)| {
            let option = self.option(name)?;
            Some((option.name, option.unit.parse(value)?))
        });
        known.collect()
    }
}

impl Unit {
    /// The words that it can be.
    #[must_use]
    pub fn words(self) -> Option<&'static Words> {
        match self {
            Unit::Diffserv => Some(&DIFFSERV),
            Unit::Isolation => Some(&ISOLATION),
            Unit::AckFilter => Some(&ACK_FILTER),
            Unit::Atm => Some(&ATM),
            _ => None,
        }
    }

    fn show(self, value: i64) -> Value {
        match self {
            Unit::Rate => Rate(value).to_string().into(),
            Unit::Size => Size(value).to_string().into(),
            Unit::Time => Time(value).to_string().into(),
            Unit::Share => Share(value).to_string().into(),
            Unit::Count(..) => json!(value),
            Unit::Flag => json!(value != 0),
            Unit::Class => format!("{value:x}").into(),
            Unit::Diffserv | Unit::Isolation | Unit::AckFilter | Unit::Atm => {
                let words = self.words().into_iter().flat_map(|words| words.words);
                let mut words = words.filter(|(_, number)| i64::from(*number) == value);
                words.next().map_or_else(|| json!(value), |(word, _)| json!(word))
            }
        }
    }

    fn parse(self, value: &Value) -> Option<i64> {
        let text = value.as_str();
        match self {
            Unit::Rate => {
                text?.parse().ok().map(|Rate(value)| value).or((text? == "0bit").then_some(0))
            }
            Unit::Size => text?.parse().ok().map(|Size(value)| value),
            Unit::Time => text?.parse().ok().map(|Time(value)| value),
            Unit::Share => text?.parse().ok().map(|Share(value)| value),
            Unit::Count(..) => value.as_i64(),
            Unit::Flag => value.as_bool().map(i64::from),
            Unit::Class => i64::from_str_radix(text?, 16).ok(),
            Unit::Diffserv | Unit::Isolation | Unit::AckFilter | Unit::Atm => {
                let mut words = self.words()?.words.iter();
                let word = words.find(|(word, _)| Some(*word) == text);
                word.map(|(_, number)| i64::from(*number)).or(value.as_i64())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_read_back_from_their_words() {
        for spec in KINDS.into_iter().chain([&HTB_CLASS]) {
            let options: Options = spec.options.iter().map(|option| (option.name, 1)).collect();
            let back = spec.of_words(&spec.words(&options));
            assert_eq!(back, options, "{}", spec.name);
        }
    }

    #[test]
    fn a_codel_time_that_reads_back_shorter_agrees() {
        let [wanted, seen] =
            [5_000_000, 4_999_000].map(|target| Options::from([("target", target)]));
        assert!(FQ_CODEL.agrees(&wanted, &seen));
        assert!(!FQ_CODEL.agrees(&wanted, &Options::from([("target", 4_990_000)])));
    }

    #[test]
    fn an_option_of_the_creation_forbids_a_change() {
        let options = |flows| Options::from([("flows", flows), ("limit", 100)]);
        assert!(!FQ_CODEL.can_change(&options(64), &options(128)));
        assert!(FQ_CODEL.can_change(&options(64), &Options::from([("flows", 64), ("limit", 1)])));
        assert!(!HTB.can_change(&Options::from([("r2q", 5)]), &Options::from([("r2q", 10)])));
        assert!(HTB.can_change(&Options::from([("r2q", 5)]), &Options::from([("r2q", 5)])));
    }
}
