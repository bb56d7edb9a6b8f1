//! Verifies the certificate of the server: by a pinned fingerprint, or by the roots of the system.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use ring::digest::{SHA256, digest};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, RootCertStore,
    SignatureScheme,
};

/// The SHA-256 of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no SHA-256 fingerprint: it has 32 pairs of hexadecimal digits, with colons between"
)]
pub struct BadFingerprint(pub String);

impl FromStr for Fingerprint {
    type Err = BadFingerprint;

    fn from_str(text: &str) -> Result<Self, BadFingerprint> {
        let is_pair = |pair: &&str| pair.len() == 2 && pair.bytes().all(|b| b.is_ascii_hexdigit());
        let byte = |pair| u8::from_str_radix(Some(pair).filter(is_pair)?, 16).ok();
        let bytes = text.split(':').map(byte).collect::<Option<Vec<u8>>>();
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.map(Fingerprint).ok_or_else(|| BadFingerprint(text.to_owned()))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.map(|byte| format!("{byte:02X}")).join(":"))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The server with this certificate, by whatever authority it is signed.
    Pinned(Fingerprint),
    /// Servers whose certificate a root of the system has signed.
    System,
}

impl Trust {
    pub(crate) fn config(&self) -> Result<ClientConfig, Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?;
        let builder = match self {
            Trust::Pinned(pin) => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Pinned { pin: *pin, provider })),
            Trust::System => {
                // With an empty store every handshake fails.
                let mut roots = RootCertStore::empty();
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                builder.with_root_certificates(roots)
            }
        };
        Ok(builder.with_no_client_auth())
    }
}

/// The certificate of the server has another fingerprint than the pinned one.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the server's certificate has the fingerprint {0}")]
pub(crate) struct WrongFingerprint(pub(crate) Fingerprint);

impl WrongFingerprint {
    /// Whether a connection failed for this.
    pub(crate) fn of(error: &std::io::Error) -> Option<Self> {
        match error.get_ref()?.downcast_ref()? {
            Error::InvalidCertificate(CertificateError::Other(OtherError(wrong))) => {
                wrong.downcast_ref::<Self>().copied()
            }
            _ => None,
        }
    }
}

#[derive(Debug)]
struct Pinned {
    pin: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let seen = digest(&SHA256, end_entity);
        if seen.as_ref() == self.pin.0 {
            return Ok(ServerCertVerified::assertion());
        }
        let seen = seen.as_ref().try_into().map(Fingerprint);
        let seen = seen.map_err(|_| Error::General("a SHA-256 has 32 bytes".to_owned()))?;
        let wrong = OtherError(Arc::new(WrongFingerprint(seen)));
        Err(Error::InvalidCertificate(CertificateError::Other(wrong)))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_pin_is_refused() {
        let good = ["AB"; 32].join(":");
        assert_eq!(good.parse::<Fingerprint>().unwrap().to_string(), good);
        assert_eq!(good.to_lowercase().parse::<Fingerprint>().unwrap().to_string(), good);
        let (short, long) = (["AB"; 31].join(":"), ["AB"; 33].join(":"));
        let (plain, signed) = (["AB"; 32].concat(), good.replacen("AB", "+A", 1));
        for bad in ["", "AB", &short, &long, &plain, &signed, &good.replace(':', "-")] {
            assert!(bad.parse::<Fingerprint>().is_err(), "{bad}");
        }
    }
}
