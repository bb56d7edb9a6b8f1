//! The certificates of a client.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// Files in PEM. They are read for each connection, so new ones are used without a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsFiles {
    /// The authority that signed the certificates of the members.
    pub ca: PathBuf,
    /// The certificate of this client and those that it leads back to the authority by, and its key.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// Why the files cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {why}", file.display())]
pub struct TlsError {
    /// The file.
    pub file: PathBuf,
    /// What is wrong with it.
    pub why: String,
}

impl TlsFiles {
    /// The authority that signed the certificates of the members.
    pub fn new(ca: impl Into<PathBuf>) -> Self {
        TlsFiles { ca: ca.into(), client: None }
    }

    /// The same with a certificate of this client and its key.
    #[must_use]
    pub fn with_client(self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        TlsFiles { client: Some((certificate.into(), key.into())), ..self }
    }

    pub(crate) fn config(&self) -> Result<ClientConfig, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| refused(&self.ca, &error))?;
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.ca)? {
            roots.add(certificate).map_err(|error| refused(&self.ca, &error))?;
        }
        let builder = builder.with_root_certificates(roots);
        let mut config = match &self.client {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = certificates(certificate)?;
                let key =
                    PrivateKeyDer::from_pem_file(key).map_err(|error| refused(key, &error))?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| refused(certificate, &error))?
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all = CertificateDer::pem_file_iter(file).map_err(|error| refused(file, &error))?;
    let all: Vec<_> = all.collect::<Result<_, _>>().map_err(|error| refused(file, &error))?;
    if all.is_empty() {
        return Err(refused(file, &"there is no certificate in it"));
    }
    Ok(all)
}

fn refused(file: &Path, why: &dyn ToString) -> TlsError {
    TlsError { file: file.to_owned(), why: why.to_string() }
}
