//! Which files `nft` takes for what an `include` names: by glob(7), in byte order, without directories.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Whether something may stand for many files, of which none need be there.
pub(super) fn is_one(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// The files of a pattern below a directory. The directories that were read for it are told.
pub(super) fn files(base: &Path, wanted: &str, read: &mut BTreeSet<PathBuf>) -> Vec<PathBuf> {
    let mut found = vec![base.to_owned()];
    for part in parts(wanted) {
        found = found.iter().flat_map(|place| step(place, part, read)).collect();
    }
    found.retain(|path| path.symlink_metadata().is_ok() && !path.is_dir());
    found.sort_by(|a, b| a.as_os_str().cmp(b.as_os_str()));
    found
}

/// What is called so below a directory.
pub(super) fn path(base: &Path, wanted: &str) -> PathBuf {
    let called = |place: PathBuf, part: &str| in_directory(&place, OsStr::new(part));
    parts(wanted).fold(base.to_owned(), called)
}

fn parts(wanted: &str) -> impl Iterator<Item = &str> {
    wanted.split('/').filter(|part| !part.is_empty() && *part != ".")
}

fn step(place: &Path, part: &str, read: &mut BTreeSet<PathBuf>) -> Vec<PathBuf> {
    if !is_one(part) {
        return vec![in_directory(place, OsStr::new(part))];
    }
    read.insert(place.to_owned());
    let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
    let is_meant = |name: &OsStr| {
        let is_hidden = name.as_bytes().starts_with(b".") && !part.starts_with('.');
        !is_hidden && matches(part.as_bytes(), name.as_bytes())
    };
    let names = entries.map(|entry| entry.file_name()).filter(|name| is_meant(name));
    names.map(|name| in_directory(place, &name)).collect()
}

/// What is in the working directory is called by its name alone.
fn in_directory(place: &Path, name: &OsStr) -> PathBuf {
    if place == Path::new(".") { PathBuf::from(name) } else { place.join(name) }
}

/// Whether a name is one that a pattern stands for.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern, name) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => (0..=name.len())
            .any(|skipped| name.get(skipped..).is_some_and(|name| matches(rest, name))),
        ([b'[', rest @ ..], [c, name @ ..]) => match class(rest, *c) {
            Some((is_in, rest)) => is_in && matches(rest, name),
            None => *c == b'[' && matches(rest, name),
        },
        ([b'?', rest @ ..], [_, name @ ..]) => matches(rest, name),
        ([one, rest @ ..], [c, name @ ..]) => one == c && matches(rest, name),
        _ => false,
    }
}

/// Whether a byte is in a class, and what follows it; nothing, if the class has no end.
fn class(text: &[u8], c: u8) -> Option<(bool, &[u8])> {
    let (is_without, text) = match text {
        [b'!' | b'^', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    // The first one belongs to it, even if it looks like its end.
    let end = 1 + text.get(1..)?.iter().position(|one| *one == b']')?;
    let (mut members, rest) = (text.get(..end)?, text.get(end + 1..)?);
    let mut is_in = false;
    while let [first, others @ ..] = members {
        (is_in, members) = match others {
            [b'-', last, others @ ..] => (is_in || (*first..=*last).contains(&c), others),
            _ => (is_in || *first == c, others),
        };
    }
    Some((is_in != is_without, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_glob() {
        for (pattern, names, others) in [
            ("*.nft", &["a.nft", ".nft"][..], &["a.nft~", "nft"][..]),
            ("a?c", &["abc"], &["ac", "abbc"]),
            ("[0-9][!x]*", &["1a", "5bcd"], &["1x", "aa", "1"]),
            ("[]-]z", &["]z", "-z"], &["az"]),
            ("[a", &["[a"], &["a"]),
            ("*a*b", &["ab", "xaxbxb"], &["ba", "abx"]),
            (r"\*", &[r"\x"], &["*"]),
        ] {
            let check = |name: &&str| matches(pattern.as_bytes(), name.as_bytes());
            assert!(names.iter().all(check), "{pattern}: {names:?}");
            assert!(!others.iter().any(check), "{pattern}: {others:?}");
        }
    }

    #[test]
    fn files_come_in_byte_order_without_directories_and_hidden_ones() {
        let root = tempfile::tempdir().unwrap();
        for path in ["b/x.nft", "b-c/x.nft", "a/x.nft", "a/.h.nft", "a/dir.nft/y"] {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let mut read = BTreeSet::new();
        let found = files(root.path(), "./*/*.nft", &mut read);
        assert_eq!(found, ["a/x.nft", "b-c/x.nft", "b/x.nft"].map(|path| root.path().join(path)));
        assert_eq!(read, ["", "a", "b", "b-c"].map(|path| root.path().join(path)).into());
        assert_eq!(files(root.path(), "none", &mut read), [] as [&Path; 0]);
    }
}
