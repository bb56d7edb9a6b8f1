//! `ip -batch`.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use super::network::TestNetwork;
use super::wire::{Ip, OURS};

/// Routes as lines for `ip -batch`.
pub(super) struct List {
    ip: Ip,
    path: String,
    _directory: TempDir,
}

impl List {
    /// The lines for the first `size` routes.
    pub(super) fn of(ip: Ip, size: usize) -> Result<Self> {
        let (mut lines, gateway) = (String::new(), ip.gateway());
        for number in 0..size {
            let (dst, len) = ip.destination(number);
            writeln!(lines, "route add {dst}/{len} via {gateway} proto {OURS}")?;
        }
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("routes");
        std::fs::write(&path, lines)?;
        let path = path.to_str().context("an odd directory")?.to_owned();
        Ok(List { ip, path, _directory: directory })
    }

    pub(super) fn apply(&self, network: &TestNetwork) -> Result<()> {
        let version = if self.ip == Ip::V4 { "-4" } else { "-6" };
        network.ip(&[version, "-batch", &self.path])
    }
}
