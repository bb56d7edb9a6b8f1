//! The certificate of the server. As after an installation, it is signed by the cluster's own authority.

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use ring::digest::{SHA256, digest};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};

pub(crate) struct Identity {
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) certificate: Vec<u8>,
    /// The certificate of the authority, in PEM.
    pub(crate) authority: String,
}

/// The names that the certificate is valid for.
const NAMES: [&str; 2] = ["localhost", "127.0.0.1"];

/// Creates an authority, and a certificate that it signs for the local machine.
pub(crate) fn identity() -> io::Result<Identity> {
    let (certificate, key, authority) = certify().map_err(io::Error::other)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key.into())
        .map_err(io::Error::other)?;
    Ok(Identity { config: Arc::new(config), certificate: certificate.to_vec(), authority })
}

type Certified = (CertificateDer<'static>, PrivatePkcs8KeyDer<'static>, String);

fn certify() -> Result<Certified, rcgen::Error> {
    let mut root = CertificateParams::default();
    root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    root.distinguished_name.push(DnType::CommonName, "Proxmox Virtual Environment");
    let root = CertifiedIssuer::self_signed(root, KeyPair::generate()?)?;
    let leaf = CertificateParams::new(NAMES.map(str::to_owned))?;
    let key = KeyPair::generate()?;
    let certificate = leaf.signed_by(&key, &root)?.der().clone();
    Ok((certificate, PrivatePkcs8KeyDer::from(key.serialize_der()), root.pem()))
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
