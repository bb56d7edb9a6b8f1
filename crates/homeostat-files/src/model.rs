//! Files and directories, declared and seen.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use homeostat_core::desired::find_near;
use homeostat_core::{Agreement, Desired, Slot};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value as Json, json};

use crate::digest::{Digest, DigestKey};
use crate::key::{FilePath, Key};
use crate::running::PLACEHOLDER;

/// What is on a path. Attributes that are not declared are none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Object {
    /// Seen only: nothing, where an original was. The record of the path must outlive it.
    Nothing,
    File(FileObject),
    Directory(Attributes),
    /// What a program runs: the generation of the set, or what it says in its place; nothing, if it is down.
    Program {
        generation: Option<String>,
    },
    /// Seen only.
    Other {
        what: Other,
    },
}

/// A regular file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileObject {
    pub digest: Digest,
    pub size: u64,
    #[serde(flatten)]
    pub attributes: Attributes,
    /// Whether nothing of its content may be shown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub secret: bool,
}

/// Owner, group and mode.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Account>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Account>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
}

impl Attributes {
    /// Whether everything that is declared here is as seen there.
    #[must_use]
    pub fn agrees(&self, seen: &Attributes) -> bool {
        let account = |declared: &Option<Account>, seen: &Option<Account>| match (declared, seen) {
            (None, _) => true,
            (Some(declared), Some(seen)) => declared.agrees(seen),
            (Some(_), None) => false,
        };
        account(&self.owner, &seen.owner)
            && account(&self.group, &seen.group)
            && self.mode.is_none_or(|mode| seen.mode == Some(mode))
    }
}

/// A user or a group: by its number, by its name, or by both where it was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl Account {
    /// As a document writes it: a number or a name.
    #[must_use]
    pub fn declared(text: &str) -> Self {
        match text.parse() {
            Ok(id) => Account { id: Some(id), name: None },
            Err(_) => Account { id: None, name: Some(text.to_owned()) },
        }
    }

    /// Whether a declared account is the one that was seen. Its number decides, if it has one.
    #[must_use]
    pub fn agrees(&self, seen: &Account) -> bool {
        match self.id {
            Some(_) => self.id == seen.id,
            None => self.name.is_some() && self.name == seen.name,
        }
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.name, self.id) {
            (Some(name), _) => f.write_str(name),
            (None, Some(id)) => write!(f, "{id}"),
            (None, None) => f.write_str("?"),
        }
    }
}

/// The permissions of a file: nine bits and the three above them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode(pub u16);

impl Mode {
    /// From octal digits: `0640`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_octal = (3..=4).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_digit());
        u16::from_str_radix(text, 8).ok().filter(|_| is_octal).map(Mode)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

impl Serialize for Mode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Mode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Mode::parse(&text).ok_or_else(|| serde::de::Error::custom("a mode has octal digits"))
    }
}

/// What is on a path in place of what its key speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Other {
    Symlink,
    Directory,
    File,
    Special,
}

impl fmt::Display for Other {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Other::Symlink => "a symbolic link",
            Other::Directory => "a directory",
            Other::File => "a file",
            Other::Special => "a device, pipe or socket",
        })
    }
}

/// The bytes of a file. Nothing prints them by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct Content(Arc<[u8]>);

impl Content {
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Self {
        Content(bytes.into())
    }

    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// So many digits distinguish generations.
const GENERATION: usize = 16;

/// A declared file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSpec {
    pub content: Content,
    pub attributes: Attributes,
    pub secret: bool,
    /// Whether it may be taken over from anybody.
    pub adopt: bool,
}

/// A declared directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectorySpec {
    pub attributes: Attributes,
    pub adopt: bool,
}

/// One entry of a desired state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub object: Object,
    /// Of a file.
    pub content: Option<Content>,
    pub adopt: bool,
}

/// What a set declares, in key order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesiredState(Vec<(Key, Wanted)>);

