//! Files and directories, declared and seen.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use homeostat_core::desired::find_near;
use homeostat_core::{Agreement, Desired, Failure, Finding, Slot, WaitsOn};
use homeostat_render::{Draft, Proposal, Shrunk};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value as Json, json};

use crate::digest::{Digest, DigestKey};
use crate::exclusive::Exclusive;
use crate::key::{FilePath, Key};
use crate::programs::haproxy::Haproxy;
use crate::recipe::{FilePart, Made, ProgramOf, Recipe};
use crate::running::Target;

/// What is on a path. Attributes that are not declared are none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Object {
    /// Nothing. Where an original was, the record of the path must outlive it. Declared of what others put into an
    /// exclusive directory.
    Nothing,
    File(FileObject),
    Directory(Attributes),
    /// What a program runs: the generation of the set, or what it says in its place; nothing, if it is down.
    Program {
        generation: Option<String>,
        /// Seen only: what it has otherwise than its files say, and can be changed without a reload.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        differences: Vec<Difference>,
    },
    /// Seen only.
    Other {
        what: Other,
    },
}

/// A value of a running program that is not as declared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// `server web/s1 weight`.
    pub what: String,
    /// Empty, if it is not there.
    pub is: String,
    /// Empty, if it is not declared.
    pub wanted: String,
}

impl Difference {
    /// So many are shown; the last one says how many more there are.
    const MOST: usize = 20;

    pub(crate) fn new(what: String, is: &str, wanted: &str) -> Self {
        Difference { what, is: is.to_owned(), wanted: wanted.to_owned() }
    }

    pub(crate) fn shortened(mut all: Vec<Self>) -> Vec<Self> {
        let more = all.len().saturating_sub(Self::MOST);
        all.truncate(Self::MOST);
        if more > 0 {
            all.push(Difference::new(format!("{more} more"), "", ""));
        }
        all
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { what, is, wanted } = self;
        match (is.as_str(), wanted.as_str()) {
            ("", "") => f.write_str(what),
            ("", wanted) => write!(f, "{what}: {wanted} is added"),
            (is, "") => write!(f, "{what}: {is} leaves"),
            (is, wanted) => write!(f, "{what}: {is} -> {wanted}"),
        }
    }
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

/// So many digits distinguish what was tried.
const IDENTITY: usize = 16;

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
    /// Whether nothing may be in it but what is declared.
    pub exclusive: Option<Exclusive>,
}

/// One entry of a desired state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub object: Object,
    /// Of a file.
    pub content: Option<Content>,
    pub adopt: bool,
    /// Of a program.
    pub(crate) target: Option<Arc<Target>>,
}

/// What a set declares, in key order.
///
/// Where contents depend on more than the document, they are not known before the set is
/// [resolved](crate::Recipe): until then files have no content.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DesiredState {
    entries: Vec<(Key, Wanted)>,
    /// What it is made of, where it is made of something.
    recipe: Option<Arc<Recipe>>,
    exclusive: BTreeMap<FilePath, Exclusive>,
    pub(crate) resolution: Resolution,
}

/// What resolving a set came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Resolution {
    /// Why the newest content is not the desired one, by what is to blame.
    pub(crate) shortfalls: Vec<(Key, Shortfall)>,
    /// Values that are in force once these files are there, and the inputs that were read for them.
    pub(crate) trial: Option<(Proposal, BTreeSet<String>)>,
    /// What stays in exclusive directories for now, and why.
    pub(crate) stays: BTreeMap<Key, Finding>,
}

/// Why the newest content of a set is not the desired one, or what else has to be said of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Shortfall {
    /// It waits for something.
    Waits(WaitsOn),
    /// It was refused: by a template, by the program that judges the set, or by the one that reads it.
    Refused(Failure),
    /// A file would lose most of its lines.
    Shrinks(Shrunk),
    /// A value is tried when others are in force.
    NotTried,
    /// The source of an input does not answer; its last accepted value is in force.
    Silent { why: String },
}

