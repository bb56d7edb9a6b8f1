//! SSH signatures (`ssh-keygen -Y sign -n NAMESPACE`) by keys of type ssh-ed25519 and sk-ssh-ed25519@openssh.com.
//!
//! The format is OpenSSH's PROTOCOL.sshsig. Reading is strict: one signature has one text, but for the places of line ends.

use std::fmt;

use ring::digest::{SHA256, SHA512, digest};
use ring::signature::{ED25519, UnparsedPublicKey};

use crate::base64;
use crate::error::SignatureError;

/// A signature that was read, but not judged yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    key: PublicKey,
    namespace: Vec<u8>,
    reserved: Vec<u8>,
    hash: Hash,
    value: Vec<u8>,
    /// Of hardware keys: flags and counter, as they are signed.
    token: Vec<u8>,
}

/// A public key that may sign.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PublicKey {
    Ed25519 {
        key: Vec<u8>,
    },
    /// On a hardware token, for an application such as `ssh:`.
    Token {
        key: Vec<u8>,
        application: Vec<u8>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hash {
    Sha256,
    Sha512,
}

const BEGIN: &[u8] = b"-----BEGIN SSH SIGNATURE-----\n";
const END: &[u8] = b"-----END SSH SIGNATURE-----";
const MAGIC: &[u8] = b"SSHSIG";
const VERSION: u32 = 1;
pub(crate) const PLAIN: &str = "ssh-ed25519";
pub(crate) const TOKEN: &str = "sk-ssh-ed25519@openssh.com";
const KEY_LENGTH: usize = 32;
const VALUE_LENGTH: usize = 64;
/// The flag that the token sets if its user touched it.
const TOUCHED: u8 = 1;
/// Far more than a signature with the longest namespace and application that make sense.
const LONGEST: usize = 4096;

impl Signature {
    /// Reads the text that `ssh-keygen` writes.
    pub fn parse(armored: &str) -> Result<Self, SignatureError> {
        if armored.len() > LONGEST {
            return Err(SignatureError::TooLong);
        }
        let text = armored.as_bytes();
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        let body = text.strip_prefix(BEGIN).and_then(|text| text.strip_suffix(END));
        let body = body.and_then(|body| body.strip_suffix(b"\n")).ok_or(SignatureError::Armor)?;
        let body: Vec<u8> = body.iter().copied().filter(|letter| *letter != b'\n').collect();
        let bytes = base64::decode(&body).ok_or(SignatureError::Base64)?;
        let mut fields = Fields(&bytes);
        if fields.bytes(MAGIC.len())? != MAGIC {
            return Err(SignatureError::Magic);
        }
        if fields.number()? != VERSION {
            return Err(SignatureError::Version);
        }
        let key = PublicKey::read(fields.string()?)?;
        let namespace = fields.string()?.to_vec();
        let reserved = fields.string()?.to_vec();
        let hash = match fields.string()? {
            b"sha256" => Hash::Sha256,
            b"sha512" => Hash::Sha512,
            _ => return Err(SignatureError::Hash),
        };
        let mut signature = Fields(fields.string()?);
        fields.end()?;
        if signature.string()? != key.kind().as_bytes() {
            return Err(SignatureError::Mismatch);
        }
        let value = signature.string()?.to_vec();
        if value.len() != VALUE_LENGTH {
            return Err(SignatureError::Length);
        }
        let token = match key {
            PublicKey::Ed25519 { .. } => Vec::new(),
            PublicKey::Token { .. } => signature.bytes(5)?.to_vec(),
        };
        signature.end()?;
        Ok(Signature { key, namespace, reserved, hash, value, token })
    }

    /// The key that the signature claims to be by. Only [`verify`](Self::verify) says whether it is.
    #[must_use]
    pub fn key(&self) -> &PublicKey {
        &self.key
    }

    /// Whether its key has signed these bytes for this namespace. Whether the key may do so is for others to say.
    pub fn verify(&self, message: &[u8], namespace: &str) -> Result<(), SignatureError> {
        if namespace.is_empty() || self.namespace != namespace.as_bytes() {
            return Err(SignatureError::Namespace);
        }
        let signed = self.signed(message);
        let (key, signed) = match &self.key {
            PublicKey::Ed25519 { key } => (key, signed),
            PublicKey::Token { key, application } => {
                if self.token.first().is_none_or(|flags| flags & TOUCHED == 0) {
                    return Err(SignatureError::NotTouched);
                }
                let application = digest(&SHA256, application);
                let hash = digest(&SHA256, &signed);
                (key, [application.as_ref(), &self.token, hash.as_ref()].concat())
            }
        };
        let key = UnparsedPublicKey::new(&ED25519, key);
        key.verify(&signed, &self.value).map_err(|_| SignatureError::Forged)
    }

    /// What the key has signed: the hash of the message, with everything that says what the signature is for.
    fn signed(&self, message: &[u8]) -> Vec<u8> {
        let (name, algorithm) = match self.hash {
            Hash::Sha256 => ("sha256", &SHA256),
            Hash::Sha512 => ("sha512", &SHA512),
        };
        let hash = digest(algorithm, message);
        let mut signed = MAGIC.to_vec();
        for field in [&self.namespace, &self.reserved, name.as_bytes(), hash.as_ref()] {
            // No field is longer than the text that it was read from.
            signed.extend(u32::try_from(field.len()).unwrap_or(u32::MAX).to_be_bytes());
            signed.extend(field);
        }
        signed
    }
}

impl PublicKey {
    /// The bytes that are written as base64 in `.pub` files and lists of allowed signers.
    pub fn read(bytes: &[u8]) -> Result<Self, SignatureError> {
        let mut fields = Fields(bytes);
        let kind = fields.string()?;
        let is_token = match kind {
            _ if kind == PLAIN.as_bytes() => false,
            _ if kind == TOKEN.as_bytes() => true,
            _ => return Err(SignatureError::KeyType),
        };
        let key = fields.string()?.to_vec();
        if key.len() != KEY_LENGTH {
            return Err(SignatureError::Length);
        }
        let application = if is_token { fields.string()?.to_vec() } else { Vec::new() };
        fields.end()?;
        Ok(if is_token {
            PublicKey::Token { key, application }
        } else {
            PublicKey::Ed25519 { key }
        })
    }

    /// The name of its type, as OpenSSH writes it.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            PublicKey::Ed25519 { .. } => PLAIN,
            PublicKey::Token { .. } => TOKEN,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let (key, application) = match self {
            PublicKey::Ed25519 { key } => (key, None),
            PublicKey::Token { key, application } => (key, Some(application)),
        };
        let fields = [Some(self.kind().as_bytes()), Some(key), application.map(Vec::as_slice)];
        let written = fields.into_iter().flatten().flat_map(|field| {
            let length = u32::try_from(field.len()).unwrap_or(u32::MAX).to_be_bytes();
            [length.as_slice(), field].concat()
        });
        written.collect()
    }
}

/// The fingerprint, as `ssh-keygen -l` prints it.
impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hash = digest(&SHA256, &self.bytes());
        write!(f, "SHA256:{}", base64::encode_unpadded(hash.as_ref()))
    }
}

/// Fields of SSH's wire format. A length is believed only as far as there are bytes.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], SignatureError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(SignatureError::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u32, SignatureError> {
        let bytes = self.bytes(4)?;
        Ok(bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
    }

    fn string(&mut self) -> Result<&'a [u8], SignatureError> {
        let length = self.number()?;
        self.bytes(usize::try_from(length).map_err(|_| SignatureError::Truncated)?)
    }

    fn end(&self) -> Result<(), SignatureError> {
        if self.0.is_empty() { Ok(()) } else { Err(SignatureError::Trailing) }
    }
}
