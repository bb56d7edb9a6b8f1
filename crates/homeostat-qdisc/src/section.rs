//! The fields of a link in the document: `[links.NAME.qdisc]` and `[links.NAME.ingress]`.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use homeostat_document::{
    Definitions, Diagnostic, Extension, ExtensionType, Fields, Json, Kinds, Map, NamedRecord, Node,
    Number, Record, Scope, Shape, SourceSections, Span, Spanned, Text, Value, ValueError, record,
    refuse,
};
use serde_json::json;

use crate::key::{Key, LinkName, NotALink, Side as KeySide};
use crate::kinds::{
    ACK_FILTER, ATM, DIFFSERV, HTB_CLASS, ISOLATION, KINDS, Opt, Options, Spec, Unit, Words, spec,
};
use crate::model::{Class, ClassId, DesiredState, Ingress, Object, Qdisc, Root, Side, Wanted};
use crate::quantity::{NotAQuantity, Rate, Share, Size, Time};

/// All that qdiscs add to documents.
pub const SECTIONS: SourceSections = SourceSections {
    extensions: &[ExtensionType::of::<LinkQueues>()],
    ..SourceSections::new("qdisc", &[])
};

/// The section that links are in.
pub const LINKS: &str = "links";
/// The field by which a link may be absent, which the network reads.
const OPTIONAL: &str = "optional";

/// What one link says of its queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkQueues {
    /// Nothing, if the name is none that a link can have, which is reported where links are read.
    pub link: Option<LinkName>,
    pub qdisc: Stated<Root>,
    pub ingress: Stated<Ingress>,
    /// Whether the link may be absent.
    pub is_optional: bool,
}

/// What a link says of one of its sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stated<T> {
    /// Nothing.
    Not,
    /// An empty table: the kernel's default is to be there.
    Default,
    /// This, written here; and whether it may be taken over from another owner.
    Is { what: T, adopt: bool, span: Span },
}

impl<T> Stated<T> {
    /// Whether it is written.
    pub fn is_written(&self) -> bool {
        !matches!(self, Stated::Not)
    }
}

impl Extension for LinkQueues {
    const RECORD: &'static str = "link";
    const JOINED: &'static [&'static str] = &["links/*/qdisc", "links/*/ingress"];

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let (qdisc_at, ingress_at) = (fields.at("qdisc"), fields.at("ingress"));
        let is_optional = fields.is_true(OPTIONAL);
        let qdisc: Option<DeclaredRoot> =
            fields.optional("qdisc", "How it queues and shapes what it sends");
        let ingress: Option<DeclaredIngress> =
            fields.optional("ingress", "Where what comes in is sent instead");
        // Another source reports a name that no link can have.
        let name: Spanned<String> = fields.name()?;
        let link: Option<LinkName> = name.value.parse().ok();
        if let Some(DeclaredIngress(Declared::Is(one))) = &ingress
            && Some(&one.redirect.value.0) == link.as_ref()
        {
            let span = one.redirect.span;
            fields.report(Diagnostic::new(span, "a link cannot be redirected to itself"));
        }
        let qdisc = stated(qdisc.map(|one| one.0), qdisc_at, |one| (one.root, one.adopt));
        let ingress = stated(ingress.map(|one| one.0), ingress_at, |one| {
            (Ingress { redirect: Some(one.redirect.value.0) }, one.adopt)
        });
        Some(Self { link, qdisc, ingress, is_optional })
    }
}

fn stated<T, U>(
    read: Option<Declared<T>>,
    span: Span,
    split: impl FnOnce(T) -> (U, bool),
) -> Stated<U> {
    match read {
        None => Stated::Not,
        Some(Declared::Default) => Stated::Default,
        Some(Declared::Is(one)) => {
            let (what, adopt) = split(one);
            Stated::Is { what, adopt, span }
        }
    }
}

