//! Our mark on a guest: a tag that names the owner, the guest's number and a generation.
//!
//! The number of a deleted guest is used again, so a number does not identify a guest. The mark does: another guest
//! with the same number does not have it, and in a clone it contains the number of the original. The generation is
//! taken from the digest of the configuration that was claimed.

use std::collections::BTreeSet;

use crate::model::Vmid;
use crate::normalize;

const PREFIX: &str = "homeostat-";
/// How many digits of the digest.
const GENERATION: usize = 8;

/// Whether a tag is a mark of any owner.
#[must_use]
pub(crate) fn is_mark(tag: &str) -> bool {
    parse(tag).is_some()
}

/// The owner and the number of the guest in a mark.
fn parse(tag: &str) -> Option<(&str, &str)> {
    let (owner, rest) = tag.strip_prefix(PREFIX)?.rsplit_once('+')?;
    let (vmid, _generation) = rest.split_once('.')?;
    Some((owner, vmid))
}

/// The owner of a guest by its marks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Marked {
    Not,
    /// With the tag.
    Ours(String),
    /// With the name of the owner.
    Other(String),
}

/// Reads the marks of a guest.
pub(crate) fn read(owner: &str, vmid: Vmid, tags: &BTreeSet<String>) -> Marked {
    let (owner, number) = (owner.to_lowercase(), vmid.0.to_string());
    let mut marked = Marked::Not;
    for tag in tags {
        match parse(tag) {
            // A mark with another number was copied by cloning.
            Some((_, of)) if of != number => {}
            Some((other, _)) if other != owner => return Marked::Other(other.to_owned()),
            Some(_) => marked = Marked::Ours(tag.clone()),
            None => {}
        }
    }
    marked
}

/// The mark for a guest whose configuration has this digest.
pub(crate) fn make(owner: &str, vmid: Vmid, digest: &str) -> String {
    let generation: String =
        digest.chars().filter(char::is_ascii_alphanumeric).take(GENERATION).collect();
    format!("{PREFIX}{}+{}.{}", owner.to_lowercase(), vmid.0, generation.to_lowercase())
}

/// Tags without marks, as shown to users.
pub(crate) fn without(tags: &BTreeSet<String>) -> BTreeSet<String> {
    tags.iter().filter(|tag| !is_mark(tag)).cloned().collect()
}

/// The tags to write: the declared ones, or else the present ones, with our mark and no other.
pub(crate) fn tags(declared: Option<&str>, present: &BTreeSet<String>, mark: &str) -> String {
    let mut tags = match declared {
        Some(declared) => normalize::tags(declared),
        None => without(present),
    };
    tags.insert(mark.to_owned());
    normalize::join(tags)
}

/// The tags to write when our mark is removed: the original ones, or else the present ones. Marks of others stay.
pub(crate) fn tags_without(
    original: Option<&str>,
    present: &BTreeSet<String>,
    mark: &str,
) -> String {
    let original = original.map(normalize::tags);
    let kept = present.iter().filter(|tag| original.is_none() || is_mark(tag));
    let tags = kept.chain(original.iter().flatten()).filter(|tag| *tag != mark);
    normalize::join(tags.cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(tags: &[&str]) -> BTreeSet<String> {
        tags.iter().map(|tag| (*tag).to_owned()).collect()
    }

    #[test]
    fn a_mark_names_owner_guest_and_generation() {
        let mark = make("default", Vmid(101), "0123456789abcdef");
        assert_eq!(mark, "homeostat-default+101.01234567");
        assert!(crate::normalize::is_tag(&mark));
        let tags = set(&["web", &mark]);
        assert_eq!(read("default", Vmid(101), &tags), Marked::Ours(mark.clone()));
        assert_eq!(read("other", Vmid(101), &tags), Marked::Other("default".to_owned()));
        assert_eq!(without(&tags), set(&["web"]));
    }

    #[test]
    fn a_clone_is_not_marked_by_the_mark_of_its_original() {
        let tags = set(&["homeostat-default+101.01234567"]);
        assert_eq!(read("default", Vmid(102), &tags), Marked::Not);
        let mark = make("default", Vmid(102), "ff");
        assert_eq!(super::tags(None, &tags, &mark), mark);
    }

    #[test]
    fn other_tags_stay_where_none_are_declared() {
        let there = set(&["web", "homeostat-other+101.0a"]);
        assert_eq!(tags(None, &there, "homeostat-default+101.0b"), "homeostat-default+101.0b;web");
        assert_eq!(
            tags(Some("a;b"), &there, "homeostat-default+101.0b"),
            "a;b;homeostat-default+101.0b"
        );
    }

    #[test]
    fn only_our_mark_is_removed_and_original_tags_are_restored_on_request() {
        let there = set(&["a", "homeostat-default+101.0b", "homeostat-default+102.0c"]);
        let ours = "homeostat-default+101.0b";
        assert_eq!(tags_without(None, &there, ours), "a;homeostat-default+102.0c");
        assert_eq!(tags_without(Some("web"), &there, ours), "homeostat-default+102.0c;web");
        assert_eq!(tags_without(None, &set(&[ours]), ours), "");
    }
}
