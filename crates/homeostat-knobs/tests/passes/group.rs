//! A real control group that a test makes for itself.

use std::fs;
use std::path::PathBuf;

use homeostat_knobs::{DesiredState, cgroup};

/// A group that goes with the test.
pub(crate) struct Group {
    pub(crate) path: PathBuf,
    pub(crate) name: String,
}

impl Group {
    /// Names a group that does not exist yet.
    pub(crate) fn named(test: &str) -> Self {
        let root = cgroup::root().expect("this test needs a cgroup v2 hierarchy in /sys/fs/cgroup");
        let name = format!("homeostat-test-{test}-{}", std::process::id());
        Group { path: root.join(&name), name }
    }

    pub(crate) fn make(&self) {
        fs::create_dir(&self.path).expect("this test makes a control group; run it as root");
    }

    pub(crate) fn desired(&self, pairs: &[(&str, &str)]) -> DesiredState {
        let builder = pairs.iter().fold(DesiredState::builder(), |desired, (file, value)| {
            desired.cgroup(&self.name, file, value).unwrap()
        });
        builder.build().unwrap()
    }

    pub(crate) fn read(&self, file: &str) -> String {
        fs::read_to_string(self.path.join(file)).unwrap().trim_end().to_owned()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.path);
    }
}
