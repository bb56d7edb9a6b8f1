//! What only a signed order may do: `require-order`, `allowed-signers` and `signatures` of `[settings]`.

use std::path::PathBuf;

use serde_json::{Value as Json, json};

use crate::checker::Checker;
use crate::diagnostic::Diagnostic;
use crate::fields::Fields;
use crate::node::Node;
use crate::number::Number;
use crate::section::SourceSections;
use crate::shape::{Definitions, MachinePath, Shape, check};
use crate::span::Spanned;
use crate::words::refuse;

/// Actions of the program itself. Sources add the words of their [commands](SourceSections::commands).
pub const ACTIONS: [&str; 7] =
    ["adopt", "release", "forget", "uninstall", "mass-delete", "cascades", "accept-loss"];

/// Which actions need a signed order, and who may sign.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrderSettings {
    pub required: Vec<Spanned<ActionName>>,
    /// A list in OpenSSH's format. It is read for each order, and is no part of the document.
    pub allowed_signers: Option<PathBuf>,
    /// How many distinct keys must have signed; one, if it is not written.
    pub signatures: Option<u16>,
}

/// An action that an order can be required for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ActionName(String);

impl ActionName {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

const SIGNATURES: Number<u16> = Number { what: "a number of signatures", least: 1, most: 16 };

impl OrderSettings {
    pub(crate) fn read(fields: &mut Fields<'_>) -> Self {
        let doc = "Commands that need a signed order: `homeostat order` makes one";
        let required: Option<Vec<Spanned<ActionName>>> = fields.optional("require-order", doc);
        let doc = "Who may sign orders, in the format of OpenSSH's allowed signers";
        let signers: Option<MachinePath> = fields.optional("allowed-signers", doc);
        let doc = "How many distinct keys must have signed an order; 1 if left out";
        let signatures = fields.number("signatures", doc, SIGNATURES);
        let required = required.unwrap_or_default();
        if !required.is_empty() && signers.is_none() && !fields.has("allowed-signers") {
            let message = "`require-order` needs `allowed-signers`: nobody could sign an order";
            let help = "add `allowed-signers = \"/etc/homeostat/allowed_signers\"`, with a line for each key";
            fields.report(Diagnostic::new(fields.at("require-order"), message).help(help));
        }
        Self { required, allowed_signers: signers.map(|path| path.0), signatures }
    }
}

fn words(sources: &[SourceSections]) -> Vec<&'static str> {
    let of_sources = sources.iter().flat_map(|source| source.commands.iter().copied());
    ACTIONS.into_iter().chain(of_sources).collect()
}

impl Shape for ActionName {
    fn read(node: &Node, checker: &mut Checker) -> Option<Self> {
        let text = String::read(node, checker)?;
        let words = words(checker.sources);
        let action = if words.contains(&text.as_str()) {
            Ok(Self(text))
        } else {
            Err(refuse(&text, "an action that an order can be required for", &words))
        };
        check(action, node, checker)
    }

    fn schema(definitions: &mut Definitions) -> Json {
        json!({ "enum": words(definitions.sources), "description": "an action" })
    }
}
