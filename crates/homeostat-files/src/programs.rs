//! Programs that are known. Each is a file here and a line in [`ALL`].

use std::borrow::Cow;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use homeostat_core::Failure;
use homeostat_render::Quoting;
use rustix::process::Pid;

use crate::key::FilePath;
use crate::running::{Program, Reload, Running};

pub mod bird;
pub mod chrony;
pub mod haproxy;
pub mod keepalived;
pub mod nginx;
pub mod unbound;

/// All programs that are known, by name.
pub const ALL: &[&Profile] = &[
    &bird::PROFILE,
    &chrony::PROFILE,
    &haproxy::PROFILE,
    &keepalived::PROFILE,
    &nginx::PROFILE,
    &unbound::PROFILE,
];

/// What is known of a program. It fills in what a set leaves out.
#[derive(Debug)]
pub struct Profile {
    pub name: &'static str,
    /// What the file is called that names all others.
    pub main: &'static str,
    /// The program that judges a set by its main file, with its arguments.
    pub check: fn(&FilePath) -> Vec<String>,
    /// What its check may do.
    pub privileges: Privileges,
    /// Whether what a check says that did not succeed is no verdict: names that could not be resolved, and nothing else.
    pub is_undecided: fn(&str) -> bool,
    /// Whether a line that the check says is worth showing.
    pub says: fn(&str) -> bool,
    /// How it is reloaded; nothing, if the set does not say enough.
    pub reload: fn(&Setup<'_>) -> Option<Reload>,
    /// How it is asked what it runs; nothing, if the set does not say enough.
    pub running: fn(&Setup<'_>) -> Option<Running>,
    /// The file in which its first process writes its id, unless a set says another one.
    pub pid_file: Option<&'static str>,
    /// Which processes, with this first one, take requests. Those from before a reload may answer beside the new ones.
    pub workers: Option<fn(Pid) -> Vec<Pid>>,
    /// Which processes of former reloads end their work.
    pub draining: Option<fn(&Program) -> Vec<Pid>>,
    /// What a set must say so that it can be reloaded and asked.
    pub needs: &'static str,
    /// Tries what the check does not, in the network of the program: whether it could work with a new main file in place of
    /// the former one.
    pub try_out: Option<TryOut>,
    /// How values are quoted in its files.
    pub quoting: Quoting,
    /// What can be changed in the running program without a reload.
    pub mask: Option<Mask>,
}

/// What a check may do, beside reading the files of the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privileges {
    /// Nothing: it is an unprivileged process that may read every file.
    ReadOnly,
    /// What a program needs that behaves as it does when it starts: it opens logs, and gives files to users.
    Start,
}

/// Takes out of a file what does not count for the generation of its set.
pub type Mask = for<'a> fn(&Path, &'a [u8]) -> Cow<'a, [u8]>;

/// Given what the main file holds, before and after.
pub type TryOut = fn(&str, &str) -> Result<(), Failure>;

/// What a set says of its program.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    pub main: &'a FilePath,
    pub sockets: &'a Sockets,
    /// What starts the program.
    pub restart: Option<&'a [String]>,
}

/// Where a program can be spoken to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sockets {
    /// Of the master process of `HAProxy`.
    pub master: Option<PathBuf>,
    /// Of the worker of `HAProxy`.
    pub admin: Option<PathBuf>,
    /// Of `unbound` or BIRD.
    pub control: Option<PathBuf>,
    /// An address at which `nginx` answers with the generation.
    pub status: Option<SocketAddr>,
}

/// A known program, and the main file of a set for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    pub profile: &'static Profile,
    pub main: FilePath,
    pub sockets: Sockets,
}

impl Profile {
    /// The profile of this name.
    #[must_use]
    pub fn of(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|profile| profile.name == name).copied()
    }
}

impl PartialEq for Profile {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Profile {}

fn argv(arguments: &[&str]) -> Vec<String> {
    arguments.iter().map(|one| (*one).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_profile_has_a_name_of_its_own_in_order() {
        assert!(ALL.is_sorted_by(|one, next| one.name < next.name));
        assert!(ALL.iter().all(|profile| Profile::of(profile.name) == Some(*profile)));
    }
}
