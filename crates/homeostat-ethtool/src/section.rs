//! The section of the document: `[links.NAME.ethtool]`.

use std::collections::BTreeSet;

use homeostat_document::{
    Advice, Assignment, Checker, Definitions, Diagnostic, Extension, ExtensionType, Fields, Json,
    Keyed, Map, Node, Number, Record, Scope, Shape, SourceSections, Span, Spanned, Text,
    ValueError, read_list, record,
};
use serde_json::json;

use crate::key::{Key, is_name};
use crate::model::{DesiredState, Value, Wanted};
use crate::setting::{Form, Group, SPECS, Setting, stands_for};

/// All that ethtool adds to documents.
pub const SECTIONS: SourceSections = SourceSections {
    extensions: &[ExtensionType::of::<LinkEthtool>()],
    synonyms: &[
        ("offload", "features"),
        ("offloads", "features"),
        ("ring", "rings"),
        ("priv-flags", "private-flags"),
        ("wake-on-lan", "wol"),
    ],
    advice: ADVICE,
    ..SourceSections::new("ethtool", &[])
};

/// Words of netplan and networkd for links.
const ADVICE: &[Advice] = &[
    Advice {
        tables: &["link"],
        words: &["wakeonlan", "wake-on-lan"],
        help: "write `ethtool = { wol = [\"magic\"] }`",
    },
    Advice {
        tables: &["link"],
        words: &[
            "offload",
            "offloads",
            "receive-checksum-offload",
            "receivechecksumoffload",
            "transmit-checksum-offload",
            "transmitchecksumoffload",
            "tcp-segmentation-offload",
            "tcpsegmentationoffload",
            "tcp6-segmentation-offload",
            "tcp6segmentationoffload",
            "generic-segmentation-offload",
            "genericsegmentationoffload",
            "generic-receive-offload",
            "genericreceiveoffload",
            "large-receive-offload",
            "largereceiveoffload",
        ],
        help: "write `ethtool = { features = { tso = false } }`, with the words of `ethtool -k`",
    },
    Advice {
        tables: &["link"],
        words: &["rxbuffersize", "txbuffersize", "combinedchannels", "rxchannels", "txchannels"],
        help: "write `ethtool = { rings = { rx = 4096 }, channels = { combined = 4 } }`",
    },
    Advice {
        tables: &["ethtool"],
        words: &["speed", "duplex", "autoneg", "autonegotiation", "advertise", "port"],
        help: "speed and duplex are not kept by homeostat: a `.link` file of systemd-udevd sets them",
    },
];

/// The `ethtool` of one link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkEthtool {
    /// The link's name.
    pub link: String,
    /// Nothing, if the link has no `ethtool`.
    pub table: Option<Table>,
    /// Whether the link may be absent.
    pub is_optional: bool,
}

/// What is declared of one link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pub settings: Vec<Declared>,
    /// Whether they may be taken over from another owner.
    pub adopt: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    pub setting: Setting,
    pub value: Value,
    pub span: Span,
}

impl LinkEthtool {
    /// The section that links are in.
    pub const SECTION: &'static str = "links";
    /// The field of a link.
    pub const FIELD: &'static str = "ethtool";
    /// The field by which a link may be absent, which the network reads.
    const OPTIONAL: &'static str = "optional";

    fn wanted(&self) -> impl Iterator<Item = (Key, Wanted)> + '_ {
        self.table.iter().flat_map(|table| {
            table.settings.iter().map(|declared| {
                let key = Key { link: self.link.clone(), setting: declared.setting.clone() };
                (key, Wanted { value: declared.value.clone(), adopt: table.adopt })
            })
        })
    }
}