/// Every link of a scope that says something of its queues, or could.
pub fn links(scope: &Scope) -> impl Iterator<Item = &LinkQueues> {
    scope.extensions::<LinkQueues>()
}

/// Whether a scope says anything of queues.
#[must_use]
pub fn is_stated(scope: &Scope) -> bool {
    links(scope).any(|link| link.qdisc.is_written() || link.ingress.is_written())
}

/// Every declared side, with the place where it is written.
pub fn sides(scope: &Scope) -> impl Iterator<Item = (Key, Wanted, Span)> + '_ {
    links(scope).flat_map(|one| {
        let root = match &one.qdisc {
            Stated::Is { what, adopt, span } => Some((Side::Root(what.clone()), *adopt, *span)),
            _ => None,
        };
        let ingress = match &one.ingress {
            Stated::Is { what, adopt, span } => Some((Side::Ingress(what.clone()), *adopt, *span)),
            _ => None,
        };
        let sides = [(KeySide::Root, root), (KeySide::Ingress, ingress)];
        sides.into_iter().filter_map(|(side, found)| {
            let (what, adopt, span) = found?;
            let key = Key::new(one.link.clone()?, side);
            Some((key, Wanted { side: what, adopt }, span))
        })
    })
}

/// What a scope declares.
#[must_use]
pub fn desired(scope: &Scope) -> DesiredState {
    let optional = links(scope).filter(|link| link.is_optional);
    let optional = optional.filter_map(|link| link.link.clone());
    let defaults = links(scope).flat_map(|one| {
        let sides = [
            (KeySide::Root, matches!(one.qdisc, Stated::Default)),
            (KeySide::Ingress, matches!(one.ingress, Stated::Default)),
        ];
        let defaults = sides.into_iter().filter(|(_, is_default)| *is_default);
        defaults.filter_map(|(side, _)| Some(Key::new(one.link.clone()?, side)))
    });
    DesiredState::new(sides(scope).map(|(key, wanted, _)| (key, wanted)))
        .with_optional(optional)
        .with_defaults(defaults)
}

/// Observed sides, as fields of links.
pub fn show(found: impl IntoIterator<Item = (Key, Object)>) -> serde_json::Map<String, Json> {
    let mut links = serde_json::Map::new();
    for (key, object) in found {
        let link = links.entry(key.link.to_string()).or_insert_with(|| json!({}));
        link[key.side.word()] = object.words();
    }
    if links.is_empty() {
        return links;
    }
    serde_json::Map::from_iter([(LINKS.to_owned(), Json::Object(links))])
}

/// What a table says.
enum Declared<T> {
    /// It is empty.
    Default,
    Is(T),
}

struct DeclaredRoot(Declared<ReadRoot>);

struct ReadRoot {
    root: Root,
    adopt: bool,
}

struct DeclaredIngress(Declared<ReadIngress>);

struct ReadIngress {
    redirect: Spanned<DeclaredLink>,
    adopt: bool,
}

/// The qdisc of a class.
struct Leaf(Qdisc);

record!(DeclaredRoot, DeclaredIngress, Leaf);

const ADOPT: &str = "Take this over from any owner";

impl Record for DeclaredRoot {
    const NAME: &'static str = "qdisc";
    const DOC: &'static str =
        "How a link queues and shapes what it sends; an empty table is the kernel's default";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let (kind, qdisc) = read_qdisc(fields, |_| true);
        let adopt = fields.flag("adopt", ADOPT);
        let classes: Option<Map<DeclaredClass>> = fields.of_kinds(HTB_ONLY, |fields| {
            fields.optional("classes", "Its classes, by their ids in hexadecimal")
        });
        if kind.is_none() && fields.lacks(&["kind", "adopt", "classes"]) {
            return Some(Self(Declared::Default));
        }
        if !fields.has("kind") {
            let message = "a qdisc needs a kind";
            let help =
                "write `kind = \"fq_codel\"`, or leave the table empty for the kernel's default";
            fields.report(Diagnostic::new(fields.span(), message).help(help));
        }
        let (qdisc, kind) = (qdisc?, kind?);
        let classes = classes.map(|Map(classes)| classes).unwrap_or_default();
        check_classes(&classes, &qdisc, fields);
        check_options(&kind, &qdisc, fields);
        let classes = classes.into_iter().map(|one| (one.id.value, one.class)).collect();
        Some(Self(Declared::Is(ReadRoot { root: Root { qdisc, classes }, adopt })))
    }
}

