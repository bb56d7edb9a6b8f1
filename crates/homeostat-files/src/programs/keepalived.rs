//! keepalived. Of a file that it understands in part it loads that part, and says so only in its log: only the check keeps such a
//! file away. The check looks at interfaces, so it must run in the network of the program.
//!
//! What runs is seen by the name of the process that does VRRP: the file says `vrrp_process_name {{ generation }}` in
//! `global_defs`, and that process calls itself so when it has read it (2.2). Of the process that watches servers
//! (`checker_process_name`) nothing is proven if both are there and only one of them has the name.

use homeostat_render::Quoting;
use rustix::process::Signal;

use crate::programs::{Privileges, Profile, argv};
use crate::running::{PLACEHOLDER, Reload, Request, Running};

pub const PROFILE: Profile = Profile {
    name: "keepalived",
    main: "keepalived.conf",
    check: |main| argv(&["/usr/sbin/keepalived", "-t", "-f", main.as_str()]),
    privileges: Privileges::Start,
    is_undecided: |_| false,
    says: |_| true,
    reload: |_| Some(Reload::Signal(Signal::HUP)),
    running: |_| Some(Running { ask: Request::ChildNames, is: PLACEHOLDER.to_owned() }),
    pid_file: Some("/run/keepalived.pid"),
    workers: None,
    draining: None,
    quoting: Quoting::Backslash,
    mask: None,
    needs: "`vrrp_process_name {{ generation }}` in `global_defs` of the main file",
    try_out: None,
};
