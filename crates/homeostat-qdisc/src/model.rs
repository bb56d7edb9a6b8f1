//! What a link's side is to be, and what it is: a root qdisc with its classes, or a redirection of what comes in.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use homeostat_core::desired::find_near;
use homeostat_core::{Agreement, Desired, Slot};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::key::{Key, LinkName};
use crate::kinds::{HTB_CLASS, Options, Spec, spec};

/// The id of a class below its qdisc, in hexadecimal as in `tc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(u16);

impl ClassId {
    /// The largest: the handle of a class's own qdisc is made of it.
    pub const MOST: u16 = 0xfff;
    pub const WHAT: &'static str = "the id of a class: hexadecimal, from \"1\" to \"fff\"";

    #[must_use]
    pub fn new(id: u16) -> Option<Self> {
        (1..=Self::MOST).contains(&id).then_some(ClassId(id))
    }

    #[must_use]
    pub fn get(self) -> u16 {
        self.0
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not {what}", what = ClassId::WHAT)]
pub struct NotAClassId(pub String);

impl FromStr for ClassId {
    type Err = NotAClassId;

    fn from_str(text: &str) -> Result<Self, NotAClassId> {
        let is_plain =
            text.bytes().all(|byte| byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase());
        let id = u16::from_str_radix(text, 16).ok().filter(|_| is_plain && !text.starts_with('0'));
        id.and_then(ClassId::new).ok_or_else(|| NotAClassId(text.to_owned()))
    }
}

impl fmt::Display for ClassId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// A qdisc without what is below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qdisc {
    /// As `tc` calls it; one of [`KINDS`](crate::kinds::KINDS) where it is declared.
    pub kind: String,
    pub options: Options,
}

/// A class of htb.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// The class that it borrows from.
    pub parent: Option<ClassId>,
    pub options: Options,
    /// Its own qdisc, if that is ours.
    pub leaf: Option<Qdisc>,
}

/// The root qdisc of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    pub qdisc: Qdisc,
    pub classes: BTreeMap<ClassId, Class>,
}

/// What happens to what comes in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ingress {
    /// The link that it is sent to, where that is by our filter.
    pub redirect: Option<LinkName>,
}

/// What is on one side of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Side {
    Root(Root),
    Ingress(Ingress),
}

/// What is on one side of a link, and which link it was seen on.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub struct Object {
    pub side: Side,
    /// The number of the link: another link of the same name has another one. A desired state is for any.
    pub link: Option<u32>,
    /// Whether it is known as ours by its handle alone: the ledger has no record of it yet.
    pub is_unrecorded: bool,
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        self.side == other.side
    }
}

impl Object {
    #[must_use]
    pub fn new(side: Side) -> Self {
        Object { side, link: None, is_unrecorded: false }
    }

    /// As a field of the link in a document.
    #[must_use]
    pub fn words(&self) -> Value {
        Value::Object(match &self.side {
            Side::Root(root) => root.words(),
            Side::Ingress(Ingress { redirect }) => {
                let name = redirect.as_ref().map(LinkName::as_str);
                name.into_iter().map(|name| ("redirect".to_owned(), json!(name))).collect()
            }
        })
    }
}

impl Object {
    /// The same beside what it becomes: what that does not declare does not change, and is left out.
    pub(crate) fn words_beside(&self, after: Option<&Object>) -> Value {
        let mut words = self.words();
        if let (Value::Object(fields), Some(Value::Object(after))) =
            (&mut words, after.map(Object::words))
            && fields.get("kind") == after.get("kind")
        {
            fields.retain(|name, _| after.contains_key(name));
        }
        words
    }
}

impl From<Object> for Value {
    fn from(object: Object) -> Self {
        object.words()
    }
}

/// A record that another version of the program has written.
#[derive(Debug, thiserror::Error)]
#[error("it is neither a qdisc nor an ingress")]
pub struct NotAnObject;

impl TryFrom<Value> for Object {
    type Error = NotAnObject;

    fn try_from(value: Value) -> Result<Self, NotAnObject> {
        let table = value.as_object().ok_or(NotAnObject)?;
        if table.contains_key("kind") {
            return Root::of_words(table).map(|root| Object::new(Side::Root(root)));
        }
        let redirect = table.get("redirect").and_then(Value::as_str);
        let redirect = redirect.map(str::parse).transpose().map_err(|_| NotAnObject)?;
        Ok(Object::new(Side::Ingress(Ingress { redirect })))
    }
}