impl Record for DeclaredIngress {
    const NAME: &'static str = "ingress";
    const DOC: &'static str =
        "Where what comes in at a link is sent instead; an empty table is the kernel's default";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let redirect: Option<Spanned<DeclaredLink>> =
            fields.optional("redirect", "The link that shapes it, usually one of kind `ifb`");
        let adopt = fields.flag("adopt", ADOPT);
        if fields.lacks(&["redirect", "adopt"]) {
            return Some(Self(Declared::Default));
        }
        if !fields.has("redirect") {
            let message = "an ingress needs `redirect`";
            let help =
                "write `redirect = \"ifb0\"`, or leave the table empty for the kernel's default";
            fields.report(Diagnostic::new(fields.span(), message).help(help));
        }
        Some(Self(Declared::Is(ReadIngress { redirect: redirect?, adopt })))
    }
}

impl Record for Leaf {
    const NAME: &'static str = "class-qdisc";
    const DOC: &'static str = "How a class queues what it sends";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let (kind, qdisc) = read_qdisc(fields, |spec| !spec.has_classes());
        if !fields.has("kind") {
            let message = "a qdisc needs a kind";
            let help = "write `kind = \"fq_codel\"`, or leave the table out";
            fields.report(Diagnostic::new(fields.span(), message).help(help));
        }
        let (kind, qdisc) = (kind?, qdisc?);
        check_options(&kind, &qdisc, fields);
        Some(Self(qdisc))
    }
}

struct DeclaredClass {
    id: Spanned<ClassId>,
    parent: Option<Spanned<ClassId>>,
    class: Class,
}

impl NamedRecord for DeclaredClass {
    const KEY: &'static str = "the id of a class, in hexadecimal as in `tc`: `10` is `4000:10`";
}

impl Record for DeclaredClass {
    const NAME: &'static str = "class";
    const DOC: &'static str = "A class of htb";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let id: Option<Spanned<ClassId>> = fields.name();
        let parent: Option<Spanned<ClassId>> =
            fields.optional("parent", "The class that it borrows from");
        let options = read_options(&HTB_CLASS, fields);
        require(&HTB_CLASS, "class", fields);
        let leaf: Option<Leaf> = fields.optional("qdisc", "Its own qdisc; pfifo without one");
        if let (Some(rate), Some(ceil)) = (options.get("rate"), options.get("ceil"))
            && ceil < rate
        {
            let message = "the ceil of a class is less than its rate";
            let help =
                "leave `ceil` out, or write a larger one: what it may borrow is between them";
            fields.report(Diagnostic::new(fields.value_at("ceil"), message).help(help));
        }
        let class = Class {
            parent: parent.as_ref().map(|parent| parent.value),
            options,
            leaf: leaf.map(|Leaf(qdisc)| qdisc),
        };
        Some(Self { id: id?, parent, class })
    }
}

