//! Signatures of the real `ssh-keygen`, signatures that it verifies, and everything that is no signature.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use homeostat_fleet::{AllowedSigners, Error, PublicKey, Signature, SignatureError, Time};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::signing::{PLAIN, Signer, TOKEN, armor, base64, string};

mod signing;

const NAMESPACE: &str = "homeostat-rollout";
const MESSAGE: &[u8] = b"{\"format\":1}\n";

/// A directory with keys.
struct Keys(TempDir);

impl Keys {
    fn new(names: &[&str]) -> Self {
        let keys = Keys(tempfile::tempdir().unwrap());
        for name in names {
            let path = keys.path(name);
            keys.run(&["-q", "-t", "ed25519", "-N", "", "-C", name, "-f", path.to_str().unwrap()]);
        }
        keys
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the one place where these tests start a program"
    )]
    fn try_run(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new("ssh-keygen");
        command.args(arguments).current_dir(self.0.path());
        let input =
            fs::File::open(self.path("message")).map_or_else(|_| Stdio::null(), Stdio::from);
        let output = command.stdin(input).output();
        let output = output.expect("ssh-keygen is missing: `cargo xtask setup` installs it");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    #[track_caller]
    fn run(&self, arguments: &[&str]) -> String {
        self.try_run(arguments).unwrap()
    }

    fn sign(&self, name: &str, namespace: &str, message: &[u8]) -> String {
        fs::write(self.path("signed"), message).unwrap();
        let _ = fs::remove_file(self.path("signed.sig"));
        self.run(&["-q", "-Y", "sign", "-n", namespace, "-f", name, "signed"]);
        fs::read_to_string(self.path("signed.sig")).unwrap()
    }

    fn public(&self, name: &str) -> String {
        fs::read_to_string(self.path(&format!("{name}.pub"))).unwrap()
    }

    fn allowed(&self, names: &[&str]) -> AllowedSigners {
        let lines = names.iter().map(|name| format!("{name}@example.net {}", self.public(name)));
        AllowedSigners::parse(&lines.collect::<String>()).unwrap()
    }

    /// What `ssh-keygen` says about a signature of the message.
    fn verified_by_openssh(&self, public: &str, signature: &str) -> Result<String, String> {
        fs::write(self.path("message"), MESSAGE).unwrap();
        fs::write(self.path("signature"), signature).unwrap();
        fs::write(self.path("allowed"), format!("ann {public}\n")).unwrap();
        let who =
            ["-Y", "verify", "-f", "allowed", "-I", "ann", "-n", NAMESPACE, "-s", "signature"];
        self.try_run(&who)
    }
}

fn verify(allowed: &AllowedSigners, signatures: &[String], needed: usize) -> Result<usize, Error> {
    allowed.verify(MESSAGE, NAMESPACE, signatures, needed, None).map(|approval| approval.by.len())
}

#[test]
fn a_signature_of_ssh_keygen_is_verified() {
    let keys = Keys::new(&["ann"]);
    let signature = keys.sign("ann", NAMESPACE, MESSAGE);
    let allowed = keys.allowed(&["ann"]);
    let approval = allowed.verify(MESSAGE, NAMESPACE, &[signature], 1, None).unwrap();
    let fingerprint = keys.run(&["-l", "-f", "ann.pub"]);
    let fingerprint = fingerprint.split(' ').nth(1).unwrap();
    assert_eq!(approval.by, [format!("ann@example.net {fingerprint}")]);
}

#[test]
fn another_namespace_other_bytes_and_another_key_are_refused() {
    let keys = Keys::new(&["ann", "eve"]);
    let allowed = keys.allowed(&["ann"]);
    let fingerprint = allowed.signers()[0].key.to_string();
    let check = |signature: String, expected: &str| {
        let error = verify(&allowed, &[signature], 1).unwrap_err();
        let expected = expected.replace("KEY", &fingerprint);
        let counted = "0 valid signature(s) by distinct allowed keys, 1 needed";
        assert_eq!(error.to_string(), format!("{counted} ({expected})"));
    };
    check(keys.sign("ann", "homeostat-command", MESSAGE), "KEY: it is for another namespace");
    check(
        keys.sign("ann", NAMESPACE, b"{\"format\":2}\n"),
        "KEY: it is not of these bytes by this key",
    );
    let eve = keys.allowed(&["eve"]).signers()[0].key.to_string();
    let expected = format!("{eve}: this key is not in the list of allowed signers");
    check(keys.sign("eve", NAMESPACE, MESSAGE), &expected);
}