impl Extension for LinkEthtool {
    const RECORD: &'static str = "link";
    const JOINED: &'static [&'static str] = &["links/*/ethtool"];

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let table: Option<Table> = fields.optional(Self::FIELD, "What its driver is told");
        let link: String = fields.name()?.value;
        let is_optional = fields.is_true(Self::OPTIONAL);
        Some(Self { link, table, is_optional })
    }

    fn assignments(&self, _: &mut dyn FnMut(Assignment<'_>)) {}
}

impl Record for Table {
    const NAME: &'static str = "ethtool";
    const DOC: &'static str =
        "Settings of a link's driver; those that are left out are not managed";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let features: Option<Map<Named>> =
            fields.optional("features", "Offloads by their names, each on or off");
        let rings: Option<Rings> = fields.optional("rings", "Sizes of rings");
        let channels: Option<Channels> = fields.optional("channels", "Numbers of queues");
        let coalesce: Option<Coalesce> = fields.optional("coalesce", "When the card interrupts");
        let pause: Option<Pause> = fields.optional("pause", "Pause frames");
        let wol: Option<Vec<WakeMode>> =
            fields.optional("wol", "What wakes the machine; an empty list is nothing");
        let fec: Option<FecModes> = fields.optional("fec", "Forward error correction");
        let flags: Option<Map<Named>> =
            fields.optional("private-flags", "The driver's own flags, each on or off");
        let adopt = fields.flag("adopt", "Take this over from any owner");
        let mut settings = Vec::new();
        for Named { name, on } in features.into_iter().flat_map(|Map(features)| features) {
            let (setting, value) = (Setting::feature(&name), Value::Switch(on));
            settings.push(Declared { setting, value, span: name.span });
        }
        refuse_overlaps(&settings, fields);
        let numbers = [
            (rings.map(|Rings(numbers)| numbers), "rings"),
            (channels.map(|Channels(numbers)| numbers), "channels"),
            (coalesce.map(|Coalesce(numbers)| numbers), "coalesce"),
            (pause.map(|Pause(numbers)| numbers), "pause"),
        ];
        for (numbers, field) in numbers {
            for (setting, value) in numbers.into_iter().flatten() {
                let span = fields.value_within(field, setting.name());
                settings.push(Declared { setting, value, span });
            }
        }
        if let Some(modes) = wol {
            let value =
                Value::Words(modes.into_iter().map(|WakeMode(mode)| mode.to_owned()).collect());
            settings.push(Declared { setting: Setting::WakeOnLan, value, span: fields.at("wol") });
        }
        if let Some(FecModes(modes)) = fec {
            let value =
                Value::Words(modes.into_iter().map(|FecMode(mode)| mode.to_owned()).collect());
            settings.push(Declared { setting: Setting::Fec, value, span: fields.at("fec") });
        }
        for Named { name, on } in flags.into_iter().flat_map(|Map(flags)| flags) {
            let setting = Setting::PrivateFlag(name.value.clone());
            settings.push(Declared { setting, value: Value::Switch(on), span: name.span });
        }
        Some(Self { settings, adopt })
    }
}

record!(Table, Rings, Channels, Coalesce, Pause);

/// Reports words that stand for the same feature of the kernel.
fn refuse_overlaps(settings: &[Declared], fields: &mut Fields<'_>) {
    for (index, one) in settings.iter().enumerate() {
        for other in settings.iter().take(index) {
            let (Setting::Feature(second), Setting::Feature(first)) =
                (&one.setting, &other.setting)
            else {
                continue;
            };
            if stands_for(first, second) || stands_for(second, first) {
                let message = if first == second {
                    format!("`{second}` is declared twice")
                } else {
                    format!("`{first}` and `{second}` are about the same feature")
                };
                let twice = Diagnostic::new(one.span, message);
                fields.report(twice.also(other.span, "the first is here").help("keep one of them"));
            }
        }
    }
}

/// Numbers and switches of one group.
macro_rules! table {
    ($name:ident, $record:literal, $doc:literal, $group:expr) => {
        struct $name(Vec<(Setting, Value)>);

        impl Record for $name {
            const NAME: &'static str = $record;
            const DOC: &'static str = $doc;

            fn read(fields: &mut Fields<'_>) -> Option<Self> {
                Some(Self(numbers(fields, $group)))
            }
        }
    };
}

table!(Rings, "rings", "Sizes of rings, in descriptors", Group::Rings);
table!(Channels, "channels", "Numbers of queues", Group::Channels);
table!(
    Coalesce,
    "coalesce",
    "When the card interrupts; what a driver lacks is refused",
    Group::Coalesce
);
table!(Pause, "pause", "Pause frames", Group::Pause);

const COUNT: Number<u32> = Number { what: "a number", least: 0, most: u32::MAX };

fn numbers(fields: &mut Fields<'_>, group: Group) -> Vec<(Setting, Value)> {
    let mut found = Vec::new();
    for spec in SPECS.iter().filter(|spec| spec.group == group) {
        let value = match spec.form {
            Form::Number => fields.number(spec.word, spec.doc, COUNT).map(Value::Number),
            Form::Switch => fields.optional(spec.word, spec.doc).map(Value::Switch),
        };
        found.extend(value.map(|value| (Setting::Number(spec), value)));
    }
    found
}

