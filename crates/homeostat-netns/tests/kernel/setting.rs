//! Brings the process of a check into the state that the check starts from.

use std::fs;

use homeostat_netns::{Error, Name, Sandbox};
use rustix::fs::{Gid, Uid};
use rustix::process::{DumpableBehavior, getgid, getuid, set_dumpable_behavior};
use rustix::thread::{UnshareFlags, set_thread_res_gid, set_thread_res_uid};

pub(crate) const NOBODY: u32 = 65534;

pub(crate) fn sandbox() -> Sandbox {
    for _ in 0..100_000 {
        match Sandbox::enter() {
            // The kernel lists a thread that was joined for a moment more.
            Err(Error::Threaded { .. }) => std::thread::yield_now(),
            entered => {
                return entered
                    .unwrap_or_else(|error| panic!("{error:?}; help: {:?}", error.help()));
            }
        }
    }
    panic!("a thread of this process does not end");
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// An ordinary user without privileges: nobody if root started the test, else who started it.
pub(crate) fn ordinary_user() {
    if !getuid().is_root() || !has_nobody() {
        return;
    }
    let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    set_thread_res_gid(gid, gid, gid).unwrap();
    set_thread_res_uid(uid, uid, uid).unwrap();
    set_dumpable_behavior(DumpableBehavior::Dumpable).unwrap();
}

/// Whether the user namespace that the test was started in knows the user nobody; one made by
/// `unshare --map-root-user` has no uid but 0, which is an ordinary user outside.
pub(crate) fn has_nobody() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap();
    map.lines().any(|line| {
        let ids: Vec<u64> = line.split_whitespace().map(|id| id.parse().unwrap()).collect();
        (ids[0]..ids[0] + ids[2]).contains(&NOBODY.into())
    })
}

/// A plain user namespace with the caller as its uid 0, as `unshare --user --map-root-user` makes it.
pub(crate) fn user_namespace() {
    let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
    detach(UnshareFlags::NEWUSER);
    fs::write("/proc/self/setgroups", "deny").unwrap();
    fs::write("/proc/self/uid_map", format!("0 {uid} 1")).unwrap();
    fs::write("/proc/self/gid_map", format!("0 {gid} 1")).unwrap();
}

#[expect(unsafe_code, reason = "rustix has no safe form of unshare")]
fn detach(flags: UnshareFlags) {
    assert!(!flags.contains(UnshareFlags::FILES));
    // SAFETY: the descriptor table stays whole, as just asserted.
    unsafe { rustix::thread::unshare_unsafe(flags) }.unwrap();
}

/// Limits what may be made below the check's own user namespace. Each user namespace has its own
/// `/proc/sys/user`, so the host's limits are out of reach once it was entered.
pub(crate) fn limit(key: &str, most: u32) {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap();
    let inside_one_id = map.split_whitespace().last() == Some("1");
    assert!(inside_one_id, "only in a user namespace that this check made: {map}");
    fs::write(format!("/proc/sys/user/{key}"), most.to_string()).unwrap();
}
