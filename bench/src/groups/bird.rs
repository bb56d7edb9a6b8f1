//! BIRD, started with a configuration of static routes, until the kernel has them all.

use std::fmt::Write as _;

use anyhow::{Result, ensure};
use tempfile::TempDir;

use super::network::TestNetwork;
use super::wire::Ip;
use crate::{program, program::Running};

/// A configuration and a control socket in a directory of their own.
pub(super) struct Bird {
    program: String,
    directory: TempDir,
    ip: Ip,
    size: usize,
}

impl Bird {
    /// Writes the configuration, unless there is no BIRD.
    pub(super) fn new(ip: Ip, size: usize) -> Result<Self> {
        // In effect the kernel is scanned only at the start.
        Self::scanning(ip, size, 3600)
    }

    /// The same with a scan of the kernel's routes at this interval.
    pub(super) fn scanning(ip: Ip, size: usize, seconds: u32) -> Result<Self> {
        let program = program::text(&program::find_or_leave_out("bird", "bird2")?)?.to_owned();
        let directory = tempfile::tempdir()?;
        std::fs::write(directory.path().join("bird.conf"), config(ip, size, seconds)?)?;
        Ok(Bird { program, directory, ip, size })
    }

    /// Starts it and waits until the kernel has all routes. It ends when the result is dropped.
    pub(super) fn start(&self, network: &TestNetwork) -> Result<Running> {
        let [config, control] =
            ["bird.conf", "bird.ctl"].map(|name| self.directory.path().join(name));
        let (config, control) = (program::text(&config)?, program::text(&control)?);
        let mut bird = Running::start(&self.program, &["-f", "-c", config, "-s", control])?;
        network.await_count(self.ip, self.size, || {
            ensure!(bird.is_alive()?, "BIRD ended");
            Ok(())
        })?;
        Ok(bird)
    }
}

/// Nothing but static routes into the kernel.
fn config(ip: Ip, size: usize, seconds: u32) -> Result<String> {
    let (channel, gateway) = (if ip == Ip::V4 { "ipv4" } else { "ipv6" }, ip.gateway());
    let mut config = format!(
        "router id 10.0.0.1;\n\
         protocol device {{ scan time 3600; }}\n\
         protocol kernel {{ scan time {seconds}; {channel} {{ import none; export all; }}; }}\n\
         protocol static {{ {channel};\n"
    );
    for number in 0..size {
        let (dst, len) = ip.destination(number);
        writeln!(config, "route {dst}/{len} via {gateway};")?;
    }
    config.push_str("}\n");
    Ok(config)
}