/// A feature or a flag by its name.
struct Named {
    name: Spanned<String>,
    on: bool,
}

impl Keyed for Named {
    const KEY: &'static str =
        "a name that `ethtool` shows, such as `tso`, `rx-gro-hw` or `tx-udp-segmentation`";

    fn read_entry(name: &Spanned<String>, node: &Node, checker: &mut Checker) -> Option<Self> {
        if !is_name(name) {
            let message = ValueError::is_not(name, "the name of a feature or a flag").message;
            let help = "write it as `ethtool` shows it, such as \"rx-gro-hw\"";
            checker.report(Diagnostic::new(name.span, message).help(help));
            return None;
        }
        let on = bool::read(node, checker)?;
        Some(Self { name: name.clone(), on })
    }

    fn entry_schema(definitions: &mut Definitions) -> Json {
        let mut schema = bool::schema(definitions);
        schema["description"] = json!("Whether it is on");
        schema
    }
}

/// Implements a word that is one of a list.
macro_rules! word {
    ($name:ident, $what:literal, $words:expr) => {
        struct $name(&'static str);

        impl Text for $name {
            const WHAT: &'static str = $what;

            fn from_text(text: &str) -> Result<Self, ValueError> {
                let word = $words.into_iter().find(|word| *word == text);
                word.map($name).ok_or_else(|| {
                    let words = $words.join(", ");
                    ValueError::is_not(text, Self::WHAT).help(format!("the words are {words}"))
                })
            }

            fn words() -> Vec<&'static str> {
                $words.to_vec()
            }
        }
    };
}

word!(
    WakeMode,
    "what wakes a machine",
    ["phy", "ucast", "mcast", "bcast", "arp", "magic", "filter"]
);
word!(FecMode, "a mode of FEC", ["auto", "off", "rs", "baser", "llrs"]);

/// At least one: a driver cannot be told none.
struct FecModes(Vec<FecMode>);

impl Shape for FecModes {
    fn read(node: &Node, checker: &mut Checker) -> Option<Self> {
        if read_list(node, checker)?.is_empty() {
            let empty = Diagnostic::new(node.span, "`fec` is an empty list");
            checker.report(empty.help("write [\"off\"] to switch it off, or leave it out"));
            return None;
        }
        Vec::read(node, checker).map(Self)
    }

    fn schema(definitions: &mut Definitions) -> Json {
        let mut schema = Vec::<FecMode>::schema(definitions);
        schema["minItems"] = json!(1);
        schema
    }
}

/// The links of a scope that say something.
pub(crate) fn links(scope: &Scope) -> impl Iterator<Item = &LinkEthtool> {
    scope.extensions::<LinkEthtool>()
}

/// Every declared setting of a scope.
pub fn keys(scope: &Scope) -> impl Iterator<Item = Key> + '_ {
    links(scope).flat_map(LinkEthtool::wanted).map(|(key, _)| key)
}

/// Where a scope declares a setting.
#[must_use]
pub fn written(scope: &Scope, key: &Key) -> Option<Span> {
    let link = links(scope).find(|link| link.link == key.link)?;
    let mut declared = link.table.as_ref()?.settings.iter();
    declared.find(|declared| declared.setting == key.setting).map(|declared| declared.span)
}

/// What a scope declares.
#[must_use]
pub fn desired(scope: &Scope) -> DesiredState {
    let optional = links(scope).filter(|link| link.is_optional).map(|link| link.link.clone());
    let optional: BTreeSet<String> = optional.collect();
    DesiredState::of(links(scope).flat_map(LinkEthtool::wanted).collect(), optional)
}

/// Observed values, as a section of a document.
pub fn show(found: impl IntoIterator<Item = (Key, Value)>) -> serde_json::Map<String, Json> {
    let mut all = json!({});
    for (Key { link, setting }, value) in found {
        let table = &mut all[LinkEthtool::SECTION][link][LinkEthtool::FIELD];
        let place = match setting.group() {
            Group::Features => &mut table["features"][setting.name()],
            Group::PrivateFlags => &mut table["private-flags"][setting.name()],
            group @ (Group::WakeOnLan | Group::Fec) => &mut table[group.word()],
            group => &mut table[group.word()][setting.name()],
        };
        // Features of a word that are neither all on nor all off have no place in a document.
        let value = value.json();
        if !value.is_object() {
            *place = value;
        }
    }
    match all {
        Json::Object(sections) => sections,
        _ => serde_json::Map::new(),
    }
}
