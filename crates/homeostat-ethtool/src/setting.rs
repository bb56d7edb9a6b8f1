//! What can be set of a link: the groups of messages, and the numbers, switches and features in them. Pure.

use homeostat_netlink::uapi::{
    ETHTOOL_A_CHANNELS_COMBINED_COUNT, ETHTOOL_A_CHANNELS_COMBINED_MAX,
    ETHTOOL_A_CHANNELS_OTHER_COUNT, ETHTOOL_A_CHANNELS_OTHER_MAX, ETHTOOL_A_CHANNELS_RX_COUNT,
    ETHTOOL_A_CHANNELS_RX_MAX, ETHTOOL_A_CHANNELS_TX_COUNT, ETHTOOL_A_CHANNELS_TX_MAX,
    ETHTOOL_A_COALESCE_PKT_RATE_HIGH, ETHTOOL_A_COALESCE_PKT_RATE_LOW,
    ETHTOOL_A_COALESCE_RATE_SAMPLE_INTERVAL, ETHTOOL_A_COALESCE_RX_MAX_FRAMES,
    ETHTOOL_A_COALESCE_RX_MAX_FRAMES_HIGH, ETHTOOL_A_COALESCE_RX_MAX_FRAMES_IRQ,
    ETHTOOL_A_COALESCE_RX_MAX_FRAMES_LOW, ETHTOOL_A_COALESCE_RX_USECS,
    ETHTOOL_A_COALESCE_RX_USECS_HIGH, ETHTOOL_A_COALESCE_RX_USECS_IRQ,
    ETHTOOL_A_COALESCE_RX_USECS_LOW, ETHTOOL_A_COALESCE_STATS_BLOCK_USECS,
    ETHTOOL_A_COALESCE_TX_MAX_FRAMES, ETHTOOL_A_COALESCE_TX_MAX_FRAMES_HIGH,
    ETHTOOL_A_COALESCE_TX_MAX_FRAMES_IRQ, ETHTOOL_A_COALESCE_TX_MAX_FRAMES_LOW,
    ETHTOOL_A_COALESCE_TX_USECS, ETHTOOL_A_COALESCE_TX_USECS_HIGH, ETHTOOL_A_COALESCE_TX_USECS_IRQ,
    ETHTOOL_A_COALESCE_TX_USECS_LOW, ETHTOOL_A_COALESCE_USE_ADAPTIVE_RX,
    ETHTOOL_A_COALESCE_USE_ADAPTIVE_TX, ETHTOOL_A_PAUSE_AUTONEG, ETHTOOL_A_PAUSE_RX,
    ETHTOOL_A_PAUSE_TX, ETHTOOL_A_RINGS_RX, ETHTOOL_A_RINGS_RX_JUMBO, ETHTOOL_A_RINGS_RX_JUMBO_MAX,
    ETHTOOL_A_RINGS_RX_MAX, ETHTOOL_A_RINGS_RX_MINI, ETHTOOL_A_RINGS_RX_MINI_MAX,
    ETHTOOL_A_RINGS_TX, ETHTOOL_A_RINGS_TX_MAX, ETHTOOL_MSG_CHANNELS_GET, ETHTOOL_MSG_CHANNELS_SET,
    ETHTOOL_MSG_COALESCE_GET, ETHTOOL_MSG_COALESCE_SET, ETHTOOL_MSG_FEATURES_GET,
    ETHTOOL_MSG_FEATURES_SET, ETHTOOL_MSG_FEC_GET, ETHTOOL_MSG_FEC_SET, ETHTOOL_MSG_PAUSE_GET,
    ETHTOOL_MSG_PAUSE_SET, ETHTOOL_MSG_PRIVFLAGS_GET, ETHTOOL_MSG_PRIVFLAGS_SET,
    ETHTOOL_MSG_RINGS_GET, ETHTOOL_MSG_RINGS_SET, ETHTOOL_MSG_WOL_GET, ETHTOOL_MSG_WOL_SET,
};

/// What one message reads, and another one writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    Features,
    Rings,
    Channels,
    Coalesce,
    Pause,
    WakeOnLan,
    Fec,
    PrivateFlags,
}

impl Group {
    pub const ALL: [Group; 8] = [
        Group::Features,
        Group::Rings,
        Group::Channels,
        Group::Coalesce,
        Group::Pause,
        Group::WakeOnLan,
        Group::Fec,
        Group::PrivateFlags,
    ];

