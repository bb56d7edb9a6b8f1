//! The names of routing tables that `ip` knows, from the files of iproute2. They are looked up when a document is read.

use std::fs;
use std::path::{Path, PathBuf};

/// What administrators write comes before what packages bring.
const DIRECTORIES: [&str; 3] = ["/etc/iproute2", "/usr/share/iproute2", "/usr/lib/iproute2"];

/// The number of a table by its name.
pub(crate) fn number(name: &str) -> Option<u32> {
    DIRECTORIES.iter().find_map(|directory| number_in(Path::new(directory), name))
}

fn number_in(directory: &Path, name: &str) -> Option<u32> {
    let parts = fs::read_dir(directory.join("rt_tables.d")).into_iter().flatten();
    let parts = parts.filter_map(|entry| Some(entry.ok()?.path()));
    let is_part = |path: &PathBuf| path.extension().is_some_and(|end| end == "conf");
    let mut files: Vec<PathBuf> = parts.filter(is_part).collect();
    files.sort();
    files.insert(0, directory.join("rt_tables"));
    let mut texts = files.iter().filter_map(|file| fs::read_to_string(file).ok());
    texts.find_map(|text| text.lines().find_map(|line| numbered(line, name)))
}

/// A line has a number, decimal or hexadecimal, and a name; `#` begins a comment.
fn numbered(line: &str, name: &str) -> Option<u32> {
    let line = line.split('#').next()?;
    let mut words = line.split_ascii_whitespace();
    let (number, found) = (words.next()?, words.next()?);
    if found != name {
        return None;
    }
    match number.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => number.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_named_in_the_file_and_in_the_parts_of_its_directory() {
        let folder = tempfile::tempdir().unwrap();
        let parts = folder.path().join("rt_tables.d");
        fs::create_dir(&parts).unwrap();
        let write = |path: &Path, text: &str| fs::write(path, text).unwrap();
        write(
            &folder.path().join("rt_tables"),
            "# a comment\n255\tlocal\n7 wan # and more\n#8 no\n",
        );
        write(&parts.join("a.conf"), "9 wan\n0x3e9 mgmt\nx bad\n10\n");
        write(&parts.join("b.txt"), "11 text\n");
        for (name, number) in [
            ("wan", Some(7)),
            ("mgmt", Some(1001)),
            ("local", Some(255)),
            ("no", None),
            ("bad", None),
            ("text", None),
            ("", None),
        ] {
            assert_eq!(number_in(folder.path(), name), number, "{name}");
        }
        assert_eq!(number_in(&folder.path().join("none"), "wan"), None);
    }
}
