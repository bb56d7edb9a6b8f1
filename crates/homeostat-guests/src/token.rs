//! The API token: read from a file that only its owner can read, and never printed.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use homeostat_kit::finished_files::Unfinished;
use hyper::header::HeaderValue;
use rustix::fs::OFlags;

/// Why a token cannot be used. No variant carries its text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    #[error("cannot read the token file {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the token file {path} has mode {mode:04o}: others can read or write it")]
    Mode { path: PathBuf, mode: u32 },
    #[error("the token file {path} holds no token")]
    Shape { path: PathBuf },
}

impl TokenError {
    #[must_use]
    pub fn help(&self) -> String {
        match self {
            TokenError::Read { path, .. } => {
                format!("put the token into {} and make it readable for this user", path.display())
            }
            TokenError::Mode { path, .. } => {
                format!("run `chmod 600 {}`, and consider the token as known", path.display())
            }
            TokenError::Shape { .. } => {
                "it is one line such as `keeper@pve!homeostat=SECRET`".to_owned()
            }
        }
    }
}

/// A token. Neither `Debug` nor `Display` shows its secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    user: String,
    secret: String,
    /// Where it was read, if it was.
    path: Option<PathBuf>,
}

impl Token {
    /// Reads the token of a file, which must be for its owner alone.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let failed = |source| TokenError::Read { path: path.to_owned(), source };
        // Opening a pipe without a writer would block.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let mut file =
            OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(failed)?;
        // The mode is that of the open file, since the path may lead to another one by now.
        let found = file.metadata().map_err(failed)?;
        if !found.is_file() {
            return Err(failed(io::Error::other("it is no regular file")));
        }
        let mode = found.mode() & 0o7777;
        if mode & 0o177 != 0 {
            return Err(TokenError::Mode { path: path.to_owned(), mode });
        }
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(failed)?;
        let token = Token::parse(text.trim());
        let token = token.ok_or_else(|| TokenError::Shape { path: path.to_owned() })?;
        Ok(Token { path: Some(path.to_owned()), ..token })
    }

    /// Reads its file again; none, if that holds the same token or is being written. A file that was written just now
    /// is read when it has been left alone for a second.
    pub(crate) async fn renewed(&self) -> Option<Self> {
        let path = self.path.as_deref()?;
        let mut token = Token::read(path).ok()?;
        if let Some(unfinished) = Unfinished::find([path]) {
            tokio::time::sleep(unfinished.due_in?).await;
            let found = std::mem::replace(&mut token, Token::read(path).ok()?);
            if !token.is_like(&found) || Unfinished::find_open([path]).is_some() {
                return None;
            }
        }
        (!token.is_like(self)).then_some(token)
    }

    /// Whether user and secret are the same.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        (&self.user, &self.secret) == (&other.user, &other.secret)
    }

    /// Parses `USER@REALM!NAME=SECRET`, with or without the prefix that it has in a request.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix("PVEAPIToken=").unwrap_or(text);
        let (user, secret) = text.split_once('=')?;
        let (name, _) = user.split_once('!')?;
        let is_plain = |text: &str| text.chars().all(|c| c.is_ascii_graphic());
        let is_whole = name.contains('@') && !secret.is_empty();
        (is_whole && is_plain(user) && is_plain(secret)).then(|| Token {
            user: user.to_owned(),
            secret: secret.to_owned(),
            path: None,
        })
    }

    /// Its user, `USER@REALM`. Another token of the same user may have started a task that we look for.
    #[must_use]
    pub fn user(&self) -> &str {
        self.user.split_once('!').map_or(&*self.user, |(user, _)| user)
    }

    /// The header that carries it, marked as sensitive so that it is not printed.
    pub(crate) fn header(&self) -> Option<HeaderValue> {
        let text = format!("PVEAPIToken={}={}", self.user, self.secret);
        let mut value = HeaderValue::from_str(&text).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("user", &self.user).finish_non_exhaustive()
    }
}