impl DesiredState {
    #[must_use]
    pub fn new(
        digests: &DigestKey,
        files: BTreeMap<FilePath, FileSpec>,
        directories: BTreeMap<FilePath, DirectorySpec>,
    ) -> Self {
        let directories = directories.into_iter().map(|(path, spec)| {
            let DirectorySpec { attributes, adopt } = spec;
            let object = Object::Directory(attributes);
            (Key::Directory(path), Wanted { object, content: None, adopt })
        });
        let files = files.into_iter().map(|(path, spec)| {
            let FileSpec { content, attributes, secret, adopt } = spec;
            let (digest, size) = (digests.digest(content.bytes()), content.bytes().len() as u64);
            let object = Object::File(FileObject { digest, size, attributes, secret });
            (Key::File(path), Wanted { object, content: Some(content), adopt })
        });
        // Directories sort before files, and maps are sorted.
        DesiredState(directories.chain(files).collect())
    }

    /// The same for a set that a program reads: in its files, [`PLACEHOLDER`] becomes the generation of the set.
    #[must_use]
    pub fn read_by_program(
        digests: &DigestKey,
        set: &str,
        mut files: BTreeMap<FilePath, FileSpec>,
        directories: BTreeMap<FilePath, DirectorySpec>,
    ) -> Self {
        let mut all = Vec::new();
        for (path, spec) in &files {
            all.extend_from_slice(path.as_str().as_bytes());
            all.push(0);
            all.extend_from_slice(digests.digest(spec.content.bytes()).as_str().as_bytes());
        }
        let generation: String = digests.digest(&all).as_str().chars().take(GENERATION).collect();
        for spec in files.values_mut() {
            if let Ok(text) = str::from_utf8(spec.content.bytes())
                && text.contains(PLACEHOLDER)
            {
                spec.content = Content::new(text.replace(PLACEHOLDER, &generation).into_bytes());
            }
        }
        let mut desired = Self::new(digests, files, directories);
        let object = Object::Program { generation: Some(generation) };
        // Programs sort behind everything else.
        let wanted = Wanted { object, content: None, adopt: false };
        desired.0.push((Key::Program(set.to_owned()), wanted));
        desired
    }