/// Parents must be there and in no circle, and only a class without classes has a qdisc or is the default.
fn check_classes(classes: &[DeclaredClass], qdisc: &Qdisc, fields: &mut Fields<'_>) {
    let by_id: BTreeMap<ClassId, Class> =
        classes.iter().map(|one| (one.id.value, one.class.clone())).collect();
    let is_parent = |id| by_id.values().any(|class| class.parent == Some(id));
    let all = Root { qdisc: qdisc.clone(), classes: by_id.clone() };
    for one in classes {
        let id = one.id.value;
        if one.class.leaf.is_some() && is_parent(id) {
            let message = format!("the class `{id}` has classes, so it cannot have a qdisc");
            let help = "give each of its classes a qdisc";
            fields.report(Diagnostic::new(one.id.span, message).help(help));
        }
        let Some(parent) = &one.parent else { continue };
        if !by_id.contains_key(&parent.value) {
            let message = format!("there is no class `{}`", parent.value);
            fields.report(Diagnostic::new(parent.span, message).help("declare it among `classes`"));
        } else if all.depth(id) > by_id.len() {
            let message = format!("the parents of the class `{id}` are a circle");
            fields.report(Diagnostic::new(parent.span, message));
        } else if all.depth(id) >= DEEPEST {
            let message = format!("the class `{id}` is too deep: htb has {DEEPEST} levels");
            fields.report(Diagnostic::new(parent.span, message));
        }
    }
    let default = qdisc.options.get("default").and_then(|id| u16::try_from(*id).ok());
    let Some(default) = default.and_then(ClassId::new) else { return };
    let help = "name a class that has no classes";
    if !by_id.contains_key(&default) {
        let message = format!("there is no class `{default}`");
        fields.report(Diagnostic::new(fields.value_at("default"), message).help(help));
    } else if is_parent(default) {
        let message = format!("the class `{default}` has classes, so no packet is put into it");
        fields.report(Diagnostic::new(fields.value_at("default"), message).help(help));
    }
}

/// `TC_HTB_MAXDEPTH`.
const DEEPEST: usize = 8;

/// What options say of each other.
fn check_options(kind: &Spanned<Kind>, qdisc: &Qdisc, fields: &mut Fields<'_>) {
    let value = |name: &str| qdisc.options.get(name).copied();
    match kind.value.0.name {
        "netem" if value("reorder").is_some_and(|share| share > 0) && value("delay").is_none() => {
            let message = "`reorder` needs a delay: packets are sent before those that wait";
            let wrong = Diagnostic::new(fields.at("reorder"), message);
            fields.report(wrong.help("add `delay = \"10ms\"`"));
        }
        "netem"
            if value("delay").is_some() == fields.has("delay")
                && value("jitter").is_some_and(|jitter| jitter > value("delay").unwrap_or(0)) =>
        {
            let message = "`jitter` is larger than `delay`";
            fields.report(Diagnostic::new(fields.value_at("jitter"), message));
        }
        "fq" if value("buckets").is_some_and(|buckets| buckets.count_ones() != 1) => {
            let message = "`buckets` is not a power of two";
            fields.report(Diagnostic::new(fields.value_at("buckets"), message));
        }
        _ => {}
    }
}

/// A qdisc of one of the kinds that fit, and its kind.
fn read_qdisc(
    fields: &mut Fields<'_>,
    fits: fn(&Spec) -> bool,
) -> (Option<Spanned<Kind>>, Option<Qdisc>) {
    let kind: Option<Spanned<Kind>> = fields.optional("kind", "Which one it is");
    let kind = kind.filter(|kind| {
        let is_fitting = fits(kind.value.0);
        if !is_fitting {
            let message = format!("a class cannot have a qdisc of kind `{}`", kind.value.0.name);
            let help = "write the classes below it as classes with `parent`";
            fields.report(Diagnostic::new(kind.span, message).help(help));
        }
        is_fitting
    });
    fields.set_kind(kind.as_ref().map(|kind| kind.value.0.name));
    let mut qdisc = None;
    for (only, one) in ONLY.iter().zip(KINDS).filter(|(_, one)| fits(one)) {
        // Fields of all kinds are asked for, so that each is known.
        let mut options = fields.of_kinds(only, |fields| read_options(one, fields));
        let latency = (one.name == "tbf").then(|| {
            let doc = "How long packets may wait, in place of `limit`";
            fields.of_kinds(only, |fields| fields.optional::<Time>("latency", doc))
        });
        if kind.as_ref().is_some_and(|kind| kind.value.0.name == one.name) {
            require(one, one.name, fields);
            if one.name == "tbf" {
                limit_of(latency.flatten(), &mut options, fields);
            }
            qdisc = Some(Qdisc { kind: one.name.to_owned(), options });
        }
    }
    (kind, qdisc)
}