#[test]
fn k_of_n_counts_distinct_keys() {
    let keys = Keys::new(&["ann", "bob", "eve"]);
    let allowed = keys.allowed(&["ann", "bob"]);
    let [ann, bob, eve] = ["ann", "bob", "eve"].map(|name| keys.sign(name, NAMESPACE, MESSAGE));
    assert_eq!(verify(&allowed, &[ann.clone(), bob.clone()], 2), Ok(2));
    assert_eq!(
        verify(&allowed, &[eve.clone(), bob.clone(), "noise".to_owned(), ann.clone()], 2),
        Ok(2)
    );
    for few in [vec![ann.clone(), ann.clone()], vec![ann.clone(), eve.clone()], vec![bob], vec![]] {
        assert!(matches!(
            verify(&allowed, &few, 2),
            Err(Error::TooFewSignatures { needed: 2, .. })
        ));
    }
    // A threshold of nothing would accept anything.
    assert!(verify(&allowed, &[], 0).is_err());
    // The same key under two names is one key.
    let twice = format!("ann {}bob {}", keys.public("ann"), keys.public("ann"));
    let twice = AllowedSigners::parse(&twice).unwrap();
    assert!(verify(&twice, &[ann.clone(), ann], 2).is_err());
}

#[test]
fn options_of_a_line_hold_and_lines_of_one_key_are_alternatives() {
    let keys = Keys::new(&["ann"]);
    let signature = [keys.sign("ann", NAMESPACE, MESSAGE)];
    let public = keys.public("ann");
    let check = |lines: &[&str], now: Option<&str>, expected: Result<bool, &str>| {
        let lines = lines.iter().map(|options| format!("ann {options} {public}"));
        let text = lines.collect::<Vec<_>>().concat();
        let allowed = AllowedSigners::parse(&text).unwrap();
        let now = now.map(|now| now.parse::<Time>().unwrap());
        let found = allowed.verify(MESSAGE, NAMESPACE, &signature, 1, now);
        match (found, expected) {
            (Ok(approval), Ok(without_time)) => assert_eq!(approval.without_time, without_time),
            (Err(error), Err(why)) => assert!(error.to_string().contains(why), "{error}"),
            (found, expected) => panic!("{text}: {found:?}, expected {expected:?}"),
        }
    };
    let (spring, autumn) = ("2026-03-01T00:00:00Z", "2026-10-01T00:00:00Z");
    check(&["namespaces=\"git,homeostat-*\""], None, Ok(false));
    check(&["namespaces=\"git\""], None, Err("may not sign for this namespace"));
    check(&["namespaces=\"git\"", "namespaces=\"homeostat-rollout\""], None, Ok(false));
    check(&["valid-before=\"20260601Z\""], Some(spring), Ok(false));
    check(&["valid-before=\"20260601Z\""], Some(autumn), Err("no longer valid"));
    check(&["valid-after=\"20260601Z\""], Some(spring), Err("not valid yet"));
    check(&["valid-after=\"20260601Z\",valid-before=\"20261201Z\""], Some(autumn), Ok(false));
    check(&["valid-before=\"20260601Z\""], None, Ok(true));
}

#[test]
fn what_the_tests_sign_is_verified_by_ssh_keygen_and_by_us() {
    let keys = Keys::new(&[]);
    for kind in [PLAIN, TOKEN] {
        for hash in ["sha256", "sha512"] {
            let signer = Signer::new(1, kind);
            let signature = armor(&signer.blob(MESSAGE, NAMESPACE, hash));
            let answer = keys.verified_by_openssh(&signer.public(), &signature).unwrap();
            assert!(answer.starts_with("Good \"homeostat-rollout\" signature"), "{answer}");
            let read = Signature::parse(&signature).unwrap();
            assert_eq!(read.verify(MESSAGE, NAMESPACE), Ok(()), "{kind} {hash}");
            assert_eq!(read.key(), &PublicKey::read(&signer.public_blob()).unwrap());
        }
    }
}

#[test]
fn a_token_that_nobody_touched_has_not_signed() {
    let mut signer = Signer::new(1, TOKEN);
    signer.flags = 4;
    let signature = signer.sign(MESSAGE, NAMESPACE);
    let read = Signature::parse(&signature).unwrap();
    assert_eq!(read.verify(MESSAGE, NAMESPACE), Err(SignatureError::NotTouched));
    // `ssh-keygen` of OpenSSH 9.2 leaves this to its caller.
    let openssh = Keys::new(&[]).verified_by_openssh(&signer.public(), &signature);
    assert!(openssh.is_ok(), "{openssh:?}");
}

