//! Writes an initramfs: a cpio archive in the format "newc".
//!
//! The program `cpio` would need a tree with device nodes, which only root can create.

use std::collections::BTreeSet;
use std::io::Write;

use anyhow::{Context, Result};

/// An archive that is written to `to`. All entries belong to root.
pub(crate) struct Archive<W> {
    to: W,
    written: BTreeSet<String>,
}

/// The kind and permissions of an entry, as `stat` gives them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mode(u32);

impl Mode {
    /// A file that can be run.
    pub(crate) const PROGRAM: Mode = Mode(0o100_755);
    /// A file to read.
    pub(crate) const FILE: Mode = Mode(0o100_644);
    const DIRECTORY: Mode = Mode(0o040_755);
    const CHARACTER_DEVICE: Mode = Mode(0o020_600);
}

/// The major and minor number of what is no device.
const NO_DEVICE: [u32; 2] = [0, 0];

impl<W: Write> Archive<W> {
    pub(crate) fn new(to: W) -> Self {
        Self { to, written: BTreeSet::new() }
    }

    /// Adds a file at an absolute path, and its parent directories. A second file of the same path is ignored, since
    /// programs share libraries.
    pub(crate) fn file(&mut self, path: &str, mode: Mode, bytes: &[u8]) -> Result<()> {
        self.parents(path)?;
        self.entry(path, mode, NO_DEVICE, bytes)
    }

    /// Adds an empty directory, and its parents.
    pub(crate) fn directory(&mut self, path: &str) -> Result<()> {
        self.file(path, Mode::DIRECTORY, &[])
    }

    /// Adds a character device with this major and minor number, and its parent directories.
    pub(crate) fn device(&mut self, path: &str, device: [u32; 2]) -> Result<()> {
        self.parents(path)?;
        self.entry(path, Mode::CHARACTER_DEVICE, device, &[])
    }

    /// Writes the trailer and returns the writer.
    pub(crate) fn finish(mut self) -> Result<W> {
        self.entry("/TRAILER!!!", Mode(0), NO_DEVICE, &[])?;
        self.to.flush().context("cannot write the archive")?;
        Ok(self.to)
    }

    fn parents(&mut self, path: &str) -> Result<()> {
        let ends = path.match_indices('/').skip(1);
        ends.filter_map(|(end, _)| path.get(..end))
            .try_for_each(|directory| self.entry(directory, Mode::DIRECTORY, NO_DEVICE, &[]))
    }

    /// The header is thirteen hexadecimal numbers. Every entry has its own inode and one link; times are zero, so
    /// that the same tree gives the same bytes. Header with name, and content, each end on a multiple of four bytes.
    fn entry(&mut self, path: &str, mode: Mode, device: [u32; 2], bytes: &[u8]) -> Result<()> {
        if !self.written.insert(path.to_owned()) {
            return Ok(());
        }
        let name = format!("{}\0", path.trim_start_matches('/'));
        let count = |len: usize| u32::try_from(len).context("too large for this kind of archive");
        let (inode, size, name_size) =
            (count(self.written.len())?, count(bytes.len())?, count(name.len())?);
        let [major, minor] = device;
        let mut entry = b"070701".to_vec();
        for field in [inode, mode.0, 0, 0, 1, 0, size, 0, 0, major, minor, name_size, 0] {
            write!(entry, "{field:08x}")?;
        }
        for part in [name.as_bytes(), bytes] {
            entry.extend_from_slice(part);
            entry.resize(entry.len().next_multiple_of(4), 0);
        }
        self.to.write_all(&entry).with_context(|| format!("cannot write `{path}` to the archive"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(fill: impl FnOnce(&mut Archive<Vec<u8>>) -> Result<()>) -> Vec<u8> {
        let mut archive = Archive::new(Vec::new());
        fill(&mut archive).unwrap();
        archive.finish().unwrap()
    }

    /// Mode, size and name of each entry.
    fn listed(mut bytes: &[u8]) -> Vec<(u32, usize, String)> {
        let mut entries = Vec::new();
        while !bytes.is_empty() {
            assert_eq!(&bytes[..6], b"070701");
            let field = |index: usize| {
                let text = std::str::from_utf8(&bytes[6 + 8 * index..14 + 8 * index]).unwrap();
                u32::from_str_radix(text, 16).unwrap()
            };
            let (size, name) = (field(6) as usize, field(11) as usize);
            let text = String::from_utf8(bytes[110..110 + name - 1].to_vec()).unwrap();
            entries.push((field(1), size, text));
            let start = (110 + name).next_multiple_of(4);
            bytes = &bytes[start + size.next_multiple_of(4)..];
        }
        entries
    }

    #[test]
    fn a_file_adds_its_parents_and_each_path_is_added_once() {
        let bytes = written(|archive| {
            archive.file("/sbin/ip", Mode::PROGRAM, b"12345")?;
            archive.file("/sbin/ip", Mode::FILE, b"another")?;
            archive.file("/sbin/nft", Mode::FILE, b"")
        });
        let expected = [
            (0o040_755, 0, "sbin"),
            (0o100_755, 5, "sbin/ip"),
            (0o100_644, 0, "sbin/nft"),
            (0, 0, "TRAILER!!!"),
        ];
        assert_eq!(
            listed(&bytes),
            expected.map(|(mode, size, name)| (mode, size, name.to_owned()))
        );
    }

    #[test]
    fn a_device_carries_its_numbers() {
        let bytes = written(|archive| archive.device("/console", [5, 1]));
        let header = std::str::from_utf8(&bytes[..110]).unwrap();
        assert_eq!(&header[6 + 8 * 9..6 + 8 * 11], "0000000500000001");
        assert_eq!(&header[6 + 8..6 + 8 * 2], "00002180");
    }

    #[test]
    fn empty_directories_are_kept() {
        let listed = listed(&written(|archive| archive.directory("/sys/fs")));
        let names: Vec<&str> = listed.iter().map(|(_, _, name)| name.as_str()).collect();
        assert_eq!(names, ["sys", "sys/fs", "TRAILER!!!"]);
    }
}
