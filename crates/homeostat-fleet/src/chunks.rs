//! Large documents as chunks that are found by their hash, so that a small change moves few bytes.
//!
//! Files are cut at line ends, where the hash of the line says so: a change moves the borders next to it and no others. The
//! list of a large file's chunks is itself cut in that way and stored as chunks. So a new document costs a node its
//! manifest, one part of that list and the chunks that it does not have yet.
//!
//! The digest of a document is that of its manifest's bytes. Every chunk, and every file as a whole, is checked.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::records::Record;
use crate::{Digest, Error};

/// No chunk is smaller, but for the last one of a file.
pub const SMALLEST: usize = 16 * 1024;
/// Behind this length borders are much more likely.
const USUAL: usize = 64 * 1024;
/// No chunk is larger.
pub const LARGEST: usize = 256 * 1024;
/// One border in so many bytes, before and behind the usual length. So a chunk has 64 KiB on average and hardly ever more
/// than twice that.
const BEFORE_USUAL: u64 = 96 * 1024;
const BEHIND_USUAL: u64 = 12 * 1024;

/// Up to this many chunks are listed in the manifest itself.
const LISTED: usize = 16;
/// Parts of longer lists have so many digests, and this many on average.
const SMALLEST_PART: usize = 8;
const LARGEST_PART: usize = 128;
const USUAL_PART: u8 = 32;

/// No file of a manifest is larger: a manifest is checked by its digest, but a node has only so much memory.
pub const LARGEST_FILE: u64 = 1 << 30;

/// `doc/GROUP/SHA256`: the files of a document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub files: Vec<File>,
    /// Where chunks can be fetched besides the store, as `URL/SHA256`. The hash judges, so the server needs no trust.
    #[serde(default)]
    pub urls: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    pub path: String,
    pub size: u64,
    pub digest: Digest,
    pub chunks: Chunks,
}

/// Where the chunks of a file are listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Chunks {
    Here(Vec<Digest>),
    /// In chunks that have 32 bytes for each chunk of the file.
    In(Vec<Digest>),
}

impl Record for Manifest {
    const NAME: &'static str = "manifest";
}

/// A document that is ready for the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    pub document: Digest,
    /// The bytes of the manifest, whose digest is the document's.
    pub manifest: Vec<u8>,
    /// Raw: only what the store does not have yet needs to be [deflated](deflate).
    pub chunks: BTreeMap<Digest, Vec<u8>>,
}

/// Cuts the files of a document.
#[must_use]
pub fn pack<'a>(files: impl IntoIterator<Item = (&'a str, &'a [u8])>, urls: &[String]) -> Packed {
    let mut chunks = BTreeMap::new();
    let files = files.into_iter().map(|(path, content)| {
        let list: Vec<Digest> = cut(content).map(|chunk| add(&mut chunks, chunk)).collect();
        File {
            path: path.to_owned(),
            size: content.len() as u64,
            digest: Digest::of(content),
            chunks: if list.len() <= LISTED {
                Chunks::Here(list)
            } else {
                let parts = cut_list(&list).map(|part| {
                    let bytes: Vec<u8> = part.iter().flat_map(|it| *it.as_bytes()).collect();
                    add(&mut chunks, &bytes)
                });
                Chunks::In(parts.collect())
            },
        }
    });
    let manifest = Manifest { files: files.collect(), urls: urls.to_vec() }.write();
    Packed { document: Digest::of(&manifest), manifest, chunks }
}

/// A document without files. It stands for the machine's own document: the fallback of a node that was assigned none before.
#[must_use]
pub fn empty() -> Packed {
    pack([], &[])
}

fn add(chunks: &mut BTreeMap<Digest, Vec<u8>>, chunk: &[u8]) -> Digest {
    let digest = Digest::of(chunk);
    chunks.entry(digest).or_insert_with(|| chunk.to_vec());
    digest
}

/// As chunks are stored.
#[must_use]
pub fn deflate(chunk: &[u8]) -> Vec<u8> {
    /// The best of miniz: chunks are written once and read by thousands.
    const LEVEL: u8 = 9;
    miniz_oxide::deflate::compress_to_vec(chunk, LEVEL)
}

/// The raw chunk, if the stored bytes are it.
pub fn inflate(stored: &[u8], digest: &Digest) -> Result<Vec<u8>, Error> {
    let damaged = |why| Error::DamagedChunk { digest: *digest, why };
    let chunk = miniz_oxide::inflate::decompress_to_vec_with_limit(stored, LARGEST);
    let chunk = chunk.map_err(|_| damaged("it cannot be inflated to a chunk"))?;
    if Digest::of(&chunk) != *digest {
        return Err(damaged("its content has another hash"));
    }
    Ok(chunk)
}

