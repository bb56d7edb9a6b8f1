//! Pieces: parts of the desired state that other programs put beside the document, each under a name of its own. A piece
//! is part of whatever document of its owner is in force in its scope, as a file of a directory would be.
//!
//! `pieces/OWNER/NAME.json` of the state directory is one of them. They are written by the daemon alone; `plan`, `verify`
//! and `apply` read them.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use homeostat_document::{Document, Format, ParsedTexts, SourceText};
use homeostat_registry::Lists;
use serde::{Deserialize, Serialize};

use crate::confirmed::{make_directory, read_json, sync_directory, write_json};
use crate::context::Context;
use crate::daemon::clock::Stamp;
use crate::failure::{DocumentErrors, helped};
use crate::person::Person;
use crate::provider::{fleet, understand};
use crate::registry::{self, READER};
use crate::wire::PieceStatus;

/// Below the state directory.
const DIRECTORY: &str = "pieces";

/// What a piece is called: it fits into a file name, and the names of containers fit into it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PieceName(String);

impl PieceName {
    const LONGEST: usize = 200;
}

impl FromStr for PieceName {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let fault = match text {
            "" => "it is empty",
            _ if text.len() > Self::LONGEST => "it has more than 200 letters",
            _ if !text.starts_with(|c: char| c.is_ascii_alphanumeric()) => {
                "it does not begin with a letter or a digit"
            }
            _ if !text.chars().all(is_allowed) => {
                "only letters, digits, `.`, `_` and `-` are allowed"
            }
            _ => return Ok(PieceName(text.to_owned())),
        };
        Err(helped(format!("`{}` is no name of a piece", text.escape_debug()), fault))
    }
}

impl fmt::Display for PieceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One of them, as it is on disk.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Piece {
    /// What its top level is for.
    pub(crate) scope: String,
    pub(crate) put_at: String,
    pub(crate) put_by: Person,
    pub(crate) format: Format,
    /// What relative paths in it are relative to.
    pub(crate) directory: PathBuf,
    pub(crate) text: String,
}

/// One that a client hands over.
#[derive(Debug)]
pub(crate) struct NewPiece {
    pub(crate) by: Person,
    pub(crate) format: Format,
    pub(crate) directory: PathBuf,
    pub(crate) text: String,
}

/// The pieces of one owner in one scope.
#[derive(Debug)]
pub(crate) struct Pieces {
    directory: PathBuf,
    scope: String,
    all: BTreeMap<PieceName, Piece>,
    /// How they are listed.
    listed: Arc<Vec<PieceStatus>>,
    parsed: ParsedTexts,
}

impl Pieces {
    /// Those of the owner and the top scope of a context.
    pub(crate) fn open(context: &Context) -> Result<Self> {
        let directory = context.caller.state_dir.join(DIRECTORY).join(&context.caller.owner);
        let scope = context.top_scope()?.name;
        let all = if may_enter(&context.caller.state_dir) {
            read(&directory, &scope)
                .with_context(|| format!("cannot read the pieces in {}", directory.display()))?
        } else {
            BTreeMap::new()
        };
        let (listed, parsed) = (listed(&all), ParsedTexts::default());
        Ok(Pieces { directory, scope, all, listed, parsed })
    }

    /// A document of this owner with its pieces. A document of a fleet has none: what its nodes keep is signed.
    pub(crate) fn join(&mut self, document: Arc<Document>) -> Result<Arc<Document>> {
        let has_pieces = document.files.texts().iter().any(|text| text.piece.is_some());
        if self.all.is_empty() && !has_pieces {
            return Ok(document);
        }
        if fleet::is_in(&document) && !self.all.is_empty() {
            return Err(helped(
                "a document of a fleet takes no pieces: what its nodes keep is signed",
                "drop them with `homeostat drop NAME`, and sign what they declare",
            ));
        }
        let texts = self.all.iter().map(|(name, piece)| SourceText {
            name: format!("piece {name}"),
            directory: piece.directory.clone(),
            format: piece.format,
            piece: Some(name.to_string()),
            text: piece.text.clone(),
        });
        let joined = understand(READER.with_pieces(&document, texts, &mut self.parsed))?;
        if fleet::is_in(&joined) && !fleet::is_in(&document) {
            return Err(helped(
                "a piece cannot name a fleet",
                "write `[fleet]` into the document, and restart the daemon",
            ));
        }
        Ok(Arc::new(joined))
    }

    /// Puts a piece in place of the one of this name, or takes that away. Returns what was there. Nothing is written.
    pub(crate) fn set(&mut self, name: &PieceName, piece: Option<Piece>) -> Option<Piece> {
        let former = match piece {
            Some(piece) => self.all.insert(name.clone(), piece),
            None => self.all.remove(name),
        };
        self.listed = listed(&self.all);
        former
    }

