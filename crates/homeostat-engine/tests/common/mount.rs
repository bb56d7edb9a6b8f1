//! A small disk of its own for one test: a memory filesystem that only the calling thread sees.

#![allow(dead_code, reason = "every test binary uses another part of it")]

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change, mount_remount};
use rustix::thread::UnshareFlags;

/// Runs `test` on a thread that has a disk of `size` at `directory`.
pub(crate) fn with_small_disk(directory: &Path, size: &'static str, test: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            leave_the_mounts_of_the_host();
            let options = std::ffi::CString::new(format!("size={size},mode=700")).unwrap();
            let flags = MountFlags::empty();
            mount("tmpfs", directory, "tmpfs", flags, options.as_c_str()).unwrap();
            test();
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Makes the disk of the calling thread read-only. Until it runs its own program, a child that another test
/// starts shares our open files, and the disk is busy.
pub(crate) fn make_read_only(directory: &Path) {
    let deadline = UNIX_EPOCH.elapsed().unwrap() + Duration::from_mins(1);
    while let Err(error) = mount_remount(directory, MountFlags::RDONLY, c"") {
        let is_late = UNIX_EPOCH.elapsed().unwrap() > deadline;
        assert!(error == Errno::BUSY && !is_late, "the disk stays writable: {error}");
        std::thread::yield_now();
    }
}

#[expect(unsafe_code, reason = "the kernel call has no safe form")]
fn leave_the_mounts_of_the_host() {
    // SAFETY: only the view of the filesystem of this thread changes; no descriptor is shared or
    // closed, and the thread ends with the test.
    let left = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::FS) };
    assert!(
        left.is_ok(),
        "this test needs a mount namespace of its own: run it as root ({left:?})"
    );
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).unwrap();
}
