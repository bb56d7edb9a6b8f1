//! A rollout in a directory, between signing and starting.
//!
//! ```text
//! BUNDLE/statement.json          what is signed, byte for byte
//! BUNDLE/plan.json               the same statement, for nodes that shall plan it and apply nothing
//! BUNDLE/*.json*.sig             signatures of both, as `ssh-keygen -Y sign` writes them
//! BUNDLE/leaves.json             which node gets which document, in the order of the waves
//! BUNDLE/documents/SHA256/...    the documents as nodes get them, to be read by people before they sign
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use homeostat_fleet::chunks::{self, Packed};
use homeostat_fleet::decide::Rollout;
use homeostat_fleet::judge::NAMESPACE;
use homeostat_fleet::merkle::Leaf;
use homeostat_fleet::records::{
    LARGEST_STATEMENT, Leaves, Record as _, SignedStatement, Statement,
};
use homeostat_fleet::{Digest, Name, Signature};

use super::connection::Connection;
use super::documents::Files;
use super::now;
use super::programs::sign_command;
use crate::failure::helped;

pub(super) struct Bundle {
    pub(super) rollout: Rollout,
    pub(super) signed: SignedStatement,
    /// The statement that asks for plans.
    pub(super) plan: SignedStatement,
    /// By their digests: the documents of the leaves, and what of the fallbacks is here.
    pub(super) documents: BTreeMap<Digest, Packed>,
}

/// What is signed.
pub(super) const STATEMENT: &str = "statement.json";
pub(super) const PLAN: &str = "plan.json";

impl Bundle {
    pub(super) fn read(directory: &Path) -> Result<Self> {
        let path = directory.join(STATEMENT);
        let statement = read_statement(directory, STATEMENT)?;
        let parsed = Statement::parse(&statement).with_context(|| path.display().to_string())?;
        let list = directory.join("leaves.json");
        let leaves: Vec<Leaf> =
            serde_json::from_slice(&read(&list)?).with_context(|| list.display().to_string())?;
        let rollout =
            Rollout::new(parsed, leaves).with_context(|| directory.display().to_string())?;
        let signatures = read_signatures(directory, STATEMENT, &statement)?;
        let signed = SignedStatement { statement, signatures };
        let statement = read_statement(directory, PLAN)?;
        let signatures = read_signatures(directory, PLAN, &statement)?;
        let plan = SignedStatement { statement, signatures };
        let empty = chunks::empty();
        let mut documents: BTreeMap<_, _> = [(empty.document, empty)].into();
        for leaf in rollout.leaves() {
            if documents.contains_key(&leaf.document) {
                continue;
            }
            let at = documents_of(directory).join(leaf.document.hex());
            let packed = pack(&read_files(&at)?);
            if packed.document != leaf.document {
                return Err(helped(
                    format!("{} was changed after it was signed, or misses a file", at.display()),
                    "render and sign it anew with `homeostat fleet sign`",
                ));
            }
            documents.insert(leaf.document, packed);
        }
        Ok(Bundle { rollout, signed, plan, documents })
    }

    /// Refuses a statement without the signatures that nodes will ask for, as far as this host knows.
    pub(super) fn check_signatures(
        directory: &Path,
        name: &str,
        signed: &SignedStatement,
        connection: &Connection,
    ) -> Result<()> {
        let path = directory.join(name);
        if signed.signatures.is_empty() {
            return Err(helped(
                format!("{} is not signed", path.display()),
                format!("sign it: {}", sign_command(NAMESPACE, &path)),
            ));
        }
        if let Some((signers, needed)) = connection.allowed_signers()? {
            let message = signed.statement.as_bytes();
            let verified =
                signers.verify(message, NAMESPACE, &signed.signatures, needed, Some(now()));
            verified.with_context(|| format!("nodes would refuse {}", path.display()))?;
        }
        Ok(())
    }

    pub(super) fn statement(&self) -> &Statement {
        self.rollout.statement()
    }

    /// The leaves by the name of their fleet must be those of the fleet that is connected.
    pub(super) fn is_for(&self, fleet: &Name) -> Result<()> {
        let signed = &self.statement().fleet;
        if signed == fleet {
            return Ok(());
        }
        Err(helped(
            format!("the statement is for the fleet `{signed}`, and this is `{fleet}`"),
            format!("give --fleet {signed}, or sign it for this fleet"),
        ))
    }
}

