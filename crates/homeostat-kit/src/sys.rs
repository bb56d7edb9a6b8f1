//! The call for which no safe wrapper exists. Nothing else in this crate is unsafe.
#![expect(unsafe_code, reason = "F_SETLEASE has no safe wrapper")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;

/// `linux/fcntl.h`; the libc crate does not carry it.
const F_SETSIG: libc::c_int = 10;

/// Whether a process has the file open for writing: only then does the kernel refuse a lease for reading with EAGAIN. The
/// lease is given back at once. False also where it cannot be known: on file systems without leases, and for
/// files of other users without `CAP_LEASE`.
pub(crate) fn is_open_for_writing(file: &File) -> bool {
    let descriptor = file.as_raw_fd();
    let set = |command, value: libc::c_int| {
        // SAFETY: these commands take a number, and the kernel writes to no memory of ours.
        unsafe { libc::fcntl(descriptor, command, value) }
    };
    // When a process opens the file while we have the lease, the kernel signals us. By default that is SIGIO, which would
    // end the process; SIGURG is ignored by default.
    set(F_SETSIG, libc::SIGURG);
    if set(libc::F_SETLEASE, libc::F_RDLCK) == 0 {
        set(libc::F_SETLEASE, libc::F_UNLCK);
        return false;
    }
    io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_open_for_writing_until_the_last_writer_closes_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("list");
        let writer = File::create(&path).unwrap();
        let other = writer.try_clone().unwrap();
        let reader = File::open(&path).unwrap();
        assert!(is_open_for_writing(&reader));
        drop(writer);
        assert!(is_open_for_writing(&reader), "a copy of the descriptor is open");
        drop(other);
        // A process that another test starts has the descriptor for a moment, too.
        assert!((0..1_000_000).any(|_| !is_open_for_writing(&reader)));
        // A lease that was left behind would keep this waiting.
        drop(File::options().append(true).open(&path).unwrap());
    }
}
