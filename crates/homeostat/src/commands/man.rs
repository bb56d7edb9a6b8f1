//! `homeostat man`: prints a page of the manual, or writes all of them.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::cli::ManArgs;
use crate::failure::helped;
use crate::manual;
use crate::output::stream;

pub(crate) fn run(args: &ManArgs) -> Result<ExitCode> {
    match &args.out {
        Some(directory) => write_all(directory)?,
        None => print(&args.page)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn print(words: &[String]) -> Result<()> {
    let pages = manual::pages()?;
    let Some(page) = pages.iter().find(|page| page.is_called(words)) else {
        let names: Vec<String> = pages.iter().map(manual::Page::file_name).collect();
        let help = format!("there are {}", names.join(", "));
        return Err(helped(format!("there is no manual page `{}`", words.join(" ")), help));
    };
    Ok(stream::ignore_closed_pipe(std::io::stdout().write_all(page.text.as_bytes()))?)
}

fn write_all(directory: &Path) -> Result<()> {
    for page in manual::pages()? {
        let path = directory.join(page.file_name());
        fs::write(&path, page.text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
