//! Compares two writings without keeping either.

use std::hash::{DefaultHasher, Hasher as _};
use std::io::{self, Write};

/// Takes bytes and keeps their fingerprint only.
#[derive(Default)]
pub(crate) struct Digest(DefaultHasher);

impl Digest {
    /// The fingerprint of all that was written.
    pub(crate) fn finish(&self) -> u64 {
        self.0.finish()
    }
}

impl Write for Digest {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(parts: &[&str]) -> u64 {
        let mut digest = Digest::default();
        for part in parts {
            digest.write_all(part.as_bytes()).unwrap();
        }
        digest.finish()
    }

    #[test]
    fn only_the_bytes_count_not_how_they_were_cut() {
        assert_eq!(digest(&["0 -> 1", ""]), digest(&["0 ", "-> 1"]));
        assert_ne!(digest(&["0 -> 1"]), digest(&["0 -> 2"]));
        assert_ne!(digest(&[""]), digest(&["0"]));
    }
}
