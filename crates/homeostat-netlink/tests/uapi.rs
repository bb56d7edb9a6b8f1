//! The committed constants are what the kernel's headers say, and the generator still prints them.
#![expect(clippy::disallowed_methods, reason = "runs the generator")]
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::process::Command;

#[test]
fn the_generated_constants_are_those_of_the_kernels_headers() {
    check(&[], include_str!("../src/uapi/generated.rs"), &["NHA_ID", "VETH_INFO_PEER"]);
    check(&["nft"], include_str!("../src/uapi/nft.rs"), &["NFTA_TABLE_NAME", "NFNL_BATCH_GENID"]);
}

fn check(arguments: &[&str], committed: &str, known: &[&str]) {
    let directory = env!("CARGO_MANIFEST_DIR");
    let output = Command::new("sh")
        .arg("uapi/generate.sh")
        .args(arguments)
        .env("ALL", "1")
        .current_dir(directory)
        .output()
        .expect("sh, cc and linux-libc-dev are needed");
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // The headers know more than what is used; what is committed must stay as it is.
    for line in committed.lines().filter(|line| !line.is_empty()) {
        assert!(printed.lines().any(|found| found == line), "the headers do not say {line:?}");
    }
    assert!(known.iter().all(|name| committed.contains(name)));
}
