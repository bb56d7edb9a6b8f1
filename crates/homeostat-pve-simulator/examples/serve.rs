//! Serves a small cluster until its standard input ends; prints one line with all that a client needs.
#![expect(clippy::print_stdout, reason = "another program reads what it prints")]

use std::io::{self, Read as _};

use homeostat_pve_simulator::{Guest, Kind, Simulator, World};

fn main() -> io::Result<()> {
    let world = World::default()
        .with(101, Guest::new(Kind::Lxc, "pve1").with("description", "web\n"))
        .with(102, Guest::new(Kind::Lxc, "pve2").running())
        .with(201, Guest::new(Kind::Qemu, "pve1").running());
    let simulator = Simulator::start(world)?;
    println!("{} {} {}", simulator.address(), Simulator::token(), simulator.fingerprint());
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
