//! `[nftables]`: a ruleset in nft's own language, beside the document or inside of it.

use std::path::PathBuf;

use crate::fields::{Fields, Section, section};
use crate::span::Spanned;

/// The firewall. Without file and ruleset it is the wish for no tables, said aloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nftables {
    /// The text, or where it is.
    pub ruleset: Option<Ruleset>,
    /// Whether the tables may be taken from anybody.
    pub adopt: bool,
}

/// Where the nft text comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ruleset {
    /// A file, seen from the document's own directory.
    File(Spanned<PathBuf>),
    /// The text itself.
    Text(Spanned<String>),
}

section!(Nftables);

impl Section for Nftables {
    const NAME: &'static str = "nftables";
    const DOC: &'static str = "The firewall, in nft's own language";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let file = fields.optional("file", "A file in nft's own language");
        let text = fields.optional("ruleset", "The same, written here");
        let adopt = fields.flag("adopt", "Standing leave to take these tables from anybody");
        fields.exclusive("file", "ruleset");
        let ruleset = file.map(Ruleset::File).or(text.map(Ruleset::Text));
        Some(Self { ruleset, adopt })
    }
}