impl Shortfall {
    /// Whether the newest content is not the desired one because of it.
    pub(crate) fn is_in_the_way(&self) -> bool {
        !matches!(self, Shortfall::Silent { .. } | Shortfall::NotTried)
    }
}

impl DesiredState {
    #[must_use]
    pub fn new(
        digests: &DigestKey,
        files: BTreeMap<FilePath, FileSpec>,
        directories: BTreeMap<FilePath, DirectorySpec>,
    ) -> Self {
        Self::with_program(digests, files, directories, None)
    }

    /// The same for a set that a program reads, by the name of the set and its generation.
    pub(crate) fn with_program(
        digests: &DigestKey,
        files: BTreeMap<FilePath, FileSpec>,
        directories: BTreeMap<FilePath, DirectorySpec>,
        program: Option<(&str, &str)>,
    ) -> Self {
        let files = files.into_iter().map(|(path, spec)| {
            let FileSpec { content, attributes, secret, adopt } = spec;
            let (digest, size) = (digests.digest(content.bytes()), content.bytes().len() as u64);
            let object = Object::File(FileObject { digest, size, attributes, secret });
            (Key::File(path), Wanted { object, content: Some(content), adopt, target: None })
        });
        let program = program.map(|(set, generation)| (set, Some(generation.to_owned())));
        Self::of(files, directories, program)
    }

    fn of(
        files: impl Iterator<Item = (Key, Wanted)>,
        directories: BTreeMap<FilePath, DirectorySpec>,
        program: Option<(&str, Option<String>)>,
    ) -> Self {
        let exclusive = directories
            .iter()
            .filter_map(|(path, spec)| Some((path.clone(), spec.exclusive.clone()?)));
        let exclusive = exclusive.collect();
        let directories = directories.into_iter().map(|(path, spec)| {
            let DirectorySpec { attributes, adopt, exclusive: _ } = spec;
            let object = Object::Directory(attributes);
            (Key::Directory(path), Wanted { object, content: None, adopt, target: None })
        });
        let program = program.map(|(set, generation)| {
            let object = Object::Program { generation, differences: Vec::new() };
            (
                Key::Program(set.to_owned()),
                Wanted { object, content: None, adopt: false, target: None },
            )
        });
        // Directories sort before files, files before programs, and maps are sorted.
        let entries = directories.chain(files).chain(program).collect();
        DesiredState { entries, exclusive, ..DesiredState::default() }
    }

    /// The directories in which nothing may be but what is declared.
    pub(crate) fn exclusive(&self) -> &BTreeMap<FilePath, Exclusive> {
        &self.exclusive
    }

    /// The same, with nothing on these paths.
    pub(crate) fn with_absent(mut self, absent: &BTreeSet<FilePath>) -> Self {
        if !absent.is_empty() {
            let nothing =
                Wanted { object: Object::Nothing, content: None, adopt: true, target: None };
            let absent = absent.iter().map(|path| (Key::File(path.clone()), nothing.clone()));
            self.entries.extend(absent);
            self.entries.sort_by(|(one, _), (other, _)| one.cmp(other));
        }
        self
    }

    /// The same for a set that a program reads: in its files, [`PLACEHOLDER`](crate::PLACEHOLDER) becomes the generation of
    /// the set.
    #[must_use]
    pub fn read_by_program(
        digests: &DigestKey,
        set: &str,
        files: BTreeMap<FilePath, FileSpec>,
        directories: BTreeMap<FilePath, DirectorySpec>,
    ) -> Self {
        Self::read_by_haproxy(digests, set, None, files, directories)
    }

