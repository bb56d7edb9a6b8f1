//! `nginx`. A reload is a signal to its master, which keeps the former files if it cannot use the new ones, and reports that to nobody
//! but its log: `nginx -t` does not try to listen. `nginx -t` makes logs, a pid file and directories, which stay in the view.
//!
//! What runs is asked of a worker: an address of the loopback at which a server of the set does nothing but
//! `return 200 "{{ generation }}";`. A socket in the file system would do as well, but `nginx` does not start again over one
//! that a killed `nginx` left behind. Workers of before a reload answer beside the new ones for 100 ms, until they are asked to
//! shut down, which then is in their title.

use homeostat_render::Quoting;
use rustix::process::{Pid, Signal};

use crate::process::{children, command_line};
use crate::programs::{Privileges, Profile, argv};
use crate::running::{PLACEHOLDER, Reload, Request, Running};

pub const PROFILE: Profile = Profile {
    name: "nginx",
    main: "nginx.conf",
    check: |main| argv(&["/usr/sbin/nginx", "-t", "-q", "-c", main.as_str()]),
    privileges: Privileges::Start,
    is_undecided,
    says: |_| true,
    reload: |_| Some(Reload::Signal(Signal::HUP)),
    running: |setup| {
        let address = setup.sockets.status?;
        let ask = Request::Tcp { address, send: "GET / HTTP/1.0\n".to_owned() };
        Some(Running { ask, is: PLACEHOLDER.to_owned() })
    },
    pid_file: Some("/run/nginx.pid"),
    workers: Some(|master| children_called(master, "nginx: worker process")),
    draining: Some(|program| {
        let children = |master| children_called(master, "nginx: worker process is shutting down");
        program.process().map(children).unwrap_or_default()
    }),
    needs: "`sockets = { status = \"127.0.0.1:8099\" }`, and in the main file \
            `server { listen 127.0.0.1:8099; return 200 \"{{ generation }}\"; }`",
    try_out: None,
    quoting: Quoting::Backslash,
    mask: None,
};

/// Names of servers are resolved by the check: while that fails, nothing is known of the rest.
fn is_undecided(words: &str) -> bool {
    let mut errors = words.lines().filter(|line| line.contains("[emerg]")).peekable();
    errors.peek().is_some() && errors.all(|line| line.contains("host not found in"))
}

fn children_called(master: Pid, title: &str) -> Vec<Pid> {
    children(master).into_iter().filter(|pid| command_line(*pid) == title).collect()
}
