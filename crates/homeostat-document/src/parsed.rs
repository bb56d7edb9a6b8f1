//! Remembers the trees of texts, so that what did not change is not parsed again.

use std::collections::HashMap;
use std::sync::Arc;

use crate::diagnostic::Diagnostic;
use crate::load::{Format, Text, parse_tree};
use crate::node::Node;
use crate::span::FileId;

/// The trees of texts that were read before, so that a document of thousands of texts is read again at the cost of
/// those that changed, and of one copy of the rest.
#[derive(Clone, Debug, Default)]
pub struct ParsedTexts(HashMap<String, ParsedText>);

#[derive(Clone, Debug)]
struct ParsedText {
    format: Format,
    text: String,
    tree: Arc<Node>,
    /// Whether the last document had it.
    is_used: bool,
}

impl ParsedTexts {
    /// The tree of a text that has this id.
    pub(crate) fn tree(&mut self, id: FileId, text: &Text) -> Result<Node, Vec<Diagnostic>> {
        let known = self.0.get_mut(&text.name);
        let known = known.filter(|known| known.format == text.format && known.text == text.text);
        if let Some(known) = known {
            known.is_used = true;
            return Ok(known.tree.copied_to(id));
        }
        let tree = parse_tree(id, text.format, &text.text)?;
        let parsed = ParsedText {
            format: text.format,
            text: text.text.clone(),
            tree: Arc::new(tree.clone()),
            is_used: true,
        };
        self.0.insert(text.name.clone(), parsed);
        Ok(tree)
    }

    /// Forgets the texts that the last document did not have.
    pub(crate) fn forget_unused(&mut self) {
        self.0.retain(|_, known| std::mem::take(&mut known.is_used));
    }
}