    /// The same for a program that can be changed without a reload: what can be changed at runtime does not change the generation.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "as for a set that nobody reads")]
    pub fn read_by_haproxy(
        digests: &DigestKey,
        set: &str,
        haproxy: Option<&Haproxy>,
        files: BTreeMap<FilePath, FileSpec>,
        directories: BTreeMap<FilePath, DirectorySpec>,
    ) -> Self {
        let (mut parts, mut contents) = (BTreeMap::new(), Vec::new());
        for (path, FileSpec { content, attributes, secret, adopt }) in files {
            let part = FilePart { attributes, secret, adopt };
            contents.push((path.as_str().into(), content.bytes().to_vec(), part.secrecy()));
            parts.insert(path, part);
        }
        let program = ProgramOf { set: set.to_owned(), profile: None, haproxy: haproxy.cloned() };
        let draft = Draft::of_marked(contents);
        Made::finish(&draft, digests, &parts, &directories, Some(&program)).desired
    }

    /// A set whose contents are not known yet.
    #[must_use]
    pub fn made_of(recipe: Arc<Recipe>) -> Self {
        let files = recipe.files.iter().map(|(path, part)| {
            let FilePart { attributes, secret, adopt } = part.clone();
            let file = FileObject { digest: Digest::unknown(), size: 0, attributes, secret };
            let object = Object::File(file);
            (Key::File(path.clone()), Wanted { object, content: None, adopt, target: None })
        });
        let program = recipe.program.as_ref().map(|program| (&*program.set, None));
        let desired = Self::of(files, recipe.directories.clone(), program);
        DesiredState { recipe: Some(recipe), ..desired }
    }

    pub(crate) fn made_by(self, recipe: &Arc<Recipe>) -> Self {
        DesiredState { recipe: Some(Arc::clone(recipe)), ..self }
    }

    pub(crate) fn recipe(&self) -> Option<&Arc<Recipe>> {
        self.recipe.as_ref()
    }

    /// The same keys with the contents of another one where it has them. The others are not known.
    pub(crate) fn with_contents(
        &self,
        digests: &DigestKey,
        of: &BTreeMap<Key, GoodFile>,
        generation: Option<&str>,
    ) -> Self {
        let entries = self.entries.iter().map(|(key, wanted)| {
            let mut wanted = wanted.clone();
            match (&mut wanted.object, of.get(key)) {
                (Object::File(file), Some(good)) => {
                    (file.digest, file.size) =
                        (good.digest.clone(), good.content.bytes().len() as u64);
                    wanted.content = Some(good.content.clone());
                }
                (Object::File(file), None) => {
                    (file.digest, file.size) = (Digest::unknown(), 0);
                    wanted.content = None;
                }
                (Object::Program { generation: wanted, .. }, _) => {
                    *wanted = generation.map(str::to_owned);
                }
                _ => {}
            }
            (key.clone(), wanted)
        });
        let recipe = self.recipe.clone();
        let haproxy = recipe.as_ref().and_then(|recipe| recipe.program.as_ref()?.haproxy.clone());
        let (entries, resolution) = (entries.collect(), Resolution::default());
        let exclusive = self.exclusive.clone();
        let desired = DesiredState { entries, recipe, exclusive, resolution };
        desired.with_target(digests, haproxy.as_ref())
    }

    /// Whether the same is to be there, whatever it is made of.
    pub(crate) fn has_same_entries(&self, other: &Self) -> bool {
        self.entries == other.entries
    }

    /// The generation that the program of the set shall run.
    pub(crate) fn generation(&self) -> Option<(&Key, &str)> {
        match self.entries.last()? {
            (key, Wanted { object: Object::Program { generation: Some(generation), .. }, .. }) => {
                Some((key, generation))
            }
            _ => None,
        }
    }

