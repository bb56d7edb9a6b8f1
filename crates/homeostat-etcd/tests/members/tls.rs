//! Certificates: both sides show theirs, others are refused, and new files are used without a restart.

use std::fs;
use std::path::Path;

use homeostat_etcd::{Config, EtcdStore, TlsFiles};
use homeostat_store::{Error, Keys, Store as _, Transaction};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use crate::cluster::{Cluster, put, value};

/// An authority; its certificate is in `NAME.pem`.
fn authority(directory: &Path, name: &str) -> Issuer<'static, KeyPair> {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    let certificate = params.self_signed(&key).unwrap();
    fs::write(directory.join(format!("{name}.pem")), certificate.pem()).unwrap();
    Issuer::new(params, key)
}

/// A certificate that an authority signed, in `NAME.pem`, and its key in `NAME.key`.
fn certificate(directory: &Path, name: &str, common_name: &str, by: &Issuer<'_, KeyPair>) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, common_name);
    let certificate = params.signed_by(&key, by).unwrap();
    fs::write(directory.join(format!("{name}.pem")), certificate.pem()).unwrap();
    fs::write(directory.join(format!("{name}.key")), key.serialize_pem()).unwrap();
}

fn files(directory: &Path, ca: &str, client: &str) -> TlsFiles {
    let at = |name: String| directory.join(name);
    TlsFiles::new(at(format!("{ca}.pem")))
        .with_client(at(format!("{client}.pem")), at(format!("{client}.key")))
}

const SERVER: &[&str] = &[
    "--cert-file=DIR/server.pem",
    "--key-file=DIR/server.key",
    "--trusted-ca-file=DIR/ca.pem",
    "--client-cert-auth",
];

fn start() -> (Cluster, tokio::runtime::Runtime) {
    Cluster::start_with(1, SERVER, |directory| {
        let ca = authority(directory, "ca");
        certificate(directory, "server", "server", &ca);
        certificate(directory, "root", "root", &ca);
        certificate(directory, "n1", "n1", &ca);
        let other = authority(directory, "other");
        certificate(directory, "stranger", "stranger", &other);
        Some(files(directory, "ca", "root"))
    })
}

async fn refused(config: Config) -> String {
    let store = EtcdStore::new(config);
    let error = store.list(Keys::One("/a".into())).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    error.to_string()
}

#[test]
fn both_sides_show_certificates_and_new_ones_are_used_for_the_next_connection() {
    let (mut cluster, runtime) = start();
    runtime.block_on(async {
        let store = cluster.client_of(0);
        put(&*store, "/a", "1").await;
        let directory = cluster.path("");
        // The member is not who it should be, or we are not.
        let why = refused(cluster.config().with_tls(files(&directory, "other", "root"))).await;
        assert!(why.contains("invalid peer certificate"), "{why}");
        refused(cluster.config().with_tls(files(&directory, "ca", "stranger"))).await;
        let why = refused(cluster.config().with_tls(files(&directory, "ca", "nobody"))).await;
        assert!(why.contains("nobody.pem"), "{why}");
        let mut plain = cluster.config();
        plain.tls = None;
        refused(plain).await;
        // The files are replaced by those of another authority, and the member is started again with them.
        let new = authority(&directory, "ca");
        certificate(&directory, "server", "server", &new);
        certificate(&directory, "root", "root", &new);
        cluster.kill(0);
        cluster.run(0);
        cluster.until_written().await;
        assert_eq!(value(&*store, "/a").await.as_deref(), Some(&b"1"[..]));
    });
}

#[test]
fn a_client_without_the_right_to_a_key_is_told_so() {
    let (cluster, runtime) = start();
    for args in [
        &["user", "add", "root", "--no-password"][..],
        &["user", "grant-role", "root", "root"],
        &["user", "add", "n1", "--no-password"],
        &["role", "add", "n1"],
        &["role", "grant-permission", "n1", "--prefix=true", "readwrite", "/n1/"],
        &["user", "grant-role", "n1", "n1"],
        &["auth", "enable"],
    ] {
        cluster.etcdctl(args);
    }
    runtime.block_on(async {
        let own = cluster.config().with_tls(files(&cluster.path(""), "ca", "n1"));
        let store = EtcdStore::new(own);
        put(&store, "/n1/status", "good").await;
        let write = store.commit(Transaction::new().put("/n2/status", "bad")).await.unwrap_err();
        let read = store.list(Keys::Below("/n2/".into())).await.unwrap_err();
        for error in [write, read] {
            assert!(
                matches!(&error, Error::Denied { why } if why.contains("permission")),
                "{error}"
            );
        }
    });
}