    /// The generation that the program of the set shall run.
    pub(crate) fn generation(&self) -> Option<(&Key, &str)> {
        match self.0.last()? {
            (key, Wanted { object: Object::Program { generation: Some(generation) }, .. }) => {
                Some((key, generation))
            }
            _ => None,
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &(Key, Wanted)> {
        self.0.iter()
    }

    pub(crate) fn wanted(&self, key: &Key) -> Option<&Wanted> {
        self.slot(key, None).map(|slot| self.at(slot).1)
    }

    pub(crate) fn at(&self, slot: Slot) -> (&Key, &Wanted) {
        let (key, wanted) = &self.0[slot.index()];
        (key, wanted)
    }
}

impl Object {
    /// Whether everything that is declared here is as seen there.
    #[must_use]
    pub fn agrees(&self, seen: &Object) -> bool {
        match (self, seen) {
            (Object::File(declared), Object::File(seen)) => {
                declared.digest == seen.digest && declared.attributes.agrees(&seen.attributes)
            }
            (Object::Directory(declared), Object::Directory(seen)) => declared.agrees(seen),
            (declared, seen) => declared == seen,
        }
    }

    /// Owner, group and mode; none where there is no file and no directory.
    #[must_use]
    pub fn attributes(&self) -> Option<&Attributes> {
        match self {
            Object::File(file) => Some(&file.attributes),
            Object::Directory(attributes) => Some(attributes),
            Object::Nothing | Object::Program { .. } | Object::Other { .. } => None,
        }
    }

    pub(crate) fn is_secret(&self) -> bool {
        matches!(self, Object::File(file) if file.secret)
    }

    /// As plans and reports show it. Nothing of a secret is shown, not even its length.
    #[must_use]
    pub fn shown(&self) -> Json {
        let attributes = self.attributes().into_iter().flat_map(|attributes| {
            let Attributes { owner, group, mode } = attributes;
            let account = |account: &Option<Account>| account.as_ref().map(ToString::to_string);
            let mode = mode.map(|mode| mode.to_string());
            [("owner", account(owner)), ("group", account(group)), ("mode", mode)]
        });
        let attributes =
            attributes.filter_map(|(name, text)| Some((name.to_owned(), text?.into())));
        let mut shown: serde_json::Map<String, Json> = attributes.collect();
        match self {
            Object::Nothing => return Json::Null,
            Object::File(FileObject { secret: true, .. }) => {
                shown.insert("content".to_owned(), json!("secret"));
            }
            Object::File(FileObject { digest, size, .. }) => {
                shown.insert("digest".to_owned(), json!(digest));
                shown.insert("size".to_owned(), json!(size));
            }
            Object::Directory(_) => {}
            Object::Program { generation } => {
                shown.insert("generation".to_owned(), json!(generation));
            }
            Object::Other { what } => return json!(what.to_string()),
        }
        Json::Object(shown)
    }
}

impl Desired for DesiredState {
    type Key = Key;
    type Object = Object;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn slot(&self, key: &Key, near: Option<Slot>) -> Option<Slot> {
        find_near(&self.0, near, |(own, _)| own.cmp(key))
    }

    fn key(&self, slot: Slot) -> Key {
        self.at(slot).0.clone()
    }

    fn object(&self, slot: Slot) -> Object {
        self.at(slot).1.object.clone()
    }

    fn compare(&self, slot: Slot, seen: &Object) -> Agreement {
        Agreement::when(self.at(slot).1.object.agrees(seen))
    }

    fn may_adopt(&self, slot: Slot) -> bool {
        self.at(slot).1.adopt
    }

    fn shown(&self, object: &Object) -> Json {
        object.shown()
    }

    fn is_same(&self, slot: Slot, other: &Self, there: Slot) -> bool {
        self.at(slot).1 == other.at(there).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(owner: Option<&str>, mode: Option<u16>) -> Attributes {
        Attributes { owner: owner.map(Account::declared), group: None, mode: mode.map(Mode) }
    }

    #[test]
    fn only_declared_attributes_count() {
        let root = Account { id: Some(0), name: Some("root".to_owned()) };
        let seen = Attributes { owner: Some(root), group: None, mode: Some(Mode(0o640)) };
        for (declared, expected) in [
            (attributes(None, None), true),
            (attributes(Some("root"), None), true),
            (attributes(Some("0"), Some(0o640)), true),
            (attributes(Some("7"), None), false),
            (attributes(Some("nobody"), None), false),
            (attributes(None, Some(0o600)), false),
        ] {
            assert_eq!(declared.agrees(&seen), expected, "{declared:?}");
        }
    }

    #[test]
    fn a_mode_has_octal_digits() {
        for (text, expected) in
            [("0640", Some(0o640)), ("644", Some(0o644)), ("4755", Some(0o4755))]
        {
            assert_eq!(Mode::parse(text).map(|mode| mode.0), expected, "{text}");
        }
        for text in ["", "64", "0o64", "06400", "0849", "+644", "rw-r"] {
            assert_eq!(Mode::parse(text), None, "{text}");
        }
    }

    #[test]
    fn nothing_of_a_secret_is_shown() {
        let key = DigestKey::generate().unwrap();
        let spec = FileSpec {
            content: Content::new(*b"hunter2"),
            attributes: attributes(Some("root"), Some(0o600)),
            secret: true,
            adopt: false,
        };
        let path: FilePath = "/etc/secret".parse().unwrap();
        let files = BTreeMap::from([(path, spec)]);
        let desired = DesiredState::new(&key, files, BTreeMap::new());
        let object = desired.object(Slot(0));
        let expected = json!({ "owner": "root", "mode": "0600", "content": "secret" });
        assert_eq!(desired.shown(&object), expected);
        assert!(!format!("{desired:?}").contains("hunter2"));
    }

    #[test]
    fn an_object_reads_back_as_itself() {
        let key = DigestKey::generate().unwrap();
        let file = FileObject {
            digest: key.digest(b"x"),
            size: 1,
            attributes: attributes(Some("haproxy"), Some(0o640)),
            secret: true,
        };
        for object in [
            Object::Nothing,
            Object::File(file),
            Object::Directory(attributes(None, Some(0o755))),
            Object::Other { what: Other::Symlink },
        ] {
            let text = serde_json::to_string(&object).unwrap();
            assert_eq!(serde_json::from_str::<Object>(&text).unwrap(), object, "{text}");
        }
    }
}
