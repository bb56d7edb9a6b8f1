//! BIRD. A reload that it refuses leaves it with the former files, and says so. What runs is asked by `eval HOMEOSTAT`: the file
//! says `define HOMEOSTAT = "{{ generation }}";`.

use std::path::Path;

use homeostat_render::Quoting;

use crate::programs::{Privileges, Profile, Setup, argv};
use crate::running::{PLACEHOLDER, Reload, Request, Running};

pub const PROFILE: Profile = Profile {
    name: "bird",
    main: "bird.conf",
    check: |main| argv(&["/usr/sbin/bird", "-p", "-c", main.as_str()]),
    privileges: Privileges::ReadOnly,
    is_undecided: |_| false,
    says: |_| true,
    reload: |setup| Some(Reload::Send(control(setup, "configure"))),
    running: |setup| {
        let ask = control(setup, "eval HOMEOSTAT");
        Some(Running { ask, is: PLACEHOLDER.to_owned() })
    },
    pid_file: None,
    workers: None,
    draining: None,
    quoting: Quoting::Backslash,
    mask: None,
    needs: "`define HOMEOSTAT = \"{{ generation }}\";` in the main file",
    try_out: None,
};

fn control(setup: &Setup<'_>, command: &str) -> Request {
    // Debian's.
    let path = setup.sockets.control.as_deref().unwrap_or(Path::new("/run/bird/bird.ctl"));
    Request::Bird { path: path.to_owned(), send: command.to_owned() }
}
