//! Where an address carries the mark that it is ours.

/// Where an address carries the mark that it is ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressMarks {
    /// In the kernel.
    #[default]
    Kernel,
    /// In the kernel, which never changes that of an IPv4 address.
    Fixed,
    /// In the ledger, since the kernel keeps none.
    Ledger,
}

impl AddressMarks {
    /// Quirk `no-address-mark` (before Linux 5.18): the kernel has no `IFA_PROTO`; it ignores what is
    /// sent and never sends it.
    ///
    /// Quirk `v4-mark-for-good` (Linux 5.18 to 6.2): `ip address replace` with another protocol succeeds
    /// and leaves that of an IPv4 address as it was, so that one is taken over by being made anew.
    pub(crate) fn of_this_kernel() -> Self {
        Self::of_release(&rustix::system::uname().release().to_string_lossy())
    }

    /// A release that cannot be read is a recent one.
    fn of_release(release: &str) -> Self {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit());
        let mut number = || numbers.next()?.parse::<u32>().ok();
        match (number(), number()) {
            (Some(major), Some(minor)) if (major, minor) < (5, 18) => AddressMarks::Ledger,
            (Some(major), Some(minor)) if (major, minor) < (6, 3) => AddressMarks::Fixed,
            _ => AddressMarks::Kernel,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_kernels_keep_no_mark_on_addresses_or_the_first_one() {
        for (release, marks) in [
            ("5.17.0-1-amd64", AddressMarks::Ledger),
            ("4.19.0", AddressMarks::Ledger),
            ("5.18-rc1", AddressMarks::Fixed),
            ("5.18.0", AddressMarks::Fixed),
            ("6.1.0-44-amd64", AddressMarks::Fixed),
            ("6.3.0", AddressMarks::Kernel),
            ("6.18.44", AddressMarks::Kernel),
            ("", AddressMarks::Kernel),
            ("odd", AddressMarks::Kernel),
        ] {
            assert_eq!(AddressMarks::of_release(release), marks, "{release}");
        }
    }
}
