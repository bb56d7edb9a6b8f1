//! A network namespace for a kernel test, and `ip` to judge it independently of our code.
#![expect(
    clippy::disallowed_methods,
    reason = "the one module of the testkit that starts programs"
)]

use std::io;
use std::process::{Command, Output};

use homeostat_netns::Netns;
use serde_json::Value;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No network namespace could be created or entered.
    #[error(
        "no network namespace for this test ({0}): run it as root, or inside \
         `unshare --user --map-root-user --net`"
    )]
    Enter(homeostat_netns::Error),
    #[error("`ip` cannot be started ({0}): install iproute2")]
    Start(io::Error),
    /// With the text of `ip`.
    #[error("`ip` refused: {0}")]
    Refused(String),
    /// `ip` printed something that is no JSON.
    #[error("`ip` printed no JSON: {0}")]
    NotJson(serde_json::Error),
}

/// A fresh, unnamed network namespace that the calling thread is in.
#[derive(Debug)]
pub struct Namespace {
    netns: Netns,
}

impl Namespace {
    /// Creates a namespace and moves the calling thread into it for good, since every test has its own thread. The
    /// namespace ends with the thread.
    pub fn enter() -> Result<Self, Error> {
        let netns = Netns::anonymous().map_err(Error::Enter)?;
        netns.enter().map_err(Error::Enter)?;
        Ok(Namespace { netns })
    }

    /// The namespace, for code under test that wants it by handle.
    #[must_use]
    pub fn netns(&self) -> &Netns {
        &self.netns
    }

    /// Runs `ip` in the namespace of the calling thread. It is a method because a `Namespace` proves that the thread
    /// is not in the namespace of the host.
    pub fn ip(&self, args: &[&str]) -> Result<(), Error> {
        ip(args).map(|_| ())
    }

    /// Runs `ip -j` in the namespace and parses its output.
    pub fn ip_json(&self, args: &[&str]) -> Result<Value, Error> {
        let args: Vec<&str> = [&["-j"], args].concat();
        serde_json::from_slice(&ip(&args)?).map_err(Error::NotJson)
    }
}

fn ip(args: &[&str]) -> Result<Vec<u8>, Error> {
    let Output { status, stdout, stderr } =
        Command::new("ip").args(args).output().map_err(Error::Start)?;
    if status.success() {
        return Ok(stdout);
    }
    let words = String::from_utf8_lossy(&stderr);
    Err(Error::Refused(format!("ip {}: {}", args.join(" "), words.trim_end())))
}
