//! Writes an initramfs: a cpio archive in the format "newc".
//!
//! The program `cpio` would need a tree with device nodes, which only root can create.

use std::collections::BTreeSet;
use std::fmt::Write as _;
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

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Device {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

impl<W: Write> Archive<W> {
    pub(crate) fn new(to: W) -> Self {
        Self { to, written: BTreeSet::new() }
    }

    /// Adds a file at an absolute path, and its parent directories. A second file of the same path is ignored, since
    /// programs share libraries.
    pub(crate) fn file(&mut self, path: &str, mode: Mode, bytes: &[u8]) -> Result<()> {
        self.parents(path)?;
        self.entry(path, mode, Device::default(), bytes)
    }

    /// Adds an empty directory, and its parents.
    pub(crate) fn directory(&mut self, path: &str) -> Result<()> {
        self.parents(path)?;
        self.entry(path, Mode::DIRECTORY, Device::default(), &[])
    }

    /// Adds a character device, and its parent directories.
    pub(crate) fn device(&mut self, path: &str, device: Device) -> Result<()> {
        self.parents(path)?;
        self.entry(path, Mode::CHARACTER_DEVICE, device, &[])
    }

    /// Writes the trailer and returns the writer.
    pub(crate) fn finish(mut self) -> Result<W> {
        self.entry("/TRAILER!!!", Mode(0), Device::default(), &[])?;
        self.to.flush().context("cannot write the archive")?;
        Ok(self.to)
    }

    fn parents(&mut self, path: &str) -> Result<()> {
        let ends: Vec<usize> = path.match_indices('/').map(|(at, _)| at).skip(1).collect();
        for directory in ends.into_iter().filter_map(|end| path.get(..end)) {
            self.entry(directory, Mode::DIRECTORY, Device::default(), &[])?;
        }
        Ok(())
    }

    fn entry(&mut self, path: &str, mode: Mode, device: Device, bytes: &[u8]) -> Result<()> {
        if !self.written.insert(path.to_owned()) {
            return Ok(());
        }
        let name = format!("{}\0", path.trim_start_matches('/'));
        let header = header(self.written.len(), mode, device, bytes.len(), name.len())?;
        let written = self.to.write_all(&padded(format!("{header}{name}").as_bytes()));
        let written = written.and_then(|()| self.to.write_all(bytes));
        let written = written.and_then(|()| self.to.write_all(padding(bytes.len())));
        written.with_context(|| format!("cannot write `{path}` to the archive"))
    }
}

/// Thirteen hexadecimal numbers. Every entry has its own inode and one link; times are zero, so that the same tree
/// gives the same bytes.
fn header(
    inode: usize,
    mode: Mode,
    device: Device,
    size: usize,
    name_size: usize,
) -> Result<String> {
    let count = |size: usize| u32::try_from(size).context("too large for this kind of archive");
    let (size, name_size) = (count(size)?, count(name_size)?);
    let Device { major, minor } = device;
    let fields = [count(inode)?, mode.0, 0, 0, 1, 0, size, 0, 0, major, minor, name_size, 0];
    let mut text = "070701".to_owned();
    fields.iter().try_for_each(|field| write!(text, "{field:08x}"))?;
    Ok(text)
}

fn padded(bytes: &[u8]) -> Vec<u8> {
    [bytes, padding(bytes.len())].concat()
}

/// Headers and contents each end on a multiple of four bytes.
fn padding(len: usize) -> &'static [u8] {
    match len % 4 {
        1 => &[0; 3],
        2 => &[0; 2],
        3 => &[0; 1],
        _ => &[],
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
        let bytes = written(|archive| archive.device("/console", Device { major: 5, minor: 1 }));
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
