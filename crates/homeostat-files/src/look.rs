//! What is on a path at this moment.

use std::io::{self, Read as _};
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, FileType, Stat, fstat, statat};
use rustix::io::Errno;

use crate::accounts::Accounts;
use crate::digest::DigestKey;
use crate::model::{Attributes, Content, FileObject, Mode, Object, Other};
use crate::place::{file_type, open_file};

/// Configuration is smaller; a file that is not is none of ours.
pub(crate) const MOST: u64 = 64 << 20;

/// What changes whenever a file does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signature {
    device: u64,
    inode: u64,
    size: i64,
    modified: (i64, i64),
    pub(crate) changed: (i64, i64),
}

impl Signature {
    fn of(stat: &Stat) -> Self {
        #[expect(clippy::cast_possible_wrap, reason = "nanoseconds are below a billion")]
        Signature {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec as i64),
            changed: (stat.st_ctime, stat.st_ctime_nsec as i64),
        }
    }
}

/// An entry of a directory.
#[derive(Debug)]
pub(crate) enum Entry {
    Absent,
    /// A regular file, not read yet.
    File {
        signature: Signature,
        attributes: Attributes,
    },
    Directory(Attributes),
    Other(Other),
}

/// Looks at an entry, without reading a content.
pub(crate) fn entry(
    directory: impl AsFd,
    name: &str,
    accounts: &Accounts,
    declared: Option<&Attributes>,
) -> io::Result<Entry> {
    let stat = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(Entry::Absent),
        stat => stat?,
    };
    let attributes = || attributes(&stat, accounts, declared);
    Ok(match file_type(&stat) {
        FileType::RegularFile => {
            Entry::File { signature: Signature::of(&stat), attributes: attributes() }
        }
        FileType::Directory => Entry::Directory(attributes()),
        FileType::Symlink => Entry::Other(Other::Symlink),
        _ => Entry::Other(Other::Special),
    })
}

fn attributes(stat: &Stat, accounts: &Accounts, declared: Option<&Attributes>) -> Attributes {
    let declared_owner = declared.and_then(|declared| declared.owner.as_ref());
    let declared_group = declared.and_then(|declared| declared.group.as_ref());
    let bits = u16::try_from(stat.st_mode & 0o7777).unwrap_or_default();
    Attributes {
        owner: Some(accounts.users.seen(stat.st_uid, declared_owner)),
        group: Some(accounts.groups.seen(stat.st_gid, declared_group)),
        mode: Some(Mode(bits)),
    }
}

/// A file that was read.
pub(crate) struct ReadFile {
    pub(crate) signature: Signature,
    pub(crate) content: Content,
}

/// Reads a file whole. One that changes all the while cannot be read.
pub(crate) fn read(directory: impl AsFd, name: &str) -> io::Result<ReadFile> {
    const TRIES: u32 = 3;
    for _ in 0..TRIES {
        let file = open_file(&directory, name)?;
        let stat = fstat(&file)?;
        if file_type(&stat) != FileType::RegularFile {
            return Err(io::Error::other("it is not a file any more"));
        }
        let too_large = || io::Error::other(format!("it is larger than {} MiB", MOST >> 20));
        if u64::try_from(stat.st_size).is_ok_and(|size| size > MOST) {
            return Err(too_large());
        }
        let mut reader = std::fs::File::from(file).take(MOST + 1);
        let mut content = Vec::new();
        reader.read_to_end(&mut content)?;
        if content.len() as u64 > MOST {
            return Err(too_large());
        }
        let signature = Signature::of(&stat);
        if Signature::of(&fstat(reader.into_inner())?) == signature {
            return Ok(ReadFile { signature, content: Content::new(content) });
        }
    }
    Err(io::Error::other("another program is writing to it"))
}

/// The object on an entry, with the digest of its content.
pub(crate) fn object(
    directory: impl AsFd,
    name: &str,
    accounts: &Accounts,
    digests: &DigestKey,
) -> io::Result<Object> {
    Ok(match entry(&directory, name, accounts, None)? {
        Entry::Absent => Object::Nothing,
        Entry::File { attributes, .. } => {
            let content = read(&directory, name)?.content;
            let digest = digests.digest(content.bytes());
            let size = content.bytes().len() as u64;
            Object::File(FileObject { digest, size, attributes, secret: false })
        }
        Entry::Directory(_) => Object::Other { what: Other::Directory },
        Entry::Other(what) => Object::Other { what },
    })
}
