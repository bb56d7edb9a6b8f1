//! Which kernel runs, for what it does not say in its answers.

/// Whether the running kernel is older than this version.
pub(crate) fn is_before(version: (u32, u32)) -> bool {
    is_release_before(&rustix::system::uname().release().to_string_lossy(), version)
}

/// A release that cannot be read is a recent one.
pub(crate) fn is_release_before(release: &str, version: (u32, u32)) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next()?.parse::<u32>().ok();
    match (number(), number()) {
        (Some(major), Some(minor)) => (major, minor) < version,
        _ => false,
    }
}