    /// Its name in keys.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Group::Features => "feature",
            Group::Rings => "rings",
            Group::Channels => "channels",
            Group::Coalesce => "coalesce",
            Group::Pause => "pause",
            Group::WakeOnLan => "wol",
            Group::Fec => "fec",
            Group::PrivateFlags => "private-flag",
        }
    }

    /// For people: "the driver has no settings of ...".
    pub(crate) fn about(self) -> &'static str {
        match self {
            Group::Features => "features",
            Group::Rings => "rings",
            Group::Channels => "channels",
            Group::Coalesce => "coalescing",
            Group::Pause => "pause frames",
            Group::WakeOnLan => "Wake-on-LAN",
            Group::Fec => "FEC",
            Group::PrivateFlags => "its own flags",
        }
    }

    pub(crate) fn get(self) -> u8 {
        match self {
            Group::Features => ETHTOOL_MSG_FEATURES_GET,
            Group::Rings => ETHTOOL_MSG_RINGS_GET,
            Group::Channels => ETHTOOL_MSG_CHANNELS_GET,
            Group::Coalesce => ETHTOOL_MSG_COALESCE_GET,
            Group::Pause => ETHTOOL_MSG_PAUSE_GET,
            Group::WakeOnLan => ETHTOOL_MSG_WOL_GET,
            Group::Fec => ETHTOOL_MSG_FEC_GET,
            Group::PrivateFlags => ETHTOOL_MSG_PRIVFLAGS_GET,
        }
    }

    pub(crate) fn set(self) -> u8 {
        match self {
            Group::Features => ETHTOOL_MSG_FEATURES_SET,
            Group::Rings => ETHTOOL_MSG_RINGS_SET,
            Group::Channels => ETHTOOL_MSG_CHANNELS_SET,
            Group::Coalesce => ETHTOOL_MSG_COALESCE_SET,
            Group::Pause => ETHTOOL_MSG_PAUSE_SET,
            Group::WakeOnLan => ETHTOOL_MSG_WOL_SET,
            Group::Fec => ETHTOOL_MSG_FEC_SET,
            Group::PrivateFlags => ETHTOOL_MSG_PRIVFLAGS_SET,
        }
    }

    /// Whether drivers restart the card for it, so that its link is down for a moment.
    pub(crate) fn may_restart(self) -> bool {
        matches!(
            self,
            Group::Rings | Group::Channels | Group::Pause | Group::Fec | Group::PrivateFlags
        )
    }
}

/// How a number is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Form {
    Number,
    /// One byte, 0 or 1.
    Switch,
}

/// A number or a switch of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spec {
    pub group: Group,
    pub word: &'static str,
    pub form: Form,
    /// The attribute that has it.
    pub attr: u16,
    /// The attribute that has the largest one.
    pub most: Option<u16>,
    pub doc: &'static str,
}

const fn number(
    group: Group,
    word: &'static str,
    attr: u16,
    most: Option<u16>,
    doc: &'static str,
) -> Spec {
    Spec { group, word, form: Form::Number, attr, most, doc }
}

const fn switch(group: Group, word: &'static str, attr: u16, doc: &'static str) -> Spec {
    Spec { group, word, form: Form::Switch, attr, most: None, doc }
}

const fn ring(word: &'static str, attr: u16, most: u16, doc: &'static str) -> Spec {
    number(Group::Rings, word, attr, Some(most), doc)
}

const fn channel(word: &'static str, attr: u16, most: u16, doc: &'static str) -> Spec {
    number(Group::Channels, word, attr, Some(most), doc)
}

const fn coalesce(word: &'static str, attr: u16, doc: &'static str) -> Spec {
    number(Group::Coalesce, word, attr, None, doc)
}

