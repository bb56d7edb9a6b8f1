//! Secret keys of WireGuard: read from a file that only its owner can read, or from a credential of the service, and
//! never printed or recorded.

use std::env;
use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use homeostat_core::{Failure, Retry};
use rustix::fs::OFlags;

/// Where systemd puts the credentials of a service.
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";

/// A secret key. It has no text.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret([u8; 32]);

impl Secret {
    /// None, if all is zero: to the kernel that is no key.
    pub(crate) fn of(bytes: [u8; 32]) -> Option<Self> {
        (bytes != [0; 32]).then_some(Secret(bytes))
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Where a secret key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeySource<'a> {
    File(&'a Path),
    /// A credential of the service, by its name.
    Credential(&'a str),
}

impl<'a> KeySource<'a> {
    pub(crate) fn new(file: Option<&'a PathBuf>, credential: Option<&'a String>) -> Option<Self> {
        let file = file.map(|file| KeySource::File(file));
        file.or(credential.map(|name| KeySource::Credential(name)))
    }

    /// Reads the key. No error has a part of it.
    pub(crate) fn read(self) -> Result<Secret, Failure> {
        let path = match self {
            KeySource::File(path) => path.to_owned(),
            KeySource::Credential(name) => credential(env::var_os(CREDENTIALS), name)?,
        };
        let text = read_private(&path)?;
        parse(text.trim()).and_then(Secret::of).ok_or_else(|| {
            let words = format!("{} holds no WireGuard key", path.display());
            let help = "it is one line, as `wg genkey` and `wg genpsk` print it";
            Failure::new(words, Retry::OnChange).with_help(help)
        })
    }
}

fn credential(directory: Option<std::ffi::OsString>, name: &str) -> Result<PathBuf, Failure> {
    let directory = directory.ok_or_else(|| {
        let words = format!("there is no credential `{name}`: {CREDENTIALS} is not set");
        let help = "only a unit of systemd has credentials: add `LoadCredential=` to it";
        Failure::new(words, Retry::OnChange).with_help(help)
    })?;
    Ok(Path::new(&directory).join(name))
}

/// The text of a file that must be for its owner alone.
fn read_private(path: &Path) -> Result<String, Failure> {
    let failed = |error: io::Error| {
        let words = format!("cannot read the key file {}: {error}", path.display());
        Failure::new(words, Retry::OnChange).with_help("put the key there, in a file of mode 0600")
    };
    // Opening a pipe without a writer would block.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(failed)?;
    // The mode is that of the open file, since the path may lead to another one by now.
    let found = file.metadata().map_err(failed)?;
    if !found.is_file() {
        return Err(failed(io::Error::other("it is no regular file")));
    }
    let mode = found.mode() & 0o7777;
    // Credentials are readable by their user and mounted read-only: 0400.
    if mode & 0o177 != 0 {
        let words = format!(
            "the key file {} has mode {mode:04o}: others can read or write it",
            path.display()
        );
        let help = format!("run `chmod 600 {}`, and consider the key as known", path.display());
        return Err(Failure::new(words, Retry::OnChange).with_help(help));
    }
    let mut text = String::new();
    // A key has 44 characters; what is larger is something else.
    file.take(256).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// A key in base64: 43 characters and `=`.
pub(crate) fn parse(text: &str) -> Option<[u8; 32]> {
    let digits = text.strip_suffix('=').filter(|digits| digits.len() == 43)?;
    let (mut key, mut at, mut bits, mut count) = ([0; 32], 0, 0_u32, 0);
    for digit in digits.bytes() {
        let value = ALPHABET.iter().position(|known| *known == digit)?;
        bits = bits << 6 | u32::try_from(value).ok()?;
        count += 6;
        if count >= 8 {
            count -= 8;
            let [.., byte] = (bits >> count).to_be_bytes();
            *key.get_mut(at)? = byte;
            at += 1;
        }
    }
    // What is left over is no part of the key.
    (bits & ((1 << count) - 1) == 0).then_some(key)
}

/// The same back.
pub(crate) fn text(key: &[u8; 32]) -> String {
    let mut text = String::with_capacity(44);
    for part in key.chunks(3) {
        let byte = |at: usize| u32::from(part.get(at).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..=part.len() {
            let value = bits >> (18 - 6 * digit) & 63;
            text.push(ALPHABET.get(value as usize).copied().map_or('=', char::from));
        }
    }
    text.push('=');
    text
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const KEY: &str = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";

    #[test]
    fn keys_read_back_from_their_own_text() {
        for key in [parse(KEY).unwrap(), [0; 32], [255; 32]] {
            assert_eq!(parse(&text(&key)), Some(key));
        }
        assert_eq!(text(&parse(KEY).unwrap()), KEY);
        for bad in ["", "=", &KEY[1..], &KEY.replace('+', "-"), &KEY.replace("mk=", "ml="), "ö"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_key_file_is_for_its_owner_alone_and_errors_do_not_show_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let read = |text: &str, mode: u32| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            KeySource::File(&path).read().map_err(|failure| failure.error)
        };
        assert!(
            read(&format!("{KEY}\n"), 0o600).is_ok_and(|key| *key.bytes() == parse(KEY).unwrap())
        );
        assert!(read(KEY, 0o400).is_ok());
        for (text, mode, words) in [
            (KEY, 0o640, "has mode 0640"),
            (KEY, 0o604, "has mode 0604"),
            ("secret", 0o600, "holds no WireGuard key"),
            ("", 0o600, "holds no WireGuard key"),
            ("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", 0o600, "holds no WireGuard key"),
        ] {
            let error = read(text, mode).err().unwrap();
            assert!(error.contains(words) && (text.is_empty() || !error.contains(text)), "{error}");
        }
        assert!(KeySource::File(folder.path()).read().is_err());
        assert!(KeySource::File(&folder.path().join("none")).read().is_err());
    }

    #[test]
    fn a_credential_is_a_file_in_the_directory_of_the_service() {
        let found = credential(Some("/run/credentials/x".into()), "wg0").unwrap();
        assert_eq!(found, Path::new("/run/credentials/x/wg0"));
        assert!(credential(None, "wg0").is_err());
    }
}
