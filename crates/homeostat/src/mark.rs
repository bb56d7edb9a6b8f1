//! The owner's mark in the kernel: the number of a routing protocol, to which a machine may give a
//! name.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use homeostat_document::{DEFAULT_PROTOCOL, Protocol};
use homeostat_registry::Mark;

use crate::failure::helped;

/// Where a machine names protocols; what is said first counts.
const TABLES: [&str; 2] = ["/etc/iproute2", "/usr/share/iproute2"];

/// The mark of the default owner.
pub(crate) const DEFAULT: Mark = Mark(DEFAULT_PROTOCOL);

/// The number that a protocol has on this machine.
pub(crate) fn resolve(protocol: &Protocol) -> Result<Mark> {
    match protocol {
        Protocol::Number(number) => Ok(Mark(*number)),
        Protocol::Name(name) => free(named(name, &TABLES.map(Path::new))?),
    }
}

/// A name must not lead to a number that would be refused by itself.
fn free(number: u8) -> Result<Mark> {
    match number.to_string().parse::<Protocol>() {
        Ok(_) => Ok(Mark(number)),
        Err(error) => Err(helped(error.message, error.help.unwrap_or_default())),
    }
}

fn named(name: &str, directories: &[&Path]) -> Result<u8> {
    for directory in directories {
        for table in tables(directory)? {
            let text = or_nothing(fs::read(&table))
                .with_context(|| format!("cannot read {}", table.display()))?;
            if let Some(number) = number(&String::from_utf8_lossy(&text), name) {
                return Ok(number);
            }
        }
    }
    Err(helped(
        format!("this machine has no protocol named `{name}`"),
        format!("give its number, or add a line such as `77 {name}` to /etc/iproute2/rt_protos"),
    ))
}

/// The table of a directory, and those that packages put beside it.
fn tables(directory: &Path) -> Result<Vec<PathBuf>> {
    let beside = directory.join("rt_protos.d");
    let listed = fs::read_dir(&beside)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>());
    let mut more =
        or_nothing(listed).with_context(|| format!("cannot list {}", beside.display()))?;
    more.retain(|path| path.extension().is_some_and(|extension| extension == "conf"));
    more.sort();
    more.insert(0, directory.join("rt_protos"));
    Ok(more)
}

/// A directory or file that is absent counts as empty.
fn or_nothing<T>(read: io::Result<Vec<T>>) -> io::Result<Vec<T>> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    }
}

/// The number of a name in a table of lines `NUMBER NAME`, decimal or `0x`; `#` begins a comment.
fn number(table: &str, name: &str) -> Option<u8> {
    table.lines().find_map(|line| {
        let mut words = line.split('#').next()?.split_whitespace();
        let (number, its) = (words.next()?, words.next()?);
        let number = match number.strip_prefix("0x") {
            Some(digits) => u8::from_str_radix(digits, 16).ok()?,
            None => number.parse().ok()?,
        };
        (its == name).then_some(number)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_as_other_programs_read_it() {
        let table = "# names\n\n 77\tlab # ours\n0x4e other\n300 large\n12\n#79 gone\n80 #x\n";
        assert_eq!(number(table, "lab"), Some(77));
        assert_eq!(number(table, "other"), Some(78));
        for name in ["large", "gone", "x", "12", ""] {
            assert_eq!(number(table, name), None, "{name}");
        }
    }

    #[test]
    fn the_administrators_table_comes_before_the_packages_and_the_systems() {
        let root = tempfile::tempdir().unwrap();
        let (etc, usr) = (root.path().join("etc"), root.path().join("usr"));
        fs::create_dir_all(etc.join("rt_protos.d")).unwrap();
        fs::create_dir(&usr).unwrap();
        fs::write(etc.join("rt_protos"), "77 one\n").unwrap();
        fs::write(etc.join("rt_protos.d/a.conf"), "78 one\n78 two\n").unwrap();
        fs::write(etc.join("rt_protos.d/b.conf"), "79 two\n").unwrap();
        fs::write(etc.join("rt_protos.d/readme"), "81 four\n").unwrap();
        fs::write(usr.join("rt_protos"), "82 two\n82 three\n").unwrap();
        let missing = root.path().join("missing");
        let find = |name| named(name, &[&missing, &etc, &usr]);
        assert_eq!(find("one").unwrap(), 77);
        assert_eq!(find("two").unwrap(), 78);
        assert_eq!(find("three").unwrap(), 82);
        assert!(find("four").unwrap_err().to_string().contains("no protocol named `four`"));
    }

    #[test]
    fn a_name_of_a_number_that_is_not_free_is_refused() {
        assert_eq!(free(77).unwrap(), Mark(77));
        for taken in [0, 4, 12, 186] {
            assert!(free(taken).unwrap_err().to_string().contains("is not free"), "{taken}");
        }
    }
}