impl Manifest {
    /// Reads a manifest, if its bytes are those of the document.
    pub fn of_document(document: &Digest, bytes: &[u8]) -> Result<Self, Error> {
        let invalid = |why: String| Error::Invalid { record: Self::NAME, why };
        if Digest::of(bytes) != *document {
            return Err(invalid(format!("it is not the one of document {document}")));
        }
        let manifest = Self::read(bytes)?;
        let mut paths = BTreeSet::new();
        for file in &manifest.files {
            let is_plain = |part: &str| !part.is_empty() && part != "." && part != "..";
            if !file.path.split('/').all(is_plain) || file.path.contains('\0') {
                return Err(invalid(format!("`{}` is no path below the document", file.path)));
            }
            if !paths.insert(&file.path) {
                return Err(invalid(format!("`{}` is there twice", file.path)));
            }
            if file.size > LARGEST_FILE {
                return Err(invalid(format!("`{}` is larger than a gibibyte", file.path)));
            }
        }
        Ok(manifest)
    }

    /// The chunks that are needed and not here, as far as they are known: fetch them and ask again, until there are none. `raw`
    /// has the chunks that are here, [inflated](inflate) and so checked.
    pub fn missing(
        &self,
        mut raw: impl FnMut(&Digest) -> Option<Vec<u8>>,
        has: impl Fn(&Digest) -> bool,
    ) -> Result<BTreeSet<Digest>, Error> {
        let mut missing = BTreeSet::new();
        for file in &self.files {
            match &file.chunks {
                Chunks::Here(list) => missing.extend(list.iter().filter(|it| !has(it))),
                Chunks::In(parts) => {
                    for part in parts {
                        match raw(part) {
                            Some(bytes) => missing.extend(
                                digests(&file.path, &bytes)?.into_iter().filter(|it| !has(it)),
                            ),
                            None => drop(missing.insert(*part)),
                        }
                    }
                }
            }
        }
        Ok(missing)
    }
}

impl File {
    /// Joins the chunks and checks the whole. `raw` has the [inflated](inflate) chunks.
    pub fn assemble(
        &self,
        mut raw: impl FnMut(&Digest) -> Option<Vec<u8>>,
    ) -> Result<Vec<u8>, Error> {
        let mut chunk = |digest: &Digest| {
            let chunk = raw(digest).ok_or(Error::MissingChunk { digest: *digest })?;
            let is_it = Digest::of(&chunk) == *digest;
            let why = "its content has another hash";
            if is_it { Ok(chunk) } else { Err(Error::DamagedChunk { digest: *digest, why }) }
        };
        let list = match &self.chunks {
            Chunks::Here(list) => list.clone(),
            Chunks::In(parts) => {
                let lists = parts.iter().map(|part| digests(&self.path, &chunk(part)?));
                lists.collect::<Result<Vec<_>, Error>>()?.concat()
            }
        };
        let mismatch = |why| Error::Content { path: self.path.clone(), why };
        let mut content = Vec::new();
        for digest in &list {
            content.extend(chunk(digest)?);
            if content.len() as u64 > self.size {
                return Err(mismatch("it is larger"));
            }
        }
        if content.len() as u64 != self.size {
            return Err(mismatch("it is smaller"));
        }
        if Digest::of(&content) != self.digest {
            return Err(mismatch("it has another hash"));
        }
        Ok(content)
    }
}

fn digests(path: &str, bytes: &[u8]) -> Result<Vec<Digest>, Error> {
    let (list, rest) = bytes.as_chunks::<{ Digest::LENGTH }>();
    if !rest.is_empty() {
        return Err(Error::Content {
            path: path.to_owned(),
            why: "a list of its chunks is damaged",
        });
    }
    Ok(list.iter().copied().map(Digest::from_bytes).collect())
}

/// The chunks of a content, in order. Joined, they are the content.
pub fn cut(content: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = content;
    std::iter::from_fn(move || {
        let (chunk, behind) = rest.split_at_checked(first_border(rest))?;
        rest = behind;
        (!chunk.is_empty()).then_some(chunk)
    })
}

/// Where the first chunk ends.
fn first_border(content: &[u8]) -> usize {
    let mut end = 0;
    for line in content.split_inclusive(|byte| *byte == b'\n') {
        if end + line.len() > LARGEST {
            // A line that fits nowhere is cut where the chunk is full, and a short one begins the next chunk.
            return if end >= SMALLEST { end } else { LARGEST };
        }
        end += line.len();
        if end >= SMALLEST && is_border(line, end) {
            return end;
        }
    }
    end
}

fn is_border(line: &[u8], length: usize) -> bool {
    let one_in = if length < USUAL { BEFORE_USUAL } else { BEHIND_USUAL };
    let [a, b, c, d, ..] = *Digest::of(line).as_bytes();
    // A line of n bytes is a border with a probability of n in `one_in`.
    (u64::from(u32::from_be_bytes([a, b, c, d])) * one_in) >> 32 < line.len() as u64
}

/// The same for lists of digests.
fn cut_list(list: &[Digest]) -> impl Iterator<Item = &[Digest]> {
    let mut rest = list;
    std::iter::from_fn(move || {
        let is_border = |(index, digest): (usize, &Digest)| {
            let [.., lowest] = *digest.as_bytes();
            let count = index + 1;
            let ends = count >= SMALLEST_PART && lowest % USUAL_PART == 0;
            (ends || count == LARGEST_PART).then_some(count)
        };
        let end = rest.iter().enumerate().find_map(is_border).unwrap_or(rest.len());
        let (part, behind) = rest.split_at_checked(end)?;
        rest = behind;
        (!part.is_empty()).then_some(part)
    })
}