    /// A piece for the scope of these.
    pub(crate) fn made_of(&self, new: NewPiece) -> Piece {
        let NewPiece { by: put_by, format, directory, text } = new;
        let (scope, put_at) = (self.scope.clone(), Stamp::now().to_string());
        Piece { scope, put_at, put_by, format, directory, text }
    }

    pub(crate) fn get(&self, name: &PieceName) -> Option<&Piece> {
        self.all.get(name)
    }

    /// Refuses a name that a piece of another scope has.
    pub(crate) fn check_free(&self, name: &PieceName) -> Result<()> {
        let there: Result<Piece, _> = read_json(&self.path(name));
        match there {
            Ok(Piece { scope, .. }) if scope != self.scope => Err(helped(
                format!("there is a piece `{name}` for `{scope}` already"),
                "choose another name, or give this daemon a --state-dir of its own",
            )),
            _ => Ok(()),
        }
    }

    /// Makes the disk have what [`set`](Self::set) set.
    pub(crate) fn store(&self, name: &PieceName) -> Result<()> {
        let whole = || format!("cannot keep the piece `{name}` in {}", self.directory.display());
        match self.all.get(name) {
            Some(piece) => {
                make_directory(&self.directory).with_context(whole)?;
                write_json(&self.directory, &file(name), piece).with_context(whole)
            }
            None => match fs::remove_file(self.path(name)) {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(error).with_context(whole),
                Err(_) => Ok(()),
                Ok(()) => sync_directory(&self.directory).with_context(whole),
            },
        }
    }

    /// How they are listed.
    pub(crate) fn status(&self) -> Arc<Vec<PieceStatus>> {
        Arc::clone(&self.listed)
    }

    fn path(&self, name: &PieceName) -> PathBuf {
        self.directory.join(file(name))
    }
}

fn listed(all: &BTreeMap<PieceName, Piece>) -> Arc<Vec<PieceStatus>> {
    let status = |(name, piece): (&PieceName, &Piece)| PieceStatus {
        name: name.to_string(),
        put_at: piece.put_at.clone(),
        put_by: piece.put_by.to_string(),
        bytes: piece.text.len(),
    };
    Arc::new(all.iter().map(status).collect())
}

/// A document with the pieces that are put beside the documents of its owner.
pub(crate) fn join(context: &Context, document: Document) -> Result<Arc<Document>> {
    Pieces::open(context)?.join(Arc::new(document))
}

/// Refuses a joined document with a mistake that only a source can see.
pub(crate) fn check(document: &Document) -> Result<(), DocumentErrors> {
    registry::resolve(document, Lists::Skip)
}

/// Forgets all pieces of an owner.
pub(crate) fn forget_all(state_dir: &Path, owner: &str) -> Result<()> {
    let directory = state_dir.join(DIRECTORY).join(owner);
    match fs::remove_dir_all(&directory) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", directory.display()))
        }
        _ => Ok(()),
    }
}

fn file(name: &PieceName) -> String {
    format!("{name}.json")
}

/// Whether what is in this directory can be looked up. Where it cannot, the ledger cannot be opened, and says why.
fn may_enter(directory: &Path) -> bool {
    let inside = fs::metadata(directory.join("."));
    !inside.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

fn read(directory: &Path, scope: &str) -> io::Result<BTreeMap<PieceName, Piece>> {
    let mut all = BTreeMap::new();
    let entries = match fs::read_dir(directory) {
        // Where the state directory is no directory, the ledger says so.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(all);
        }
        entries => entries?,
    };
    for entry in entries {
        let file = entry?.file_name();
        // One that a full disk left half-written ends in `.new`.
        let name = file.to_str().and_then(|file| file.strip_suffix(".json"));
        let Some(name) = name.and_then(|name| name.parse::<PieceName>().ok()) else { continue };
        let piece: Piece = read_json(&directory.join(&file)).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", file.display()))
        })?;
        if piece.scope == scope {
            all.insert(name, piece);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_piece_fits_into_a_file_name() {
        let longest = "a".repeat(200);
        for name in ["a", "0", "web-1", "kube-system_coredns.7", &longest] {
            assert!(name.parse::<PieceName>().is_ok(), "{name}");
        }
        let too_long = "a".repeat(201);
        for name in ["", ".a", "-a", "a/b", "../a", "a b", "ä", "a\n", &too_long] {
            assert!(name.parse::<PieceName>().is_err(), "{name}");
        }
    }
}