/// Every number and switch, by group.
pub(crate) static SPECS: [Spec; 33] = [
    ring("rx", ETHTOOL_A_RINGS_RX, ETHTOOL_A_RINGS_RX_MAX, "Receive descriptors"),
    ring("rx-mini", ETHTOOL_A_RINGS_RX_MINI, ETHTOOL_A_RINGS_RX_MINI_MAX, "Those for small frames"),
    ring(
        "rx-jumbo",
        ETHTOOL_A_RINGS_RX_JUMBO,
        ETHTOOL_A_RINGS_RX_JUMBO_MAX,
        "Those for large frames",
    ),
    ring("tx", ETHTOOL_A_RINGS_TX, ETHTOOL_A_RINGS_TX_MAX, "Send descriptors"),
    channel(
        "rx",
        ETHTOOL_A_CHANNELS_RX_COUNT,
        ETHTOOL_A_CHANNELS_RX_MAX,
        "Queues that only receive",
    ),
    channel("tx", ETHTOOL_A_CHANNELS_TX_COUNT, ETHTOOL_A_CHANNELS_TX_MAX, "Queues that only send"),
    channel(
        "other",
        ETHTOOL_A_CHANNELS_OTHER_COUNT,
        ETHTOOL_A_CHANNELS_OTHER_MAX,
        "Queues for other work",
    ),
    channel(
        "combined",
        ETHTOOL_A_CHANNELS_COMBINED_COUNT,
        ETHTOOL_A_CHANNELS_COMBINED_MAX,
        "Queues that receive and send",
    ),
    switch(
        Group::Coalesce,
        "adaptive-rx",
        ETHTOOL_A_COALESCE_USE_ADAPTIVE_RX,
        "Whether the driver chooses the values for receiving",
    ),
    switch(
        Group::Coalesce,
        "adaptive-tx",
        ETHTOOL_A_COALESCE_USE_ADAPTIVE_TX,
        "Whether the driver chooses the values for sending",
    ),
    coalesce(
        "rx-usecs",
        ETHTOOL_A_COALESCE_RX_USECS,
        "Microseconds until an interrupt after a received frame",
    ),
    coalesce("rx-frames", ETHTOOL_A_COALESCE_RX_MAX_FRAMES, "Received frames until an interrupt"),
    coalesce(
        "rx-usecs-irq",
        ETHTOOL_A_COALESCE_RX_USECS_IRQ,
        "The same while an interrupt is served",
    ),
    coalesce(
        "rx-frames-irq",
        ETHTOOL_A_COALESCE_RX_MAX_FRAMES_IRQ,
        "The same while an interrupt is served",
    ),
    coalesce(
        "tx-usecs",
        ETHTOOL_A_COALESCE_TX_USECS,
        "Microseconds until an interrupt after a sent frame",
    ),
    coalesce("tx-frames", ETHTOOL_A_COALESCE_TX_MAX_FRAMES, "Sent frames until an interrupt"),
    coalesce(
        "tx-usecs-irq",
        ETHTOOL_A_COALESCE_TX_USECS_IRQ,
        "The same while an interrupt is served",
    ),
    coalesce(
        "tx-frames-irq",
        ETHTOOL_A_COALESCE_TX_MAX_FRAMES_IRQ,
        "The same while an interrupt is served",
    ),
    coalesce(
        "stats-block-usecs",
        ETHTOOL_A_COALESCE_STATS_BLOCK_USECS,
        "Microseconds between updates of statistics",
    ),
    coalesce(
        "pkt-rate-low",
        ETHTOOL_A_COALESCE_PKT_RATE_LOW,
        "Packets a second below which the low values count",
    ),
    coalesce("rx-usecs-low", ETHTOOL_A_COALESCE_RX_USECS_LOW, "`rx-usecs` at a low rate"),
    coalesce("rx-frames-low", ETHTOOL_A_COALESCE_RX_MAX_FRAMES_LOW, "`rx-frames` at a low rate"),
    coalesce("tx-usecs-low", ETHTOOL_A_COALESCE_TX_USECS_LOW, "`tx-usecs` at a low rate"),
    coalesce("tx-frames-low", ETHTOOL_A_COALESCE_TX_MAX_FRAMES_LOW, "`tx-frames` at a low rate"),
    coalesce(
        "pkt-rate-high",
        ETHTOOL_A_COALESCE_PKT_RATE_HIGH,
        "Packets a second above which the high values count",
    ),
    coalesce("rx-usecs-high", ETHTOOL_A_COALESCE_RX_USECS_HIGH, "`rx-usecs` at a high rate"),
    coalesce("rx-frames-high", ETHTOOL_A_COALESCE_RX_MAX_FRAMES_HIGH, "`rx-frames` at a high rate"),
    coalesce("tx-usecs-high", ETHTOOL_A_COALESCE_TX_USECS_HIGH, "`tx-usecs` at a high rate"),
    coalesce("tx-frames-high", ETHTOOL_A_COALESCE_TX_MAX_FRAMES_HIGH, "`tx-frames` at a high rate"),
    coalesce(
        "sample-interval",
        ETHTOOL_A_COALESCE_RATE_SAMPLE_INTERVAL,
        "Seconds between samples of the rate",
    ),
    switch(Group::Pause, "autoneg", ETHTOOL_A_PAUSE_AUTONEG, "Whether pause frames are negotiated"),
    switch(Group::Pause, "rx", ETHTOOL_A_PAUSE_RX, "Whether pause frames are obeyed"),
    switch(Group::Pause, "tx", ETHTOOL_A_PAUSE_TX, "Whether pause frames are sent"),
];