    /// The same, with what its program shall run, as the contents say.
    pub(crate) fn with_target(mut self, digests: &DigestKey, haproxy: Option<&Haproxy>) -> Self {
        let Some((_, generation)) = self.generation() else { return self };
        let generation = generation.to_owned();
        let mut all = Vec::new();
        let mut contents = BTreeMap::new();
        for (key, wanted) in &self.entries {
            let (Key::File(path), Object::File(file)) = (key, &wanted.object) else { continue };
            all.extend_from_slice(path.as_str().as_bytes());
            all.push(0);
            all.extend_from_slice(file.digest.as_str().as_bytes());
            if let Some(content) = &wanted.content {
                contents.insert(path.clone(), content);
            }
        }
        let identity = digests.digest(&all).as_str().chars().take(IDENTITY).collect();
        let declared = haproxy.map(|haproxy| haproxy.split(&contents).declared);
        let target = Target { generation, identity, declared: declared.unwrap_or_default() };
        if let Some((_, wanted)) = self.entries.last_mut() {
            wanted.target = Some(Arc::new(target));
        }
        self
    }

    /// What the program of the set shall run.
    pub(crate) fn target(&self) -> Option<(&Key, &Target)> {
        let (key, wanted) = self.entries.last()?;
        Some((key, wanted.target.as_deref()?))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &(Key, Wanted)> {
        self.entries.iter()
    }

    pub(crate) fn wanted(&self, key: &Key) -> Option<&Wanted> {
        self.slot(key, None).map(|slot| self.at(slot).1)
    }

    pub(crate) fn at(&self, slot: Slot) -> (&Key, &Wanted) {
        let (key, wanted) = &self.entries[slot.index()];
        (key, wanted)
    }
}

/// A file of a set that was good.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GoodFile {
    pub(crate) digest: Digest,
    pub(crate) content: Content,
}

impl Wanted {
    /// Whether nothing shall be there.
    pub(crate) fn is_nothing(&self) -> bool {
        self.object == Object::Nothing
    }

    /// Whether it is known what is to be there.
    pub(crate) fn is_known(&self) -> bool {
        match &self.object {
            Object::File(_) => self.content.is_some(),
            Object::Program { generation, .. } => generation.is_some(),
            _ => true,
        }
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
            Object::Program { generation, differences } => {
                shown.insert("generation".to_owned(), json!(generation));
                for Difference { what, is, .. } in differences {
                    shown.insert(what.clone(), json!(is));
                }
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
        self.entries.len()
    }

    fn slot(&self, key: &Key, near: Option<Slot>) -> Option<Slot> {
        find_near(&self.entries, near, |(own, _)| own.cmp(key))
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

    /// A set is written as one, and looked at as one.
    fn dependants(&self, key: &Key, each: &mut dyn FnMut(Key)) {
        let others = self.entries.iter().map(|(other, _)| other).filter(|other| *other != key);
        others.for_each(|other| each(other.clone()));
        let inputs = self.recipe.iter().flat_map(|recipe| recipe.inputs.keys());
        inputs.for_each(|name| each(Key::Input(name.clone())));
    }

    fn is_same(&self, slot: Slot, other: &Self, there: Slot) -> bool {
        self.at(slot).1 == other.at(there).1 && self.recipe == other.recipe
    }

    fn is_same_desired(&self, other: &Self) -> bool {
        self.entries == other.entries
            && self.recipe == other.recipe
            && self.exclusive == other.exclusive
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
    fn a_program_that_was_recorded_without_differences_has_none() {
        let text = r#"{"kind":"program","generation":"1"}"#;
        let object = Object::Program { generation: Some("1".to_owned()), differences: Vec::new() };
        assert_eq!(serde_json::from_str::<Object>(text).unwrap(), object);
        assert_eq!(serde_json::to_string(&object).unwrap(), text);
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
            Object::Program {
                generation: Some("1".to_owned()),
                differences: vec![Difference::new("server web/s1 weight".to_owned(), "1", "2")],
            },
        ] {
            let text = serde_json::to_string(&object).unwrap();
            assert_eq!(serde_json::from_str::<Object>(&text).unwrap(), object, "{text}");
        }
    }
}