/// Writes what can be signed then.
pub(super) fn write(
    directory: &Path,
    statement: &Statement,
    leaves: &[Leaf],
    documents: &BTreeMap<Digest, Files>,
) -> Result<()> {
    let cannot = || format!("cannot write {}", directory.display());
    fs::create_dir(directory).with_context(cannot)?;
    for (digest, files) in documents {
        let at = documents_of(directory).join(digest.hex());
        fs::create_dir_all(&at).with_context(cannot)?;
        for (path, bytes) in files {
            let file = at.join(path);
            fs::create_dir_all(file.parent().unwrap_or(&at)).with_context(cannot)?;
            fs::write(file, bytes).with_context(cannot)?;
        }
    }
    let list = serde_json::to_vec_pretty(leaves).unwrap_or_default();
    fs::write(directory.join("leaves.json"), list).with_context(cannot)?;
    fs::write(directory.join(STATEMENT), statement.write()).with_context(cannot)?;
    fs::write(directory.join(PLAN), plan_of(statement)?.write()).with_context(cannot)
}

/// The statement that asks for plans of a rollout.
fn plan_of(statement: &Statement) -> Result<Statement> {
    let id =
        format!("{}.plan", statement.id).parse().context("the name of the rollout is too long")?;
    Ok(Statement { id, plan: true, ..statement.clone() })
}

/// Has both statements signed, and adds the signatures under names that are free.
pub(super) fn sign(directory: &Path, sign: impl Fn(&[u8]) -> Result<String>) -> Result<()> {
    for name in [STATEMENT, PLAN] {
        let signature = sign(read_statement(directory, name)?.as_bytes())?;
        let names = (1_u32..).map(|nth| match nth {
            1 => format!("{name}.sig"),
            _ => format!("{name}.{nth}.sig"),
        });
        let free = names.map(|name| directory.join(name)).find(|path| !path.exists());
        let path = free.unwrap_or_default();
        fs::write(&path, signature).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn read_statement(directory: &Path, name: &str) -> Result<String> {
    let path = directory.join(name);
    let bytes = read(&path).map_err(|error| {
        helped(
            format!("{} is no bundle: {error:#}", directory.display()),
            "`homeostat fleet sign DIR --inventory FILE --out BUNDLE` makes one",
        )
    })?;
    if bytes.len() > LARGEST_STATEMENT {
        return Err(helped(
            format!("{} is larger than any statement", path.display()),
            "sign anew",
        ));
    }
    String::from_utf8(bytes).with_context(|| format!("{} is not UTF-8", path.display()))
}

/// All signatures of a statement. One that is not of these bytes is a mistake that would show only on the nodes.
fn read_signatures(directory: &Path, name: &str, statement: &str) -> Result<Vec<String>> {
    let entries =
        fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let is_signature = |path: &PathBuf| {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        file.starts_with(name) && file.ends_with(".sig")
    };
    let paths: BTreeSet<_> =
        entries.flatten().map(|entry| entry.path()).filter(is_signature).collect();
    let mut signatures = Vec::new();
    for path in paths {
        let text = String::from_utf8(read(&path)?)
            .with_context(|| format!("{} is not UTF-8", path.display()))?;
        let signature = Signature::parse(&text);
        let verified = signature.and_then(|it| it.verify(statement.as_bytes(), NAMESPACE));
        verified.with_context(|| format!("{} is no signature of {name}", path.display()))?;
        signatures.push(text);
    }
    Ok(signatures)
}

pub(super) fn pack(files: &Files) -> Packed {
    chunks::pack(files.iter().map(|(path, bytes)| (path.as_str(), bytes.as_slice())), &[])
}

/// The records of the leaves.
pub(super) fn leaf_parts(rollout: &Rollout) -> impl Iterator<Item = Vec<u8>> {
    Leaves::parts(rollout.leaves()).map(|part| part.write())
}

fn documents_of(directory: &Path) -> PathBuf {
    directory.join("documents")
}

/// All files below a directory; names mean nothing here.
fn read_files(directory: &Path) -> Result<Files> {
    let mut files = Files::new();
    let mut open = vec![directory.to_owned()];
    while let Some(at) = open.pop() {
        let entries = fs::read_dir(&at).with_context(|| format!("cannot read {}", at.display()))?;
        for entry in entries {
            let path = entry.with_context(|| format!("cannot read {}", at.display()))?.path();
            if path.is_dir() {
                open.push(path);
                continue;
            }
            let name = path.strip_prefix(directory).unwrap_or(&path).to_string_lossy().into_owned();
            files.insert(name, read(&path)?);
        }
    }
    Ok(files)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}