impl Qdisc {
    #[must_use]
    pub fn spec(&self) -> Option<&'static Spec> {
        spec(&self.kind)
    }

    fn agrees(&self, seen: &Qdisc) -> bool {
        self.kind == seen.kind
            && self.spec().is_some_and(|spec| spec.agrees(&self.options, &seen.options))
    }

    /// Whether a change of one that is there fulfils it.
    pub(crate) fn can_change(&self, seen: &Qdisc) -> bool {
        self.kind == seen.kind
            && self.spec().is_some_and(|spec| spec.can_change(&self.options, &seen.options))
    }

    pub(crate) fn words(&self) -> Map<String, Value> {
        let mut words = Map::from_iter([("kind".to_owned(), json!(self.kind))]);
        words.extend(self.spec().map(|spec| spec.words(&self.options)).unwrap_or_default());
        words
    }

    fn of_words(words: &Map<String, Value>) -> Result<Self, NotAnObject> {
        let kind = words.get("kind").and_then(Value::as_str).ok_or(NotAnObject)?.to_owned();
        let options = spec(&kind).map(|spec| spec.of_words(words)).unwrap_or_default();
        Ok(Qdisc { kind, options })
    }
}

impl Class {
    /// Whether the class itself is as declared, whatever its qdisc is.
    pub(crate) fn agrees(&self, seen: &Class) -> bool {
        self.parent == seen.parent && HTB_CLASS.agrees(&self.options, &seen.options)
    }

    pub(crate) fn words(&self) -> Map<String, Value> {
        let mut words = HTB_CLASS.words(&self.options);
        words.extend(self.parent.map(|parent| ("parent".to_owned(), json!(parent.to_string()))));
        words.extend(self.leaf.as_ref().map(|leaf| ("qdisc".to_owned(), leaf.words().into())));
        words
    }

    /// The same beside what it becomes: what that does not declare does not change, and is left out.
    pub(crate) fn words_beside(&self, after: &Class) -> Map<String, Value> {
        let (mut words, after) = (self.words(), after.words());
        words.retain(|name, _| after.contains_key(name));
        words
    }

    /// Whether its qdisc is as declared.
    pub(crate) fn leaf_agrees(&self, seen: &Class) -> bool {
        match (&self.leaf, &seen.leaf) {
            (Some(wanted), Some(seen)) => wanted.agrees(seen),
            (wanted, seen) => wanted.is_none() && seen.is_none(),
        }
    }
}

impl Root {
    fn agrees(&self, seen: &Root) -> bool {
        let is_same_class = |(id, class): (&ClassId, &Class)| {
            let seen = seen.classes.get(id);
            seen.is_some_and(|seen| class.agrees(seen) && class.leaf_agrees(seen))
        };
        self.qdisc.agrees(&seen.qdisc)
            && self.classes.len() == seen.classes.len()
            && self.classes.iter().all(is_same_class)
    }

    /// Whether what differs can be changed without taking the root away.
    pub(crate) fn can_change(&self, seen: &Root) -> bool {
        let has_moved = |(id, class): (&ClassId, &Class)| {
            seen.classes.get(id).is_some_and(|seen| seen.parent != class.parent)
        };
        self.qdisc.can_change(&seen.qdisc) && !self.classes.iter().any(has_moved)
    }

    /// The classes, each after its parent.
    pub(crate) fn top_down(&self) -> Vec<ClassId> {
        let mut all: Vec<(usize, ClassId)> =
            self.classes.keys().map(|id| (self.depth(*id), *id)).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, id)| id).collect()
    }

    /// How many classes are above one; a circle has more than there are classes.
    pub(crate) fn depth(&self, id: ClassId) -> usize {
        let above = |id: &ClassId| self.classes.get(id).and_then(|class| class.parent);
        std::iter::successors(Some(id), above).skip(1).take(self.classes.len() + 1).count()
    }

    fn words(&self) -> Map<String, Value> {
        let mut words = self.qdisc.words();
        if self.classes.is_empty() {
            return words;
        }
        let classes = self.classes.iter();
        let classes = classes.map(|(id, class)| (id.to_string(), Value::Object(class.words())));
        words.insert("classes".to_owned(), Value::Object(classes.collect()));
        words
    }

    fn of_words(words: &Map<String, Value>) -> Result<Self, NotAnObject> {
        let mut classes = BTreeMap::new();
        let written = words.get("classes").and_then(Value::as_object);
        for (id, class) in written.into_iter().flatten() {
            let words = class.as_object().ok_or(NotAnObject)?;
            let parent = words.get("parent").and_then(Value::as_str);
            let leaf = words.get("qdisc").and_then(Value::as_object);
            let class = Class {
                parent: parent.map(str::parse).transpose().map_err(|_| NotAnObject)?,
                options: HTB_CLASS.of_words(words),
                leaf: leaf.map(Qdisc::of_words).transpose()?,
            };
            classes.insert(id.parse().map_err(|_| NotAnObject)?, class);
        }
        Ok(Root { qdisc: Qdisc::of_words(words)?, classes })
    }
}

/// What one side of a link is to be.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    pub side: Side,
    /// Whether it may be taken over from another owner.
    pub adopt: bool,
}

