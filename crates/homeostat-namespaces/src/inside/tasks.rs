//! Processes that live in a namespace. Our own process does not count: it only looks.

use std::borrow::Cow;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use homeostat_core::{Failure, Owner, Retry, Taken};
use homeostat_netns::Netns;

use crate::observe::failure;

/// Finds them by what `/proc` says of each thread. One that cannot be read has ended, or is out of
/// reach of the user that made the namespace.
pub(super) fn inside(netns: &Netns) -> Result<Vec<Taken>, Failure> {
    let place = netns.run(|| fs::read_link("/proc/thread-self/ns/net"));
    let place = place.map_err(|error| failure(&error))?.map_err(|error| unseen(&error))?;
    let own = std::process::id();
    let mut pids: Vec<u32> = numbers("/proc").map_err(|error| unseen(&error))?.collect();
    pids.sort_unstable();
    let others = pids.into_iter().filter(|pid| *pid != own);
    Ok(others.filter(|pid| is_inside(*pid, &place)).map(process).collect())
}

/// Processes that cannot be seen may be inside.
fn unseen(error: &io::Error) -> Failure {
    Failure::new(format!("cannot tell which processes are inside: {error}"), Retry::Soon)
}

/// Whether a thread of the process is in the namespace that `/proc` calls this: `net:[4026532008]`.
/// The number belongs to no other namespace while this one is open.
fn is_inside(pid: u32, place: &Path) -> bool {
    let tasks = format!("/proc/{pid}/task");
    let links = numbers(&tasks).into_iter().flatten();
    let mut links = links.map(|task| format!("{tasks}/{task}/ns/net"));
    links.any(|link| fs::read_link(link).is_ok_and(|its| its == place))
}

fn numbers(directory: &str) -> io::Result<impl Iterator<Item = u32> + use<>> {
    let entries = fs::read_dir(directory)?.flatten();
    Ok(entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()))
}

fn process(pid: u32) -> Taken {
    let directory = PathBuf::from(format!("/proc/{pid}"));
    let name = fs::read_to_string(directory.join("comm")).unwrap_or_default();
    let owner = match fs::metadata(&directory) {
        Ok(metadata) => Owner::Foreign(Cow::Owned(format!("user {}", metadata.uid()))),
        Err(_) => Owner::foreign("another owner"),
    };
    Taken::new(format!("process {pid} ({})", name.trim_end()), owner)
}
