//! What holds the sandbox apart from the host. Host-wide knobs are only ever opened here, never written.

use std::fs::{self, File, OpenOptions};
use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::thread;

use homeostat_netns::{Error, Netns, Sandbox, create};
use rustix::fs::{CWD, Dir, DirEntry, Mode, OFlags, StatVfsMountFlags, openat, statvfs};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid, getuid};

use crate::setting::{NOBODY, has_nobody, limit, name, ordinary_user, sandbox, user_namespace};

/// Below `/proc/sys`.
const HOST_KNOBS: [&str; 5] =
    ["vm/swappiness", "kernel/hostname", "kernel/panic", "fs/file-max", "kernel/core_pattern"];

fn open_for_writing(path: &str) -> std::io::Result<File> {
    OpenOptions::new().write(true).open(path)
}

pub(crate) fn a_sandbox_cannot_open_host_wide_knobs_for_writing() {
    let before_the_fence = open_directory("/proc/sys");
    sandbox();
    for knob in HOST_KNOBS {
        let path = format!("/proc/sys/{knob}");
        assert!(fs::exists(&path).unwrap(), "{path}");
        assert!(open_for_writing(&path).is_err(), "{path} is open for writing");
        // The same file past the read-only mount: there the user id alone must hold.
        let past = openat(&before_the_fence, knob, OFlags::WRONLY, Mode::empty());
        assert_eq!(past.unwrap_err(), Errno::ACCESS, "{knob}");
    }
}

pub(crate) fn a_sandbox_has_knobs_read_only_but_for_its_networks() {
    sandbox();
    let is_read_only = |path| statvfs(path).unwrap().f_flag.contains(StatVfsMountFlags::RDONLY);
    assert!(is_read_only("/proc/sys") && is_read_only("/proc/sys/vm"));
    assert!(!is_read_only("/proc/sys/net"));
}

pub(crate) fn a_sandbox_opens_its_own_network_knobs_for_writing() {
    sandbox();
    open_for_writing("/proc/sys/net/ipv4/ip_forward").unwrap();
    let other = Netns::anonymous().unwrap();
    other.run(|| open_for_writing("/proc/sys/net/ipv4/ip_forward").unwrap()).unwrap();
}

pub(crate) fn root_becomes_nobody_and_others_stay_who_they_are() {
    let started_by = getuid();
    let expected = if started_by.is_root() && has_nobody() { NOBODY } else { started_by.as_raw() };
    sandbox();
    assert!(geteuid().is_root() && getegid().is_root(), "inside it is root");
    let map = fs::read_to_string("/proc/self/uid_map").unwrap();
    let map: Vec<u32> = map.split_whitespace().map(|id| id.parse().unwrap()).collect();
    assert_eq!(map, [0, expected, 1]);
}

pub(crate) fn an_ordinary_user_enters_a_sandbox() {
    ordinary_user();
    let host = Netns::current().unwrap();
    let sandbox = sandbox();
    assert!(!sandbox.netns().same_as(&host).unwrap());
    create(&name("blue")).unwrap();
}

pub(crate) fn the_hosts_run_directory_stays_untouched() {
    let host_run = open_directory("/run");
    let before = entries(&host_run);
    sandbox();
    create(&name("blue")).unwrap();
    fs::write("/run/homeostat-was-here", "").unwrap();
    assert_eq!(entries(&host_run), before);
    assert_eq!(fs::read_dir("/run").unwrap().count(), 2, "inside, /run starts empty");
}

/// Holds the very directory, whatever is mounted over it later.
fn open_directory(path: &str) -> OwnedFd {
    openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap()
}

fn entries(directory: &OwnedFd) -> Vec<String> {
    let listed = openat(directory, ".", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    let name = |entry: DirEntry| entry.file_name().to_string_lossy().into_owned();
    let mut names: Vec<_> = Dir::new(listed).unwrap().map(|entry| name(entry.unwrap())).collect();
    names.sort();
    names
}

pub(crate) fn the_way_back_to_the_hosts_namespace_is_refused_with_help() {
    let host = Netns::current().unwrap();
    let sandbox = sandbox();
    let error = host.run(|| ()).unwrap_err();
    assert!(matches!(error, Error::Enter { .. }), "{error:?}");
    let help = error.help().unwrap();
    assert!(help.contains("CAP_SYS_ADMIN") && help.contains("in a sandbox"), "{help}");
    assert!(Netns::current().unwrap().same_as(sandbox.netns()).unwrap());
}

pub(crate) fn a_threaded_process_cannot_enter_a_sandbox() {
    let before = Netns::current().unwrap();
    let (release, released) = mpsc::channel::<()>();
    let second = thread::spawn(move || released.recv());
    let error = Sandbox::enter().unwrap_err();
    assert!(matches!(error, Error::Threaded { threads: 2 }), "{error:?}");
    assert!(before.same_as(&Netns::current().unwrap()).unwrap());
    release.send(()).unwrap();
    second.join().unwrap().unwrap();
}

pub(crate) fn a_forbidden_user_namespace_names_the_switch() {
    ordinary_user();
    user_namespace();
    limit("max_user_namespaces", 0);
    let error = Sandbox::enter().unwrap_err();
    assert!(matches!(error, Error::SandboxDetach { .. }), "{error:?}");
    assert!(error.help().unwrap().contains("user.max_user_namespaces"), "{:?}", error.help());
}

pub(crate) fn a_sandbox_in_a_user_namespace_is_refused_only_if_it_reaches_host_knobs() {
    // Started by root this is the trap: uid 0 of the namespace *is* the host's root, and there is no nobody.
    user_namespace();
    let reaches_host = open_for_writing("/proc/sys/vm/swappiness").is_ok();
    match Sandbox::enter() {
        Ok(_) => assert!(!reaches_host),
        Err(Error::HostReachable { .. }) => assert!(reaches_host),
        Err(other) => panic!("{other:?}"),
    }
}
