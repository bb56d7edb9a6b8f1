//! The certificate of the server. As after an installation, it is signed by the cluster's own authority.

use std::io;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use ring::digest::{SHA256, digest};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio_rustls::TlsAcceptor;

#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) acceptor: TlsAcceptor,
    pub(crate) fingerprint: String,
    /// The certificate of the authority, in PEM.
    pub(crate) authority: String,
}

/// The names that the certificate is valid for.
const NAMES: [&str; 2] = ["localhost", "127.0.0.1"];

/// Creates an authority, and a certificate that it signs for the local machine.
pub(crate) fn identity() -> io::Result<Identity> {
    let (certificate, key, authority) = certify().map_err(io::Error::other)?;
    let fingerprint = fingerprint(&certificate);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key.into())
        .map_err(io::Error::other)?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    Ok(Identity { acceptor, fingerprint, authority })
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
fn fingerprint(certificate: &[u8]) -> String {
    let sum = digest(&SHA256, certificate);
    sum.as_ref().iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":")
}
