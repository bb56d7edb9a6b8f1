//! The shapes service as a program: `shapes-service [ADDRESS]`, by default a free port on loopback.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};

use homeostat_shapes::service::Service;

fn main() -> anyhow::Result<()> {
    let addr = match std::env::args().nth(1) {
        Some(text) => text.parse()?,
        None => SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
    };
    let service = Service::start_on(addr)?;
    writeln!(std::io::stdout(), "{}", service.addr())?;
    service.wait();
    Ok(())
}