/// What one key is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Setting {
    /// A feature by the kernel's name, or one of the common words for several.
    Feature(String),
    Number(&'static Spec),
    WakeOnLan,
    Fec,
    /// A flag of the driver's own.
    PrivateFlag(String),
}

impl Setting {
    /// The number or switch with this name.
    #[must_use]
    pub fn number(group: Group, word: &str) -> Option<Self> {
        let spec = SPECS.iter().find(|spec| spec.group == group && spec.word == word);
        spec.map(Setting::Number)
    }

    /// A feature. The long words of `ethtool -k` become the short ones.
    #[must_use]
    pub fn feature(name: &str) -> Self {
        let word = WORDS.iter().find(|word| word.long == name).map_or(name, |word| word.short);
        Setting::Feature(word.to_owned())
    }

    #[must_use]
    pub fn group(&self) -> Group {
        match self {
            Setting::Feature(_) => Group::Features,
            Setting::Number(spec) => spec.group,
            Setting::WakeOnLan => Group::WakeOnLan,
            Setting::Fec => Group::Fec,
            Setting::PrivateFlag(_) => Group::PrivateFlags,
        }
    }

    /// Its name within the group.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Setting::Feature(name) | Setting::PrivateFlag(name) => name,
            Setting::Number(spec) => spec.word,
            Setting::WakeOnLan | Setting::Fec => "",
        }
    }
}

/// A word of `ethtool -K` for all features whose names begin and end so.
struct Word {
    short: &'static str,
    long: &'static str,
    start: &'static str,
    end: &'static str,
}

const fn word(
    short: &'static str,
    long: &'static str,
    start: &'static str,
    end: &'static str,
) -> Word {
    Word { short, long, start, end }
}

const WORDS: [Word; 11] = [
    word("rx", "rx-checksumming", "rx-checksum", ""),
    word("tx", "tx-checksumming", "tx-checksum-", ""),
    word("sg", "scatter-gather", "tx-scatter-gather", ""),
    word("tso", "tcp-segmentation-offload", "tx-tcp", "-segmentation"),
    word("gso", "generic-segmentation-offload", "tx-generic-segmentation", ""),
    word("gro", "generic-receive-offload", "rx-gro", "rx-gro"),
    word("lro", "large-receive-offload", "rx-lro", ""),
    word("rxvlan", "rx-vlan-offload", "rx-vlan-hw-parse", ""),
    word("txvlan", "tx-vlan-offload", "tx-vlan-hw-insert", ""),
    word("ntuple", "ntuple-filters", "rx-ntuple-filter", ""),
    word("rxhash", "receive-hashing", "rx-hashing", ""),
];

/// Whether a feature of the kernel is one that this name stands for.
pub(crate) fn stands_for(name: &str, feature: &str) -> bool {
    match WORDS.iter().find(|word| word.short == name) {
        Some(word) => feature.starts_with(word.start) && feature.ends_with(word.end),
        None => name == feature,
    }
}

/// The short words.
pub(crate) fn words() -> impl Iterator<Item = &'static str> {
    WORDS.iter().map(|word| word.short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_for_the_features_that_ethtool_means() {
        for (name, feature, expected) in [
            ("tso", "tx-tcp-segmentation", true),
            ("tso", "tx-tcp-mangleid-segmentation", true),
            ("tso", "tx-tcp6-segmentation", true),
            ("tso", "tx-gre-segmentation", false),
            ("gro", "rx-gro", true),
            ("gro", "rx-gro-hw", false),
            ("tx", "tx-checksum-ip-generic", true),
            ("rx-gro-hw", "rx-gro-hw", true),
            ("rx-gro-hw", "rx-gro", false),
        ] {
            assert_eq!(stands_for(name, feature), expected, "{name} {feature}");
        }
        assert_eq!(Setting::feature("tx-checksumming"), Setting::feature("tx"));
    }

    #[test]
    fn every_number_is_found_by_its_group_and_word_alone() {
        for spec in &SPECS {
            assert_eq!(Setting::number(spec.group, spec.word), Some(Setting::Number(spec)));
        }
    }
}
