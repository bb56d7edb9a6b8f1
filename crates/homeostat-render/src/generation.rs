//! The generation of a set: a digest of all its files, which a file may carry so that the program that read it can be
//! asked for it.
//!
//! A file that carries the digest would change it. So templates write a placeholder, the digest is made with the placeholders
//! in place, and then they are replaced.

use std::borrow::Cow;
use std::path::Path;

use ring::hmac::{Context, HMAC_SHA256, Key};

/// What `{{ generation }}` is before the digest is known. It occurs in no other text but by intent.
pub(crate) const PLACEHOLDER: &str = "7d1f0c5e9a6b4e83b2f4a8c90d3e5f61";

/// The digits of a generation: as many as the name of a process holds, by which some programs show it.
const DIGITS: usize = 15;

/// The beginning of a keyed digest, in hexadecimal digits.
///
/// The key keeps who can ask a program for its generation from guessing a short secret in its files.
pub(crate) fn digest<'a>(
    key: &[u8],
    files: impl Iterator<Item = (&'a Path, &'a [u8])>,
    mask: impl Fn(&Path, &'a [u8]) -> Cow<'a, [u8]>,
) -> String {
    let mut context = Context::with_key(&Key::new(HMAC_SHA256, key));
    let mut add = |bytes: &[u8]| {
        context.update(&(bytes.len() as u64).to_be_bytes());
        context.update(bytes);
    };
    for (path, bytes) in files {
        add(path.as_os_str().as_encoded_bytes());
        add(&mask(path, bytes));
    }
    let tag = context.sign();
    hex(tag.as_ref(), DIGITS.div_ceil(2)).chars().take(DIGITS).collect()
}

/// The first bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8], count: usize) -> String {
    let digits = |byte: u8| [byte >> 4, byte & 15].map(|digit| char::from_digit(digit.into(), 16));
    bytes.iter().take(count).flat_map(|byte| digits(*byte)).flatten().collect()
}

/// Puts the generation in the place of the placeholders.
pub(crate) fn replace(bytes: &[u8], generation: &str) -> Vec<u8> {
    // What a template has rendered is text.
    String::from_utf8_lossy(bytes).replace(PLACEHOLDER, generation).into_bytes()
}