#[test]
fn broken_signatures_are_refused_with_their_reason() {
    let signer = Signer::new(1, PLAIN);
    let blob = signer.blob(MESSAGE, NAMESPACE, "sha512");
    let check = |blob: &[u8], expected: SignatureError| {
        assert_eq!(Signature::parse(&armor(blob)), Err(expected));
    };
    for length in [0, 5, 6, 9, 10, 13, 30, blob.len() - 1] {
        let error = Signature::parse(&armor(&blob[..length])).unwrap_err();
        assert_eq!(error, SignatureError::Truncated, "{length}");
    }
    check(&[blob.clone(), vec![0]].concat(), SignatureError::Trailing);
    check(&[b"SSHSIH", &blob[6..]].concat(), SignatureError::Magic);
    check(&[b"SSHSIG\0\0\0\x02", &blob[10..]].concat(), SignatureError::Version);
    let huge = [&blob[..10], &[0xff; 4], &blob[14..]].concat();
    check(&huge, SignatureError::Truncated);
    // Fields in another order.
    let key = string(&signer.public_blob());
    let rest = [string(b""), string(b"sha512"), string(b"x")].concat();
    let reordered = [&blob[..10], &string(NAMESPACE.as_bytes()), &key, &rest].concat();
    check(&reordered, SignatureError::Truncated);
    let head = [&blob[..10], &key, &string(NAMESPACE.as_bytes()), &string(b"")].concat();
    check(&[&head, &*string(b"md5"), &*string(b"x")].concat(), SignatureError::Hash);
    let value =
        |kind: &str, value: &[u8]| string(&[string(kind.as_bytes()), string(value)].concat());
    let with = |value: Vec<u8>| [head.clone(), string(b"sha256"), value].concat();
    check(&with(value("ssh-rsa", &[0; 64])), SignatureError::Mismatch);
    check(&with(value(TOKEN, &[0; 64])), SignatureError::Mismatch);
    check(&with(value(PLAIN, &[0; 63])), SignatureError::Length);
    let trailing = [string(PLAIN.as_bytes()), string(&[0; 64]), vec![0]].concat();
    check(&with(string(&trailing)), SignatureError::Trailing);
    let rsa = [string(b"ssh-rsa"), string(&[0; 32])].concat();
    check(&[&blob[..10], &string(&rsa)].concat(), SignatureError::KeyType);
    let short = [string(PLAIN.as_bytes()), string(&[0; 31])].concat();
    check(&[&blob[..10], &string(&short)].concat(), SignatureError::Length);
}

#[test]
fn the_text_around_a_signature_is_judged_as_strictly() {
    let signature = Signer::new(1, PLAIN).sign(MESSAGE, NAMESPACE);
    let check = |text: &str, expected: SignatureError| {
        assert_eq!(Signature::parse(text), Err(expected), "{text}");
    };
    assert!(Signature::parse(signature.trim_end()).is_ok());
    check("", SignatureError::Armor);
    check(&format!("{signature}\n"), SignatureError::Armor);
    check(&format!(" {signature}"), SignatureError::Armor);
    check(&format!("{signature}x"), SignatureError::Armor);
    check(&signature.replace('\n', "\r\n"), SignatureError::Armor);
    check(&signature.replace("BEGIN SSH", "BEGIN PGP"), SignatureError::Armor);
    check(&signature.replacen("U1NI", "U1 NI", 1), SignatureError::Base64);
    check(&signature.replace("\n-----END", "=\n-----END"), SignatureError::Base64);
    check(&"A".repeat(5000), SignatureError::TooLong);
    let begin = "-----BEGIN SSH SIGNATURE-----\n";
    check(&format!("{begin}-----END SSH SIGNATURE-----\n"), SignatureError::Armor);
}

fn cases() -> u32 {
    if std::env::var_os("HOMEOSTAT_SOAK").is_some() { 100_000 } else { 512 }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Signature::parse(&String::from_utf8_lossy(&bytes));
        let _ = AllowedSigners::parse(&String::from_utf8_lossy(&bytes));
        prop_assert!(Signature::parse(&armor(&bytes)).is_err());
        prop_assert!(Signature::parse(&armor(&[b"SSHSIG\0\0\0\x01", &*bytes].concat())).is_err());
        let _ = AllowedSigners::parse(&format!("a {PLAIN} {}", base64(&bytes)));
    }

    #[test]
    fn a_changed_bit_anywhere_spoils_a_signature(
        is_token: bool,
        at in any::<prop::sample::Index>(),
        bit in 0_u32..8,
        in_text: bool,
    ) {
        let signer = Signer::new(1, if is_token { TOKEN } else { PLAIN });
        let allowed = AllowedSigners::parse(&format!("ann {}", signer.public())).unwrap();
        let blob = signer.blob(MESSAGE, NAMESPACE, "sha512");
        let flip = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            let at = at.index(bytes.len());
            bytes[at] ^= 1_u8 << bit;
            bytes
        };
        let whole = armor(&blob);
        prop_assert!(verify(&allowed, std::slice::from_ref(&whole), 1).is_ok());
        let changed = if in_text {
            String::from_utf8(flip(whole.as_bytes())).unwrap_or_default()
        } else {
            armor(&flip(&blob))
        };
        // The newline at the end may be missing, but it is nothing else.
        prop_assert!(verify(&allowed, &[changed], 1).is_err());
    }
}
