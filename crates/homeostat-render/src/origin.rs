//! Where an input comes from, and how its text is understood.

use std::env;
use std::path::{Path, PathBuf};

use homeostat_document::shown;

use crate::error::Error;
use crate::kept::Kept;
use crate::reading::FileReader;
use crate::url::UrlOrigin;
use crate::value::{Form, Secrecy, Value};

/// One input.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InputSpec {
    pub origin: Origin,
    pub form: Form,
    pub secrecy: Secrecy,
    /// Whether nothing is a value, too: an empty text, or a directory without files. If not, it is unknown.
    pub allow_empty: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    File(PathBuf),
    /// A table of the files in it, by name. Hidden ones and directories are left out.
    Directory(PathBuf),
    /// A credential that systemd has passed to this program.
    Credential(String),
    Url(UrlOrigin),
}

/// The directory with the credentials that were passed to this program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials(Option<PathBuf>);

impl InputSpec {
    /// A public text that is not empty.
    #[must_use]
    pub fn new(origin: Origin) -> Self {
        InputSpec { origin, form: Form::Text, secrecy: Secrecy::Public, allow_empty: false }
    }

    /// The same in another form.
    #[must_use]
    pub fn form(self, form: Form) -> Self {
        InputSpec { form, ..self }
    }

    /// The same as a secret, or not.
    #[must_use]
    pub fn secrecy(self, secrecy: Secrecy) -> Self {
        InputSpec { secrecy, ..self }
    }

    /// The same, where nothing is a value, too.
    #[must_use]
    pub fn allow_empty(self) -> Self {
        InputSpec { allow_empty: true, ..self }
    }

    /// Where accepted values are kept. Credentials are not: systemd has them ready whenever the program starts, and may
    /// keep them encrypted.
    #[must_use]
    pub fn kept(&self, directory: &Path, set: &str, input: &str) -> Option<Kept> {
        let origin = match &self.origin {
            Origin::Credential(_) => return None,
            Origin::File(path) => format!("file {}", path.display()),
            Origin::Directory(path) => format!("directory {}", path.display()),
            Origin::Url(origin) => format!("url {}", origin.url.whole()),
        };
        Some(Kept::new(directory, set, input, format!("{origin} {:?}", self.form)))
    }

    /// Reads a file or directory.
    pub(crate) fn read(&self, reader: &FileReader, path: &Path) -> Result<Value, Error> {
        if let Origin::Directory(_) = self.origin {
            let files = reader.read_directory(path)?;
            if files.is_empty() && !self.allow_empty {
                return Err(Error::Empty { name: shown(path) });
            }
            let file = |(name, text): (String, String)| {
                let value = self.understand_file(&shown(&path.join(&name)), &text)?;
                Ok((name, value))
            };
            return files.into_iter().map(file).collect();
        }
        self.understand_file(&shown(path), &reader.read(path)?)
    }

    /// The text of a file, whose length is not declared.
    fn understand_file(&self, name: &str, text: &str) -> Result<Value, Error> {
        if self.form == Form::Lines && !text.is_empty() && !text.ends_with('\n') {
            return Err(Error::CutOff { name: name.to_owned() });
        }
        self.understand(name, text)
    }

    pub(crate) fn understand(&self, name: &str, text: &str) -> Result<Value, Error> {
        if text.trim().is_empty() {
            if !self.allow_empty {
                return Err(Error::Empty { name: name.to_owned() });
            }
            if let Form::Json | Form::Yaml | Form::Toml = self.form {
                return Ok(Value::from(homeostat_document::Json::Null));
            }
        }
        Value::parse(self.form, name, text, self.secrecy)
    }
}

impl Credentials {
    /// As systemd says where they are.
    #[must_use]
    pub fn from_environment() -> Self {
        Credentials(env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from))
    }

    #[must_use]
    pub fn in_directory(directory: impl Into<PathBuf>) -> Self {
        Credentials(Some(directory.into()))
    }

    pub(crate) fn path(&self, name: &str) -> Result<PathBuf, Error> {
        if name.is_empty() || name.contains('/') || name == "." || name == ".." {
            return Err(Error::CredentialName(name.to_owned()));
        }
        Ok(self.0.as_deref().ok_or(Error::NoCredentials)?.join(name))
    }
}
