//! Our mark on a guest: a tag that names the owner, the guest's number, a generation, and the machine that claimed it.
//!
//! The number of a deleted guest is used again, so a number does not identify a guest. The mark does: another guest
//! with the same number does not have it, and in a clone it contains the number of the original. The generation is
//! taken from the digest of the configuration that was claimed.

use std::collections::BTreeSet;

use ring::digest::{SHA256, digest};

use crate::model::Vmid;
use crate::normalize;

const PREFIX: &str = "homeostat-";
/// How many digits of the digest.
const GENERATION: usize = 8;

/// Who puts marks on guests, beside the owner: a machine, or machines that take turns. Two machines with the same owner
/// that act on one cluster see each other by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimant {
    /// The beginning of a digest.
    id: String,
    /// For people.
    name: String,
    /// What this machine was before it took turns with others.
    former: Option<String>,
}

impl Claimant {
    /// How many characters of a name are part of the mark.
    const NAME: usize = 24;

    /// Known by a text that no other claimant has, and by a name for people.
    #[must_use]
    pub fn new(identity: &str, name: &str) -> Self {
        let digest = digest(&SHA256, identity.as_bytes());
        let head = digest.as_ref().iter().take(4);
        let head = head.fold(0_u32, |head, byte| head << 8 | u32::from(*byte));
        let id = format!("{head:08x}");
        let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
        let name = name.chars().map(plain).take(Self::NAME).collect();
        Claimant { id, name, former: None }
    }

    /// The same, for a machine that was another claimant before: marks of that one are its own.
    #[must_use]
    pub fn formerly(self, former: &Claimant) -> Self {
        Claimant { former: Some(former.id.clone()), ..self }
    }

    fn is(&self, id: &str) -> bool {
        self.id == id || self.former.as_deref() == Some(id)
    }
}

/// Whether a tag is a mark of any owner.
#[must_use]
pub(crate) fn is_mark(tag: &str) -> bool {
    parse(tag).is_some()
}

struct Parsed<'a> {
    owner: &'a str,
    vmid: &'a str,
    /// Id and name; marks of former versions have none.
    claimant: Option<(&'a str, &'a str)>,
}

fn parse(tag: &str) -> Option<Parsed<'_>> {
    let (owner, rest) = tag.strip_prefix(PREFIX)?.rsplit_once('+')?;
    let (vmid, rest) = rest.split_once('.')?;
    let claimant = rest.split_once('.').map(|(_generation, claimant)| claimant);
    let claimant = claimant.map(|claimant| claimant.split_once('.').unwrap_or((claimant, "")));
    Some(Parsed { owner, vmid, claimant })
}

/// The owner of a guest by its marks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Marked {
    Not,
    /// With the tag.
    Ours(String),
    /// With the name of the owner, and of the machine if the owner is ours.
    Other(String),
}

/// Reads the marks of a guest. A mark that names no claimant may be of any machine, and is ours.
pub(crate) fn read(
    owner: &str,
    claimant: Option<&Claimant>,
    vmid: Vmid,
    tags: &BTreeSet<String>,
) -> Marked {
    let (owner, number) = (owner.to_lowercase(), vmid.0.to_string());
    let mut marked = Marked::Not;
    for tag in tags {
        let Some(parsed) = parse(tag) else { continue };
        if parsed.vmid != number {
            // A mark with another number was copied by cloning.
            continue;
        }
        if parsed.owner != owner {
            return Marked::Other(parsed.owner.to_owned());
        }
        if let (Some(ours), Some((id, name))) = (claimant, parsed.claimant)
            && !ours.is(id)
        {
            let name = if name.is_empty() { id.to_owned() } else { format!("{name} ({id})") };
            return Marked::Other(format!(
                "{owner} on {name}, which acts on the same cluster as {} ({})",
                ours.name, ours.id
            ));
        }
        marked = Marked::Ours(tag.clone());
    }
    marked
}

/// The mark for a guest whose configuration has this digest.
pub(crate) fn make(owner: &str, claimant: Option<&Claimant>, vmid: Vmid, digest: &str) -> String {
    let generation: String =
        digest.chars().filter(char::is_ascii_alphanumeric).take(GENERATION).collect();
    let claimant = claimant.map(|Claimant { id, name, .. }| match name.as_str() {
        "" => format!(".{id}"),
        name => format!(".{id}.{name}"),
    });
    let claimant = claimant.unwrap_or_default();
    let generation = generation.to_lowercase();
    format!("{PREFIX}{}+{}.{generation}{claimant}", owner.to_lowercase(), vmid.0)
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
        let mark = make("default", None, Vmid(101), "0123456789abcdef");
        assert_eq!(mark, "homeostat-default+101.01234567");
        assert!(crate::normalize::is_tag(&mark));
        let tags = set(&["web", &mark]);
        assert_eq!(read("default", None, Vmid(101), &tags), Marked::Ours(mark.clone()));
        assert_eq!(read("other", None, Vmid(101), &tags), Marked::Other("default".to_owned()));
        assert_eq!(without(&tags), set(&["web"]));
    }

    #[test]
    fn a_mark_of_another_machine_with_the_same_owner_is_seen_and_names_it() {
        let [one, two] = ["one", "two"].map(|name| Claimant::new(name, name));
        let mark = make("default", Some(&one), Vmid(101), "0123456789abcdef");
        assert_eq!(mark, "homeostat-default+101.01234567.7692c3ad.one");
        assert!(crate::normalize::is_tag(&mark));
        let tags = set(&[&mark]);
        let read = |claimant: &Claimant| read("default", Some(claimant), Vmid(101), &tags);
        assert_eq!(read(&one), Marked::Ours(mark.clone()));
        assert!(matches!(read(&two), Marked::Other(who) if who.contains("one (7692c3ad)")));
        // One that takes turns with others keeps what it had claimed before.
        let turns = Claimant::new("edge/east", "edge/east");
        assert!(matches!(read(&turns), Marked::Other(_)));
        assert_eq!(read(&turns.formerly(&one)), Marked::Ours(mark.clone()));
    }

    #[test]
    fn a_mark_without_a_machine_is_ours() {
        let tag = "homeostat-default+101.01234567";
        let claimant = Claimant::new("one", "one");
        let read = read("default", Some(&claimant), Vmid(101), &set(&[tag]));
        assert_eq!(read, Marked::Ours(tag.to_owned()));
    }

    #[test]
    fn a_clone_is_not_marked_by_the_mark_of_its_original() {
        let tags = set(&["homeostat-default+101.01234567"]);
        assert_eq!(read("default", None, Vmid(102), &tags), Marked::Not);
        let mark = make("default", None, Vmid(102), "ff");
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
