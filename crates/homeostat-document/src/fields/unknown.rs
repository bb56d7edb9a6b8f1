//! Finds the fields that a table does not have, and those that it lacks.

use super::{Fields, Known};
use crate::diagnostic::Diagnostic;
use crate::node::shorten;
use crate::span::Spanned;
use crate::suggest::nearest;

impl Fields<'_> {
    /// Whether none of the fields is here, and no unknown field may have been meant for one.
    #[must_use]
    pub fn lacks(&self, names: &[&str]) -> bool {
        let known = |key: &str| self.known.iter().any(|known| known.name == key);
        let all_known = self.entries.iter().all(|(key, _)| known(&key.value));
        all_known && !names.iter().any(|name| self.has(name))
    }

    /// Reports unknown and missing fields; whether there were none.
    pub(super) fn finish(mut self) -> bool {
        let mut meant = Vec::new();
        for (key, _) in self.entries {
            if let Some(diagnostic) = self.judge(key, &mut meant) {
                self.report(diagnostic);
            }
        }
        self.missing.retain(|name| !meant.contains(name));
        let missing = std::mem::take(&mut self.missing);
        for name in &missing {
            self.report(Diagnostic::new(self.span, format!("the field `{name}` is missing")));
        }
        missing.is_empty()
    }

    /// What is wrong with the field's name, if anything.
    fn judge(&self, key: &Spanned<String>, meant: &mut Vec<&'static str>) -> Option<Diagnostic> {
        let same: Vec<&Known> = self.known.iter().filter(|one| one.name == key.value).collect();
        if same.iter().any(|one| one.kinds.is_empty() || self.fits(one)) {
            return None;
        }
        if !same.is_empty() {
            // Which kind was meant is not known when the kind itself is wrong.
            let unsure = self.kind.is_none() && self.has("kind");
            return (!unsure).then(|| self.wrong_kind(key, &same));
        }
        let usable = self.known.iter().filter(|one| one.kinds.is_empty() || self.fits(one));
        let near = nearest(&key.value, usable.map(|one| one.name));
        meant.extend(near);
        let message = format!("unknown field `{}`", shorten(&key.value));
        let help = near.map(|name| format!("did you mean `{name}`?")).or_else(|| self.list());
        Some(Diagnostic::new(key.span, message).maybe_help(help))
    }

    fn fits(&self, known: &Known) -> bool {
        self.kind.is_some_and(|kind| known.kinds.contains(&kind))
    }

    fn wrong_kind(&self, key: &Spanned<String>, same: &[&Known]) -> Diagnostic {
        let kinds: Vec<&str> = same.iter().flat_map(|one| one.kinds).copied().collect();
        let message = match self.kind {
            Some(kind) => format!("`{}` is not an option of kind `{kind}`", key.value),
            None => format!("`{}` needs a kind", key.value),
        };
        Diagnostic::new(key.span, message).help(format!("it is for kind {}", kinds.join(", ")))
    }

    fn list(&self) -> Option<String> {
        let usable = self.known.iter().filter(|one| one.kinds.is_empty() || self.fits(one));
        let names: Vec<&str> = usable.map(|one| one.name).collect();
        (!names.is_empty()).then(|| format!("the fields here are {}", names.join(", ")))
    }
}
