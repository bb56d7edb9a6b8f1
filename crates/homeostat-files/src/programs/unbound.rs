//! `unbound`. `reload` is answered with "ok" before the daemon reads its files; a file that it refuses ends it (1.17). What runs
//! is asked by `get_option identity`: the file says `identity: "{{ generation }}"`, and `hide-identity: yes` if the network
//! shall not see it.
//!
//! It is spoken to by its socket, not by `unbound-control`: that one reads the files of the set to find the way, and
//! does not answer as soon as they are broken.

use std::path::Path;

use homeostat_render::Quoting;

use crate::programs::{Privileges, Profile, Setup, argv};
use crate::running::{PLACEHOLDER, Reload, Request, Running};

pub const PROFILE: Profile = Profile {
    name: "unbound",
    main: "unbound.conf",
    check: |main| argv(&["/usr/sbin/unbound-checkconf", main.as_str()]),
    privileges: Privileges::ReadOnly,
    is_undecided: |_| false,
    says: |line| !line.contains("no errors in"),
    reload: |setup| Some(Reload::Send(control(setup, "reload"))),
    running: |setup| {
        let ask = control(setup, "get_option identity");
        Some(Running { ask, is: PLACEHOLDER.to_owned() })
    },
    pid_file: Some("/run/unbound.pid"),
    workers: None,
    draining: None,
    needs: "`control-interface: /run/unbound.ctl` and `identity: \"{{ generation }}\"` in the main file, and \
            `sockets = { control = \"/run/unbound.ctl\" }`, if it is another one",
    try_out: None,
    quoting: Quoting::Backslash,
    mask: None,
};

fn control(setup: &Setup<'_>, verb: &str) -> Request {
    // Debian's.
    let path = setup.sockets.control.as_deref().unwrap_or(Path::new("/run/unbound.ctl"));
    Request::Socket { path: path.to_owned(), send: format!("UBCT1 {verb}") }
}
