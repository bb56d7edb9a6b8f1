//! `chronyd`. It reads its files when it starts, and at no other time; nothing that it says distinguishes them. So it is started
//! again for new files, and what runs is known by when its process started (`started.rs`).

use homeostat_render::Quoting;

use crate::programs::{Privileges, Profile, argv};
use crate::running::{PLACEHOLDER, Reload, Request, Running};

pub const PROFILE: Profile = Profile {
    name: "chrony",
    main: "chrony.conf",
    // It prints the whole configuration.
    check: |main| argv(&["/usr/sbin/chronyd", "-p", "-f", main.as_str()]),
    privileges: Privileges::ReadOnly,
    is_undecided: |_| false,
    says: |line| line.split_once("Z ").is_some_and(|(time, _)| time.len() == 19),
    reload: |setup| setup.restart.map(|restart| Reload::Send(Request::Run(restart.to_vec()))),
    running: |_| Some(Running { ask: Request::Started, is: PLACEHOLDER.to_owned() }),
    pid_file: Some("/run/chrony/chronyd.pid"),
    workers: None,
    draining: None,
    quoting: Quoting::Backslash,
    mask: None,
    needs: "`unit = \"chrony.service\"`, or `restart`: it must be started again for new files",
    try_out: None,
};
