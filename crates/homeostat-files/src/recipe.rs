//! What a set is made of: templates, inputs, facts and plain data become its files.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use homeostat_render::{Data, Draft, Facts, FileSet, InputSpec, RenderError, Secrecy, Value};

use crate::digest::DigestKey;
use crate::key::FilePath;
use crate::model::{Attributes, Content, DesiredState, DirectorySpec, FileSpec};
use crate::programs::Profile;
use crate::programs::haproxy::Haproxy;

/// What a set is made of. The same data gives the same files.
#[derive(Debug)]
pub struct Recipe {
    pub files: BTreeMap<FilePath, FilePart>,
    pub directories: BTreeMap<FilePath, DirectorySpec>,
    /// The contents of the files.
    pub templates: FileSet,
    /// Plain data of the document.
    pub values: Value,
    /// What is read beside it, by name.
    pub inputs: BTreeMap<String, InputSpec>,
    /// The program that reads the set.
    pub program: Option<ProgramOf>,
}

/// All of a declared file but its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePart {
    pub attributes: Attributes,
    pub secret: bool,
    pub adopt: bool,
}

/// A program that reads a set of this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramOf {
    pub set: String,
    pub profile: Option<&'static Profile>,
    /// It, if it can be changed without a reload.
    pub haproxy: Option<Haproxy>,
}

/// Files that were made, and the inputs that were read for them.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) desired: DesiredState,
    pub(crate) reads: BTreeSet<String>,
}

impl FilePart {
    #[must_use]
    pub fn secrecy(&self) -> Secrecy {
        if self.secret { Secrecy::Secret } else { Secrecy::Public }
    }
}

impl Recipe {
    /// Makes the files. A file that reads an input without a value is not made, and neither are the others.
    pub(crate) fn make(
        &self,
        digests: &DigestKey,
        inputs: BTreeMap<String, Value>,
        facts: Option<Arc<Facts>>,
    ) -> Result<Made, Box<RenderError>> {
        let values = self.values.clone();
        let draft = self.templates.render(&Data { inputs, facts, values, ..Data::default() })?;
        let (files, directories) = (&self.files, &self.directories);
        Ok(Made::finish(&draft, digests, files, directories, self.program.as_ref()))
    }
}

impl Made {
    /// Gives files their generation.
    pub(crate) fn finish(
        draft: &Draft,
        digests: &DigestKey,
        files: &BTreeMap<FilePath, FilePart>,
        directories: &BTreeMap<FilePath, DirectorySpec>,
        program: Option<&ProgramOf>,
    ) -> Self {
        let mask = program.and_then(|program| program.profile?.mask);
        let haproxy = program.and_then(|program| program.haproxy.as_ref());
        let split = haproxy.map(|haproxy| {
            let drafted = draft.files().filter_map(|(path, bytes)| {
                Some((path.to_str()?.parse().ok()?, Content::new(bytes)))
            });
            let drafted: BTreeMap<FilePath, Content> = drafted.collect();
            haproxy.split(&drafted.iter().map(|(path, one)| (path.clone(), one)).collect())
        });
        let masked = |path: &Path| {
            let path: FilePath = path.to_str()?.parse().ok()?;
            split.as_ref()?.masked.get(&path)
        };
        let mask = |path: &Path, bytes| match (masked(path), mask) {
            (Some(masked), _) => Cow::Owned(masked.clone()),
            (None, Some(mask)) => mask(path, bytes),
            (None, None) => Cow::Borrowed(bytes),
        };
        let rendered = draft.finish(digests.bytes(), mask);
        let reads = rendered.reads();
        let mut contents: BTreeMap<PathBuf, Vec<u8>> =
            rendered.files.into_iter().map(|(path, file)| (path, file.bytes)).collect();
        let files = files.iter().map(|(path, part)| {
            let content = contents.remove(Path::new(path.as_str())).unwrap_or_default();
            let FilePart { attributes, secret, adopt } = part.clone();
            (path.clone(), FileSpec { content: Content::new(content), attributes, secret, adopt })
        });
        let generation = program.map(|program| (&*program.set, &*rendered.generation));
        let (files, directories) = (files.collect(), directories.clone());
        let desired = DesiredState::with_program(digests, files, directories, generation);
        Made { desired: desired.with_target(digests, haproxy), reads }
    }
}

/// Whether the same files are made of the same data.
impl PartialEq for Recipe {
    fn eq(&self, other: &Self) -> bool {
        self.files == other.files
            && self.directories == other.directories
            && self.values == other.values
            && self.inputs == other.inputs
            && self.program == other.program
            && self.templates.is_same(&other.templates)
    }
}
