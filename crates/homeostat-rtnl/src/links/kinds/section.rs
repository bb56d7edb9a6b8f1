//! What only documents need to know of kinds.

use homeostat_document::{Diagnostic, Fields, Number, Spanned, Text, ValueError, refuse};

use super::{KINDS, NEEDS_PARENT};

/// Hops that a packet may take; 0 takes over that of the inner packet.
pub(crate) const TTL: Number<u8> = Number { what: "a time to live", least: 0, most: u8::MAX };

pub(super) fn check_parent(fields: &mut Fields<'_>, kind: Spanned<KindName>) {
    if NEEDS_PARENT.contains(&kind.value.0) && !fields.has("parent") {
        let message = format!("a link of kind `{}` needs a parent", kind.value.0);
        fields.report(Diagnostic::new(kind.span, message).help("add `parent = \"eth0\"`"));
    }
}

/// One of the kinds that can be made.
#[derive(Clone, Copy)]
pub(super) struct KindName(pub(super) &'static str);

impl Text for KindName {
    const WHAT: &'static str = "a kind of link";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        let known = KINDS.iter().find(|kind| **kind == text);
        known.map(|kind| Self(kind)).ok_or_else(|| refuse(text, Self::WHAT, &KINDS))
    }

    fn words() -> Vec<&'static str> {
        KINDS.to_vec()
    }
}
