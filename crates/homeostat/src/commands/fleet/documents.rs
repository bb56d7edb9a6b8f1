//! Renders the document of each node from a directory of files and templates.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use homeostat_document::Format;
use homeostat_fleet::Name;
use homeostat_render::{Content, Data, FileSet, RenderCause, RenderError, Secrecy, Value};
use serde_json::json;

use super::inventory::NodeEntry;
use crate::failure::helped;

/// What a template's name ends in.
const TEMPLATE: &str = ".node.j2";
/// The end of names of templates that nodes render.
const OTHER_TEMPLATE: &str = ".j2";

/// The files of a document by their paths.
pub(super) type Files = BTreeMap<String, Vec<u8>>;

/// Files and templates of which the documents of all nodes are made.
pub(super) struct Templates {
    plain: Files,
    /// None if no file is a template.
    rendered: Option<FileSet>,
}

impl Templates {
    pub(super) fn read(directory: &Path) -> Result<Self> {
        let mut paths = Vec::new();
        find_files(directory, Path::new(""), &mut paths)?;
        let mut plain = Files::new();
        let mut set = FileSet::builder(directory);
        let mut has_templates = false;
        for path in paths {
            let text = path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?;
            if let Some(name) = text.strip_suffix(TEMPLATE) {
                has_templates = true;
                set = set.file(name, Content::Template(path.clone()), Secrecy::Public);
                continue;
            }
            refuse_unrendered(directory, text)?;
            let file = directory.join(&path);
            let bytes =
                std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
            plain.insert(text.to_owned(), bytes);
        }
        let rendered = has_templates.then(|| set.build()).transpose();
        let rendered = rendered.map_err(|error| anyhow::anyhow!("{error}"))?;
        if plain.is_empty() && rendered.is_none() {
            return Err(helped(
                format!("{} has no files", directory.display()),
                "write a document to it, such as host.toml or host.toml.node.j2",
            ));
        }
        Ok(Templates { plain, rendered })
    }

    /// The document of one node.
    pub(super) fn render(&self, fleet: &Name, node: &Name, entry: &NodeEntry) -> Result<Files> {
        let mut files = self.plain.clone();
        let Some(set) = &self.rendered else { return Ok(files) };
        let about = json!({
            "name": node, "groups": entry.record.groups, "labels": entry.record.labels, "ring": entry.record.ring,
        });
        let names = [("node", Value::from(about)), ("fleet", Value::from(json!(fleet)))];
        let names = names.map(|(name, value)| (name.to_owned(), value)).into();
        let data = Data { values: Value::from(entry.values.clone()), names, ..Data::default() };
        let draft = set.render(&data).map_err(|error| Self::failed(node, &error))?;
        for (path, file) in draft.finish_unmasked(b"").files {
            if file.bytes.trim_ascii().is_empty() {
                continue;
            }
            let path = path.to_string_lossy().into_owned();
            if self.plain.contains_key(&path) {
                return Err(helped(
                    format!("`{path}` is there twice, as a file and as a template"),
                    format!("remove {path} or {path}{TEMPLATE}"),
                ));
            }
            files.insert(path, file.bytes);
        }
        Ok(files)
    }

    fn failed(node: &Name, error: &RenderError) -> anyhow::Error {
        let text = format!("node {node}: {error}");
        match &error.cause {
            RenderCause::Needs(_) => helped(
                format!(
                    "{text}: what is rendered before it is signed knows nothing of the machine"
                ),
                "write it to the inventory, or let a file set of the document render it on the node",
            ),
            RenderCause::Undefined => helped(
                text,
                format!(
                    "write the value to the inventory: [nodes.{node}.values], the values of a group, or [values]"
                ),
            ),
            _ => anyhow::anyhow!("{text}"),
        }
    }
}

/// A document that nodes would skip in silence.
fn refuse_unrendered(directory: &Path, path: &str) -> Result<()> {
    let document = path.strip_suffix(OTHER_TEMPLATE).filter(|name| !name.contains('/'));
    match document {
        Some(name) if Format::of(Path::new(name)).is_some() => Err(helped(
            format!("{} would not be read by nodes", directory.join(path).display()),
            format!("call it {name}{TEMPLATE}, so that it is rendered for each node"),
        )),
        _ => Ok(()),
    }
}

/// All files below a directory that are copied or rendered, relative to it.
fn find_files(directory: &Path, below: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    let at = directory.join(below);
    let cannot = || format!("cannot read {}", at.display());
    let mut entries: Vec<_> = std::fs::read_dir(&at)
        .with_context(cannot)?
        .collect::<Result<_, _>>()
        .with_context(cannot)?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name();
        let shown = name.to_string_lossy();
        if shown.starts_with(['.', '_']) || shown.ends_with('~') {
            continue;
        }
        let path = below.join(&name);
        // Links are followed: what they lead to is signed.
        let metadata = std::fs::metadata(entry.path())
            .with_context(|| format!("cannot read {}", entry.path().display()))?;
        if metadata.is_dir() {
            find_files(directory, &path, found)?;
        } else if metadata.is_file() {
            found.push(path);
        } else {
            return Err(helped(format!("{} is no file", entry.path().display()), "remove it"));
        }
    }
    Ok(())
}
