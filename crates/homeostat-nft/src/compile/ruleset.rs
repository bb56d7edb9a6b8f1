//! The text that is compiled, and what can be told of it before any `nft` sees it.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use super::expanded::{self, Included};
use super::{CompileError, Fault};
use crate::clearing::owner_wanted;
use crate::hosts;
use crate::statements::{at, printing};

/// A text in nft's own language.
#[derive(Clone, Debug, Hash)]
pub struct Ruleset<'a> {
    /// The text.
    pub text: Cow<'a, str>,
    /// What errors call it.
    pub name: String,
    /// Where what it includes is looked for.
    pub directory: PathBuf,
}

impl Ruleset<'_> {
    /// The text of a file.
    pub fn read(path: &Path) -> Result<Self, CompileError> {
        let name = path.display().to_string();
        let refused = |source| CompileError::Read { name: name.clone(), source };
        let meta = std::fs::metadata(path).map_err(refused)?;
        // A pipe would be waited for, and a device may never end.
        if !meta.is_file() {
            return Err(refused(std::io::Error::other("this is not a regular file")));
        }
        let size = meta.len();
        if size > LARGEST {
            return Err(CompileError::TooLarge { name, size });
        }
        let bytes = std::fs::read(path).map_err(refused)?;
        let text = String::from_utf8(bytes).map_err(|error| no_text(&error, &name))?;
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new(".")).to_owned();
        Ok(Ruleset { text: Cow::Owned(text), name, directory })
    }

    pub(super) fn owned(&self) -> Ruleset<'static> {
        let text = Cow::Owned(self.text.clone().into_owned());
        Ruleset { text, name: self.name.clone(), directory: self.directory.clone() }
    }

    /// What it includes, and where more of it may come from.
    #[must_use]
    pub fn included(&self) -> Included {
        expanded::included(self)
    }

    /// The line that a fault is about.
    pub(super) fn line(&self, fault: &Fault) -> Option<String> {
        let nth = usize::try_from(fault.line.checked_sub(1)?).ok()?;
        self.text.lines().nth(nth).map(str::to_owned)
    }

    /// What no `nft` has to be asked about.
    pub(super) fn check(&self) -> Result<(), CompileError> {
        if let Some(nul) = self.text.find('\0') {
            return Err(CompileError::no_text(0, (&self.name, at(&self.text, nul))));
        }
        if let Some(at) = owner_wanted(&self.text) {
            return Err(CompileError::owned(&self.name, at));
        }
        if let Some((host, at)) = hosts::named(&self.text) {
            return Err(CompileError::names_host(host, (&self.name, at)));
        }
        match printing(&self.text) {
            Some((command, at)) => Err(CompileError::prints(command, (&self.name, at))),
            None => Ok(()),
        }
    }
}

/// More than this is no firewall. A set of a million addresses needs a fifth of it.
pub(super) const LARGEST: u64 = 64 << 20;

/// The first byte that is no text, with its place.
fn no_text(error: &std::string::FromUtf8Error, name: &str) -> CompileError {
    let valid = error.utf8_error().valid_up_to();
    let (before, rest) = error.as_bytes().split_at_checked(valid).unwrap_or_default();
    let place = at(&String::from_utf8_lossy(before), valid);
    CompileError::no_text(rest.first().copied().unwrap_or_default(), (name, place))
}
