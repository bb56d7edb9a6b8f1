//! Signs in the test's own process, as `ssh-keygen` and a hardware token do. `tests/signatures.rs` lets `ssh-keygen`
//! verify what is made here.
#![allow(dead_code, reason = "each test program uses a part of it")]

use ring::digest::{SHA256, SHA512, digest};
use ring::signature::{Ed25519KeyPair, KeyPair as _};

pub(crate) const PLAIN: &str = "ssh-ed25519";
pub(crate) const TOKEN: &str = "sk-ssh-ed25519@openssh.com";

/// A key, and what its signatures say about a touch if it is on a token.
pub(crate) struct Signer {
    pair: Ed25519KeyPair,
    kind: &'static str,
    pub(crate) flags: u8,
}

impl Signer {
    pub(crate) fn new(seed: u8, kind: &'static str) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap();
        Signer { pair, kind, flags: 1 }
    }

    pub(crate) fn public_blob(&self) -> Vec<u8> {
        let key = [string(self.kind.as_bytes()), string(self.pair.public_key().as_ref())].concat();
        if self.kind == TOKEN { [key, string(b"ssh:")].concat() } else { key }
    }

    /// As in a list of allowed signers, without principals.
    pub(crate) fn public(&self) -> String {
        format!("{} {}", self.kind, base64(&self.public_blob()))
    }

    pub(crate) fn sign(&self, message: &[u8], namespace: &str) -> String {
        armor(&self.blob(message, namespace, "sha512"))
    }

    /// The binary form, from which tests make broken ones.
    pub(crate) fn blob(&self, message: &[u8], namespace: &str, hash: &str) -> Vec<u8> {
        let algorithm = if hash == "sha256" { &SHA256 } else { &SHA512 };
        let digest_of_message = digest(algorithm, message);
        let fields = [namespace.as_bytes(), b"", hash.as_bytes(), digest_of_message.as_ref()];
        let signed = [b"SSHSIG".to_vec(), fields.map(string).concat()].concat();
        let signature = if self.kind == TOKEN {
            let token = [self.flags, 0, 0, 0, 7];
            let parts = [
                digest(&SHA256, b"ssh:").as_ref(),
                token.as_slice(),
                digest(&SHA256, &signed).as_ref(),
            ]
            .concat();
            let value = string(self.pair.sign(&parts).as_ref());
            [string(self.kind.as_bytes()), value, token.to_vec()].concat()
        } else {
            [string(self.kind.as_bytes()), string(self.pair.sign(&signed).as_ref())].concat()
        };
        let head = [b"SSHSIG".as_slice(), &1_u32.to_be_bytes()].concat();
        let rest =
            [string(&self.public_blob()), string(namespace.as_bytes()), string(b"")].concat();
        [head, rest, string(hash.as_bytes()), string(&signature)].concat()
    }
}

pub(crate) fn string(bytes: &[u8]) -> Vec<u8> {
    [u32::try_from(bytes.len()).unwrap().to_be_bytes().as_slice(), bytes].concat()
}

pub(crate) fn armor(blob: &[u8]) -> String {
    let text = base64(blob);
    let lines: Vec<&str> =
        text.as_bytes().chunks(70).map(|line| std::str::from_utf8(line).unwrap()).collect();
    let body = lines.join("\n");
    format!("-----BEGIN SSH SIGNATURE-----\n{body}\n-----END SSH SIGNATURE-----\n")
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = (0..3)
            .fold(0_usize, |bits, at| bits << 8 | usize::from(three.get(at).copied().unwrap_or(0)));
        for (at, shift) in [18, 12, 6, 0].into_iter().enumerate() {
            let letter = char::from(ALPHABET[bits >> shift & 63]);
            text.push(if at <= three.len() { letter } else { '=' });
        }
    }
    text
}