/// A latency says how much may wait, as `tc` reads it: what is sent in that time, and the burst.
fn limit_of(latency: Option<Time>, options: &mut Options, fields: &mut Fields<'_>) {
    fields.exclusive("limit", "latency");
    if !fields.has("limit") && !fields.has("latency") {
        let message = "tbf needs `latency` or `limit`";
        let help = "add `latency = \"50ms\"`: how long packets may wait";
        fields.report(Diagnostic::new(fields.at("kind"), message).help(help));
    }
    let (Some(Time(latency)), Some(rate)) = (latency, options.get("rate")) else { return };
    let burst = options.get("burst").copied().unwrap_or_default();
    let waiting = i128::from(*rate) * i128::from(latency) / 1_000_000_000;
    if let Ok(limit) = u32::try_from(waiting + i128::from(burst)) {
        options.insert("limit", limit.into());
    } else {
        let message = "at this rate, more than 4 GB would wait for so long";
        fields.report(Diagnostic::new(fields.value_at("latency"), message));
    }
}

/// Reports options that are missing; `limit` of tbf may be said otherwise.
fn require(spec: &Spec, what: &str, fields: &mut Fields<'_>) {
    for name in spec.required {
        if fields.has(name) {
            continue;
        }
        let example = match (*name, spec.name) {
            ("rate", _) => "rate = \"10mbit\"",
            ("burst", _) => "burst = \"32k\"",
            (_, "bfifo") => "limit = \"64k\"",
            _ => "limit = 1000",
        };
        let message = format!("a {what} needs `{name}`");
        let place = if fields.has("kind") { fields.at("kind") } else { fields.span() };
        fields.report(Diagnostic::new(place, message).help(format!("add `{example}`")));
    }
}

fn read_options(spec: &Spec, fields: &mut Fields<'_>) -> Options {
    let all = spec.options.iter();
    all.filter_map(|option| Some((option.name, read_option(option, fields)?))).collect()
}

fn read_option(option: &Opt, fields: &mut Fields<'_>) -> Option<i64> {
    let Opt { name, doc, .. } = *option;
    match option.unit {
        Unit::Rate => fields.optional::<Rate>(name, doc).map(|Rate(value)| value),
        Unit::Size => fields.optional::<Bytes>(name, doc).map(|Bytes(value)| value),
        Unit::Time => fields.optional::<Time>(name, doc).map(|Time(value)| value),
        Unit::Share => fields.optional::<Share>(name, doc).map(|Share(value)| value),
        Unit::Count(least, most) => {
            fields.number(name, doc, Number { what: "a number in range", least, most })
        }
        Unit::Flag => fields.optional::<bool>(name, doc).map(i64::from),
        Unit::Class => fields.optional::<ClassId>(name, doc).map(|id| id.get().into()),
        Unit::Diffserv => word::<Diffserv>(name, doc, fields),
        Unit::Isolation => word::<Isolation>(name, doc, fields),
        Unit::AckFilter => word::<AckFilter>(name, doc, fields),
        Unit::Atm => word::<Atm>(name, doc, fields),
    }
}

fn word<V: Vocabulary>(name: &'static str, doc: &str, fields: &mut Fields<'_>) -> Option<i64> {
    fields.optional::<Word<V>>(name, doc).map(|word| word.0)
}

const HTB_ONLY: Kinds = &["htb"];

