//! The one program that `homeostat fleet` starts: `ssh-keygen`, which has the keys, the agent and the tokens of people.
#![expect(clippy::disallowed_methods, reason = "the one module of fleets that starts a program")]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::failure::helped;
use anyhow::{Context as _, Result};

/// Signs bytes for a namespace. It may ask for a passphrase or a touch on the terminal.
pub(in crate::commands) fn sign(key: &Path, namespace: &str, message: &[u8]) -> Result<String> {
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-Y", "sign", "-n", namespace, "-f"]).arg(key);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut child = command.spawn().map_err(|error| {
        helped(
            format!("cannot start ssh-keygen: {error}"),
            "install OpenSSH's client (Debian: openssh-client), or sign elsewhere and put the signature beside the file",
        )
    })?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(message).context("ssh-keygen does not read what it shall sign")?;
    }
    let ended = child.wait_with_output().context("cannot wait for ssh-keygen")?;
    if !ended.status.success() {
        return Err(helped(
            format!("ssh-keygen did not sign with {}: {}", key.display(), ended.status),
            "use an ed25519 key: `ssh-keygen -t ed25519`, or `ed25519-sk` on a hardware token",
        ));
    }
    String::from_utf8(ended.stdout).context("ssh-keygen wrote no text")
}

/// The command for people who sign elsewhere.
pub(in crate::commands) fn sign_command(namespace: &str, file: &Path) -> String {
    format!("ssh-keygen -Y sign -n {namespace} -f KEY {}", file.display())
}
