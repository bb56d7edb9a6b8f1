//! Executable scripts that replace other programs in tests.
#![expect(clippy::disallowed_methods, reason = "another process has to write the file")]

use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes a script that can be run at once.
///
/// Another process writes it: children that other tests fork at the same moment inherit a descriptor that this process
/// has open for writing, and the kernel refuses to run a file that is open for writing (`ETXTBSY`).
pub fn write_script(path: &Path, text: &str) -> io::Result<()> {
    let mut shell = Command::new("sh");
    shell.args(["-ec", "cat > \"$0\"; chmod 755 \"$0\""]).arg(path).stdin(Stdio::piped());
    let mut child = shell.spawn()?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(text.as_bytes())?;
    }
    let status = child.wait()?;
    let failed = || io::Error::other(format!("cannot write {}: {status}", path.display()));
    status.success().then_some(()).ok_or_else(failed)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn runs(path: &Path) -> bool {
        Command::new(path).status().is_ok_and(|status| status.success())
    }

    #[test]
    fn a_script_runs_however_many_programs_are_started_meanwhile() {
        let (directory, is_over) = (tempfile::tempdir().unwrap(), AtomicBool::new(false));
        let start_others = || {
            while !is_over.load(Ordering::Relaxed) {
                runs(Path::new("true"));
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(start_others);
            }
            let busy = (0..100).find(|nth| {
                let path = directory.path().join(nth.to_string());
                write_script(&path, "#!/bin/sh\nexit 0\n").unwrap();
                !runs(&path)
            });
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(busy, None);
        });
    }
}
