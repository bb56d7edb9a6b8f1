//! A daemon as a child of the test, which receives from it what systemd would receive.

use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::daemon::age;
use crate::world::World;

/// However busy the machine is, silence for so long is a failure.
const PATIENCE: Duration = Duration::from_mins(2);

/// A running daemon; it ends with this value.
pub(crate) struct Started {
    child: Child,
    notices: UnixDatagram,
}

impl World {
    /// Starts `homeostat run` on the document of this world, and waits until it is ready.
    pub(crate) fn start(&self, options: &str) -> Started {
        let started = self.start_watched(options, None);
        started.wait_for_notice("READY=1");
        started
    }

    /// The same with systemd's watchdog, if one is given, and without waiting.
    pub(crate) fn start_watched(&self, options: &str, watchdog: Option<&str>) -> Started {
        age(self.path());
        let path = self.path().join("notify");
        let _ = std::fs::remove_file(&path);
        let notices = UnixDatagram::bind(&path).unwrap();
        notices.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut command = self.homeostat(&format!("run host.toml {options}"));
        command.env("NOTIFY_SOCKET", &path).env_remove("WATCHDOG_PID");
        command.envs(watchdog.map(|period| ("WATCHDOG_USEC", period)));
        let log = std::fs::File::create(self.path().join("log")).unwrap();
        let child = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        Started { child, notices }
    }

    /// What the daemon logged so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path().join("log")).unwrap()
    }
}

impl Started {
    /// The next notice.
    pub(crate) fn notice(&self) -> String {
        let mut buffer = [0; 1024];
        // A wait with a time limit is also ended by a stop and a continuation of this process.
        let length = loop {
            match self.notices.recv(&mut buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                received => break received.unwrap(),
            }
        };
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    /// Waits for a notice that begins so, and hands it out.
    pub(crate) fn wait_for_notice(&self, words: &str) -> String {
        loop {
            let notice = self.notice();
            if notice.starts_with(words) {
                return notice;
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Stops it as systemd would; it must end well.
    pub(crate) fn stop(mut self) {
        self.signal(Signal::TERM);
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
