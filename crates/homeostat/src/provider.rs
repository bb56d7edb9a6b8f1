//! Where the daemon's document comes from. A new provider is its file below, and its line in [`open`].

mod files;

use std::path::PathBuf;

use anyhow::Result;
use homeostat_document::Document;
use homeostat_kit::provider::Provider;

pub(crate) use self::files::{load, understand};
use crate::commands::not_built;

/// What the daemon takes its document from.
pub(crate) type DocumentProvider =
    Box<dyn Provider<DesiredState = Document, Error = anyhow::Error>>;

/// The provider that these arguments name, which is not asked yet.
pub(crate) fn open(arguments: &[PathBuf]) -> Result<DocumentProvider> {
    if let Some(store) = arguments.iter().find(|path| path.to_string_lossy().starts_with("etcd:")) {
        return Err(not_built(&format!("`run {}`", store.display())));
    }
    Ok(Box::new(files::Files::new(arguments)?))
}
