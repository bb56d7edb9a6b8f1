//! Fetches a document from the store: its manifest, then the chunks that no kept document has. Everything is judged by
//! its hash. It has a connection of its own: much data on one connection would hold up its watch.

use std::collections::BTreeMap;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use homeostat_fleet::chunks::{Manifest, inflate, pack};
use homeostat_fleet::keys::Keys;
use homeostat_fleet::{Digest, Name};
use homeostat_store::{Keys as StoreKeys, Store};
use tokio::task::spawn_blocking;

use super::kept::{Kept, Unloadable};
use super::plain_text;

/// How many chunks are asked for at once.
const AT_ONCE: usize = 16;

/// Why there is no document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unfetched {
    /// It may come.
    Missing(String),
    /// What was signed cannot be used.
    Unusable(String),
}

impl From<Unloadable> for Unfetched {
    fn from(why: Unloadable) -> Self {
        match why {
            Unloadable::NotHere(error) => Unfetched::Missing(plain_text(&error)),
            Unloadable::Unusable(error) => Unfetched::Unusable(plain_text(&error)),
        }
    }
}

/// Runs what may take long beside the thread of the daemon.
pub(super) async fn beside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Unfetched> + Send + 'static,
) -> Result<T, Unfetched> {
    let done = spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Unfetched::Missing(error.to_string())))
}

/// Fetches a document and keeps it, unless it is kept.
pub(super) async fn fetch(
    store: &dyn Store,
    keys: &Keys,
    group: &Name,
    document: &Digest,
    kept: &Kept,
) -> Result<(), Unfetched> {
    if kept.has(document) {
        return Ok(());
    }
    let missing = |what: String| Unfetched::Missing(what);
    let bytes = value(store, keys.document(group, document)).await?;
    let bytes = bytes
        .ok_or_else(|| missing(format!("the manifest of {document} is not in the store yet")))?;
    if Digest::of(&bytes) != *document {
        return Err(missing(format!(
            "the store has another content as the manifest of {document}"
        )));
    }
    let manifest = Manifest::of_document(document, &bytes).map_err(unusable)?;
    let here = kept.clone();
    let known = move || {
        let files = here.all_files();
        Ok(pack(files.iter().map(|file| ("", &**file)), &[]).chunks)
    };
    let mut chunks = beside(known).await?;
    loop {
        let raw = |digest: &Digest| chunks.get(digest).cloned();
        let needed =
            manifest.missing(raw, |digest| chunks.contains_key(digest)).map_err(unusable)?;
        if needed.is_empty() {
            break;
        }
        let fetched = stream::iter(needed).map(|digest| chunk(store, keys, group, digest));
        let fetched: BTreeMap<_, _> = fetched.buffer_unordered(AT_ONCE).try_collect().await?;
        chunks.extend(fetched);
    }
    let (document, kept) = (*document, kept.clone());
    let write = move || {
        let mut files = Vec::new();
        for file in &manifest.files {
            let content = file.assemble(|digest| chunks.get(digest).cloned()).map_err(unusable)?;
            files.push((file.path.clone(), content));
        }
        let written = kept.write(&document, &bytes, &files);
        written.map_err(|error| Unfetched::Missing(plain_text(&error)))
    };
    beside(write).await
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn unusable(error: homeostat_fleet::Error) -> Unfetched {
    Unfetched::Unusable(error.to_string())
}

async fn chunk(
    store: &dyn Store,
    keys: &Keys,
    group: &Name,
    digest: Digest,
) -> Result<(Digest, Vec<u8>), Unfetched> {
    let stored = value(store, keys.blob(group, &digest)).await?;
    let stored = stored
        .ok_or_else(|| Unfetched::Missing(format!("the chunk {digest} is not in the store yet")))?;
    let raw = inflate(&stored, &digest).map_err(|error| Unfetched::Missing(error.to_string()))?;
    Ok((digest, raw))
}

async fn value(store: &dyn Store, key: String) -> Result<Option<Vec<u8>>, Unfetched> {
    let listed = store.list(StoreKeys::One(key.clone())).await;
    let mut listed = listed.map_err(|error| Unfetched::Missing(error.to_string()))?;
    Ok(listed.values.remove(&key).map(|entry| entry.value))
}
