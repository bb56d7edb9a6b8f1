//! The server's own certificate, as a fresh installation has one: signed by itself.

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;

use ring::digest::{SHA256, digest};
use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;

/// What a server speaks with.
pub(crate) struct Identity {
    pub(crate) config: Arc<ServerConfig>,
    /// The certificate, for whoever wants to trust it.
    pub(crate) certificate: Vec<u8>,
}

/// Makes a certificate for the local machine.
pub(crate) fn identity() -> io::Result<Identity> {
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).map_err(io::Error::other)?;
    let certificate = made.cert.der().clone();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key.into())
        .map_err(io::Error::other)?;
    Ok(Identity { config: Arc::new(config), certificate: certificate.to_vec() })
}

/// The fingerprint of a certificate, as Proxmox VE shows it.
pub(crate) fn fingerprint(certificate: &[u8]) -> String {
    let sum = digest(&SHA256, certificate);
    let mut text = String::new();
    for (at, byte) in sum.as_ref().iter().enumerate() {
        let colon = if at == 0 { "" } else { ":" };
        let _ = write!(text, "{colon}{byte:02X}");
    }
    text
}
