//! Processes that live in a namespace. An own one counts as nobody: it only looks.

use std::borrow::Cow;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use homeostat_core::{Owner, Taken};
use homeostat_netns::{Error, Netns};

/// Finds them by what `/proc` says of each thread. What cannot be read has ended, or is out of reach
/// of whoever made the namespace.
pub(super) fn inside(netns: &Netns) -> Result<Vec<Taken>, Error> {
    // Within one moment, the text names a namespace: `net:[4026532008]`.
    let Some(place) = netns.run(|| fs::read_link("/proc/thread-self/ns/net").ok())? else {
        return Ok(Vec::new());
    };
    let own = std::process::id();
    let mut pids: Vec<u32> = numbers(Path::new("/proc")).collect();
    pids.sort_unstable();
    let others = pids.into_iter().filter(|pid| *pid != own);
    Ok(others.filter(|pid| is_inside(*pid, &place)).map(process).collect())
}

fn is_inside(pid: u32, place: &PathBuf) -> bool {
    let tasks = PathBuf::from(format!("/proc/{pid}/task"));
    let mut links = numbers(&tasks).map(|task| tasks.join(task.to_string()).join("ns/net"));
    links.any(|link| fs::read_link(link).is_ok_and(|its| its == *place))
}

fn numbers(directory: &Path) -> impl Iterator<Item = u32> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn process(pid: u32) -> Taken {
    let directory = PathBuf::from(format!("/proc/{pid}"));
    let name = fs::read_to_string(directory.join("comm")).unwrap_or_default();
    let owner = match fs::metadata(&directory) {
        Ok(metadata) => Owner::Foreign(Cow::Owned(format!("user {}", metadata.uid()))),
        Err(_) => Owner::foreign("somebody else"),
    };
    Taken { key: format!("process {pid} ({})", name.trim_end()), owner }
}
