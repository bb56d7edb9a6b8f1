//! A million lines of `from-file`: read from the disk, parsed, normalized and sorted into a desired state.

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};

use anyhow::{Context, Result, ensure};
use homeostat_document::{Checker, Document, DocumentReader, Format, ValueError};
use homeostat_engine::Desired;
use homeostat_rtnl::DesiredState;
use homeostat_rtnl::section::{RouteLine, SECTIONS, listed_routes};
use tempfile::TempDir;

use crate::{Budget, Group, Run, Unit};

pub(super) fn groups() -> Vec<Group> {
    // As a full table of the Internet comes: /24 and longer, through a handful of gateways.
    let ipv4 = group("list: 1M lines of from-file, IPv4", v4, Budget::BytesEach(25.0));
    vec![ipv4, group("list: 1M lines of from-file, IPv6", v6, Budget::BytesEach(40.0))]
}

fn group(name: &'static str, line: fn(u32) -> String, memory: Budget) -> Group {
    Group::new(name, Unit::Seconds)
        .with("read the file", move |run| read_only(run, line), &[])
        .with("parse", move |run| parse(run, line), &[])
        .with("parse and build", move |run| build(run, line), &[Budget::AtMost(0.2), memory])
}

/// How many gateways the routes are spread over, in no order.
const GATEWAYS: u32 = 8;

fn v4(number: u32) -> String {
    let to = Ipv4Addr::from_bits(scattered(number) << 8);
    let via = Ipv4Addr::from_bits(0x0A00_0001 + number % GATEWAYS);
    format!("{to}/24 via {via} dev eth0 metric 20\n")
}

fn v6(number: u32) -> String {
    let to = Ipv6Addr::from_bits(0x2001 << 112 | u128::from(scattered(number)) << 80);
    let via = Ipv6Addr::from_bits(0xFE80 << 112 | u128::from(1 + number % GATEWAYS));
    format!("{to}/48 via {via} dev eth0 metric 20\n")
}

/// Spreads numbers below 2^24 without collisions: an odd factor can be undone.
fn scattered(number: u32) -> u32 {
    number.wrapping_mul(0x9E_3779) & 0xFF_FFFF
}

/// A document with one list.
struct Listed {
    count: usize,
    document: Document,
    directory: TempDir,
}

impl Listed {
    fn write(run: &Run, line: fn(u32) -> String) -> Result<Self> {
        let count = run.size(1_000_000, 10_000);
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("bgp.routes");
        let mut text = String::new();
        (0..).take(count).for_each(|number| text.push_str(&line(number)));
        fs::write(&path, text)?;
        let entry = format!("[[routes]]\nfrom-file = '{}'", path.display());
        let document = DocumentReader::new(&[SECTIONS]).parse("a.toml", Format::Toml, &entry)?;
        Ok(Self { count, document, directory })
    }

    fn routes(&self, mut each: impl FnMut(RouteLine) -> Result<(), ValueError>) -> Result<()> {
        let mut checker = Checker::new(self.document.files.clone());
        listed_routes(&self.document.host, &mut checker, |_, line| each(line));
        Ok(checker.into_result()?)
    }
}

fn read_only(run: &mut Run, line: fn(u32) -> String) -> Result<()> {
    let listed = Listed::write(run, line)?;
    let path = listed.directory.path().join("bgp.routes");
    let text = run.time(listed.count, || fs::read_to_string(path))?;
    ensure!(text.lines().count() == listed.count, "lines are missing");
    Ok(())
}

fn parse(run: &mut Run, line: fn(u32) -> String) -> Result<()> {
    let listed = Listed::write(run, line)?;
    let mut count = 0;
    run.time(listed.count, || {
        listed.routes(|line| {
            count += usize::from(line.route.via.is_some());
            Ok(())
        })
    })?;
    ensure!(count == listed.count, "{count} routes of {}", listed.count);
    Ok(())
}

fn build(run: &mut Run, line: fn(u32) -> String) -> Result<()> {
    let listed = Listed::write(run, line)?;
    let desired = run.time_and_weigh(listed.count, || -> Result<DesiredState> {
        let mut builder = DesiredState::builder();
        listed.routes(|RouteLine { key, route }| {
            let added = builder.route(key, route).map(|_| ());
            added.map_err(|error| ValueError { message: error.to_string(), help: None })
        })?;
        builder.build().context("the list has twins")
    })?;
    ensure!(desired.len() == listed.count, "{} routes of {}", desired.len(), listed.count);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contest::run_group;
    use crate::run::Scale;

    #[test]
    fn every_contestant_sees_all_lines() {
        for group in groups() {
            let rows = run_group(&group, 1, Scale::Quick).unwrap().rows;
            assert_eq!(rows.len(), group.contestants.len());
        }
    }
}
