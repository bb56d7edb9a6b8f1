//! Certificates in files, and how they are changed in a running `HAProxy`.

use std::fmt;

use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use crate::digest::hex;

/// A certificate with its private key.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Certificate {
    /// As `show ssl cert` prints it.
    pub(crate) fingerprint: String,
    /// All blocks of the file, without anything between them: an empty line would end what is sent.
    pub(crate) blocks: String,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "certificate {}", self.fingerprint)
    }
}

impl Certificate {
    /// Reads a file with a certificate and its key, and returns what else is in it: the process reports the fingerprint of
    /// the certificate only, and the key belongs to that.
    pub(crate) fn parse(content: &[u8]) -> Option<(Self, Vec<u8>)> {
        let text = str::from_utf8(content).ok()?;
        let mut rest = String::new();
        let mut blocks = String::new();
        let (mut fingerprint, mut has_key) = (None, false);
        let mut left = text;
        while let Some((before, begun)) = left.split_once("-----BEGIN ") {
            let (kind, _) = begun.split_once("-----")?;
            let end = format!("-----END {kind}-----");
            let length = begun.find(&end)? + end.len();
            let block = format!("-----BEGIN {}\n", begun.get(..length)?.replace('\r', ""));
            left = begun.get(length..)?;
            rest.push_str(before.trim());
            blocks.push_str(&block);
            if kind == "CERTIFICATE" && fingerprint.is_none() {
                let der = CertificateDer::from_pem_slice(block.as_bytes()).ok()?;
                let sum = digest(&SHA1_FOR_LEGACY_USE_ONLY, &der);
                fingerprint = Some(hex(sum.as_ref()).to_uppercase());
            } else if kind.ends_with("PRIVATE KEY") && !has_key {
                has_key = true;
            } else {
                rest.push_str(&block);
            }
        }
        rest.push_str(left.trim());
        let is_whole = has_key && !blocks.lines().any(|line| line.trim().is_empty());
        let fingerprint = fingerprint.filter(|_| is_whole)?;
        Some((Certificate { fingerprint, blocks }, rest.into_bytes()))
    }
}

/// The fingerprint in an answer to `show ssl cert`.
pub(crate) fn shown_fingerprint(answer: &str) -> Option<&str> {
    answer.lines().find_map(|line| line.strip_prefix("SHA1 FingerPrint: ")).map(str::trim)
}
