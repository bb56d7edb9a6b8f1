//! `homeostat put` and `homeostat drop`: parts of the desired state that other programs put beside the document.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use homeostat_document::Format;

use super::control::run_passes;
use crate::cli::{DropArgs, Global, PutArgs};
use crate::failure::helped;
use crate::pieces::PieceName;
use crate::wire::{LONGEST_PIECE, Request};

/// Puts a piece in place of the one of this name.
pub(super) fn put(args: PutArgs, global: &Global) -> Result<ExitCode> {
    let PutArgs { name, document, form } = args;
    let name: PieceName = name.parse()?;
    let (format, directory, text) = read(&document)?;
    let put = |ask| Request::Put { name: name.to_string(), format, directory, text, ask };
    run_passes(form, global, put)
}

/// Takes a piece away.
pub(super) fn drop_piece(args: &DropArgs, global: &Global) -> Result<ExitCode> {
    let name: PieceName = args.name.parse()?;
    run_passes(args.form, global, |ask| Request::Drop { name: name.to_string(), ask })
}

/// A document with its format, and what relative paths in it are relative to.
fn read(path: &Path) -> Result<(Format, PathBuf, String)> {
    let whole = || format!("cannot read {}", path.display());
    let (text, given) = if path == Path::new("-") {
        (limited(io::stdin()).context("cannot read standard input")?, None)
    } else {
        let Some(format) = Format::of(path) else {
            return Err(helped(
                format!("the name `{}` does not say which format this is", path.display()),
                "a document ends in .toml, .yaml, .yml or .json",
            ));
        };
        (limited(File::open(path).with_context(whole)?).with_context(whole)?, Some(format))
    };
    if text.len() > LONGEST_PIECE {
        return Err(helped(
            format!("a piece may have {LONGEST_PIECE} bytes"),
            "put long lists of routes into a file for `from-file`, or make several pieces of it",
        ));
    }
    let directory = match path.parent().filter(|_| given.is_some()) {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let directory = std::path::absolute(directory).with_context(whole)?;
    Ok((given.unwrap_or_else(|| Format::of_input(&text)), directory, text))
}

/// Reads one byte more than a piece may have.
fn limited(from: impl Read) -> io::Result<String> {
    let mut text = String::new();
    from.take(LONGEST_PIECE as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}