/// The kinds, in their order, each as the kinds that a field is for.
static ONLY: [Kinds; KINDS.len()] = {
    let mut only: [Kinds; KINDS.len()] = [HTB_ONLY; KINDS.len()];
    only[0] = &["fq_codel"];
    only[1] = &["fq"];
    only[2] = &["cake"];
    only[3] = &["tbf"];
    only[5] = &["netem"];
    only[6] = &["pfifo"];
    only[7] = &["bfifo"];
    only
};

/// A kind by its name.
struct Kind(&'static Spec);

impl Text for Kind {
    const WHAT: &'static str = "a kind of qdisc";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        spec(text).map(Kind).ok_or_else(|| refuse(text, Self::WHAT, &Self::words()))
    }

    fn words() -> Vec<&'static str> {
        KINDS.iter().map(|spec| spec.name).collect()
    }
}

/// Bytes, with or without a unit.
struct Bytes(i64);

impl Shape for Bytes {
    fn read(node: &Node, checker: &mut homeostat_document::Checker) -> Option<Self> {
        let most = i64::from(u32::MAX);
        match &node.value {
            Value::Int(_) => {
                Number { what: Size::WHAT, least: 0, most }.read(node, checker).map(Bytes)
            }
            _ => Size::read(node, checker).map(|Size(bytes)| Bytes(bytes)),
        }
    }

    fn schema(_: &mut Definitions) -> Json {
        json!({ "type": ["string", "integer"], "description": Size::WHAT })
    }
}

fn quantity<T>(read: Result<T, NotAQuantity>) -> Result<T, ValueError> {
    read.map_err(|error| ValueError::new(error.to_string()).help(error.help))
}

macro_rules! quantities {
    ($($name:ident),+) => {$(
        impl Text for $name {
            const WHAT: &'static str = $name::WHAT;

            fn from_text(text: &str) -> Result<Self, ValueError> {
                quantity(text.parse())
            }
        }
    )+};
}

quantities!(Rate, Size, Share);

impl Text for Time {
    const WHAT: &'static str = Time::WHAT;
    const ZERO: Option<&'static str> = Some("0s");

    fn from_text(text: &str) -> Result<Self, ValueError> {
        quantity(text.parse())
    }
}

impl Text for ClassId {
    const WHAT: &'static str = ClassId::WHAT;

    fn from_text(text: &str) -> Result<Self, ValueError> {
        text.parse().map_err(|_| ValueError::is_not(text, Self::WHAT))
    }
}

/// The name of a link that is referred to.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DeclaredLink(LinkName);

impl Text for DeclaredLink {
    const WHAT: &'static str = "the name of a link";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        let name: Result<LinkName, NotALink> = text.parse();
        name.map(DeclaredLink).map_err(|error| {
            ValueError::new(error.to_string())
                .help("it has at most 15 bytes, and no `/`, `:` or space")
        })
    }
}

/// One of a few words, as its number.
struct Word<V>(i64, PhantomData<V>);

trait Vocabulary {
    const WORDS: &'static Words;
}

impl<V: Vocabulary> Text for Word<V> {
    const WHAT: &'static str = V::WORDS.what;

    fn from_text(text: &str) -> Result<Self, ValueError> {
        let mut words = V::WORDS.words.iter();
        let word = words.find(|(word, _)| *word == text);
        word.map(|(_, number)| Word(i64::from(*number), PhantomData))
            .ok_or_else(|| refuse(text, Self::WHAT, &Self::words()))
    }

    fn words() -> Vec<&'static str> {
        V::WORDS.words.iter().map(|(word, _)| *word).collect()
    }
}

macro_rules! vocabularies {
    ($($name:ident = $words:ident),+) => {$(
        struct $name;

        impl Vocabulary for $name {
            const WORDS: &'static Words = &$words;
        }
    )+};
}

vocabularies!(Diffserv = DIFFSERV, Isolation = ISOLATION, AckFilter = ACK_FILTER, Atm = ATM);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_own_fields() {
        for (only, spec) in ONLY.iter().zip(KINDS) {
            assert_eq!(*only, [spec.name]);
        }
    }
}