/// The sides of links that are to be something, sorted by key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DesiredState {
    sides: Vec<(Key, Wanted)>,
    /// Links that may be absent.
    optional: BTreeSet<LinkName>,
    /// Sides where the kernel's default is to be.
    defaults: BTreeSet<Key>,
}

impl DesiredState {
    /// What is declared first of a key counts.
    #[must_use]
    pub fn new(sides: impl IntoIterator<Item = (Key, Wanted)>) -> Self {
        let mut sides: Vec<_> = sides.into_iter().collect();
        sides.sort_by(|(a, _), (b, _)| a.cmp(b));
        sides.dedup_by(|(later, _), (first, _)| later == first);
        DesiredState { sides, ..DesiredState::default() }
    }

    /// The same, where these sides are to be the kernel's default: what has our mark there is deleted, also if the ledger does
    /// not know it.
    #[must_use]
    pub fn with_defaults(mut self, sides: impl IntoIterator<Item = Key>) -> Self {
        self.defaults.extend(sides);
        self
    }

    /// Whether a side is to be the kernel's default.
    pub(crate) fn is_default(&self, key: &Key) -> bool {
        self.defaults.contains(key)
    }

    /// All sides of which something is declared.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.sides.iter().map(|(key, _)| key).chain(&self.defaults)
    }

    /// The same, where these links may be absent: what waits for them counts as converged.
    #[must_use]
    pub fn with_optional(mut self, links: impl IntoIterator<Item = LinkName>) -> Self {
        self.optional.extend(links);
        self
    }

    /// In key order.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Wanted)> {
        self.sides.iter().map(|(key, wanted)| (key, wanted))
    }

    pub(crate) fn is_optional(&self, link: &LinkName) -> bool {
        self.optional.contains(link)
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "core asks only for slots that this desired state gave out"
    )]
    pub(crate) fn at(&self, slot: Slot) -> (&Key, &Wanted) {
        let (key, wanted) = &self.sides[slot.index()];
        (key, wanted)
    }
}

impl Desired for DesiredState {
    type Key = Key;
    type Object = Object;

    fn len(&self) -> usize {
        self.sides.len()
    }

    fn slot(&self, key: &Key, near: Option<Slot>) -> Option<Slot> {
        find_near(&self.sides, near, |desired| desired.0.cmp(key))
    }

    fn key(&self, slot: Slot) -> Key {
        self.at(slot).0.clone()
    }

    fn object(&self, slot: Slot) -> Object {
        Object::new(self.at(slot).1.side.clone())
    }

    fn compare(&self, slot: Slot, seen: &Object) -> Agreement {
        let agrees = match (&self.at(slot).1.side, &seen.side) {
            (Side::Root(wanted), Side::Root(seen)) => wanted.agrees(seen),
            (Side::Ingress(wanted), Side::Ingress(seen)) => wanted == seen,
            _ => false,
        };
        // A step, if only an empty one, puts it into the ledger.
        Agreement::when(agrees && !seen.is_unrecorded)
    }

    fn may_adopt(&self, slot: Slot) -> bool {
        self.at(slot).1.adopt
    }

    fn identity(&self, seen: &Object) -> Option<String> {
        seen.link.map(|link| link.to_string())
    }

    fn is_same(&self, slot: Slot, other: &Self, there: Slot) -> bool {
        self.at(slot).1 == other.at(there).1
    }

    fn is_same_desired(&self, other: &Self) -> bool {
        self == other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_record_holds_reads_back() {
        let leaf = Qdisc { kind: "fq_codel".to_owned(), options: Options::from([("limit", 100)]) };
        let class = |parent: Option<u16>, leaf| Class {
            parent: parent.and_then(ClassId::new),
            options: Options::from([("rate", 125_000)]),
            leaf,
        };
        let id = |id| ClassId::new(id).unwrap();
        let classes = [(id(1), class(None, None)), (id(0x10), class(Some(1), Some(leaf)))];
        let qdisc = Qdisc { kind: "htb".to_owned(), options: Options::from([("default", 16)]) };
        let root = Side::Root(Root { qdisc, classes: classes.into() });
        let foreign = Qdisc { kind: "sfq".to_owned(), options: Options::new() };
        let foreign = Side::Root(Root { qdisc: foreign, classes: BTreeMap::new() });
        let redirect = Side::Ingress(Ingress { redirect: Some("ifb0".parse().unwrap()) });
        let plain = Side::Ingress(Ingress { redirect: None });
        for side in [root, foreign, redirect, plain] {
            let object = Object::new(side);
            let text = serde_json::to_string(&object).unwrap();
            assert_eq!(serde_json::from_str::<Object>(&text).unwrap(), object, "{text}");
        }
    }

    #[test]
    fn class_ids_are_hexadecimal() {
        assert_eq!("10".parse::<ClassId>().unwrap().get(), 16);
        for text in ["", "0", "1000", "A", "0x1", "01", "1:10", "-1", "+1"] {
            assert!(text.parse::<ClassId>().is_err(), "{text}");
        }
    }
}
