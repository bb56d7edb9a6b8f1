//! The key of a kernel knob: which path under `/proc/sys` it names.

/// Why a knob's key is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// Nothing, or nothing between two separators, or a separator at an end.
    #[error("the key `{0}` has an empty part")]
    EmptyPart(String),
    /// A part that would leave the directory.
    #[error("the key `{0}` leaves its directory")]
    Traversal(String),
    /// A blank, a NUL byte, a newline or another control character.
    #[error("the key `{0}` has a blank or a control character in it")]
    Control(String),
    /// One part only: that is a directory, never a knob.
    #[error("the key `{0}` names a directory, not a knob")]
    NoSeparator(String),
    /// A link's knob that is not `FAMILY/KEY`.
    #[error("the key `{0}` is not a knob of a link")]
    NotOfLink(String),
}

/// The parts of the path that a key names. The first separator decides: if it is `/`, the key is
/// the path itself; if it is `.`, dots separate and slashes stand for dots.
///
/// ```
/// let path = homeostat_document::knob_path("net.ipv4.conf.enp3s0/200.forwarding")?;
/// assert_eq!(path.join("/"), "net/ipv4/conf/enp3s0.200/forwarding");
/// # Ok::<(), homeostat_document::KeyError>(())
/// ```
pub fn knob_path(key: &str) -> Result<Vec<String>, KeyError> {
    let parts: Vec<String> = match key.chars().find(|c| matches!(c, '.' | '/')) {
        None if key.is_empty() => return Err(KeyError::EmptyPart(String::new())),
        None => return Err(KeyError::NoSeparator(key.to_owned())),
        Some('/') => key.split('/').map(str::to_owned).collect(),
        Some(_) => key.split('.').map(|part| part.replace('/', ".")).collect(),
    };
    // No file below the root has a blank in its name, and no interface either.
    if key.contains(char::is_whitespace) {
        return Err(KeyError::Control(key.to_owned()));
    }
    check_parts(key, &parts).map(|()| parts)
}

/// The path that a link's own key names: `ipv4/rp_filter` of `eth0` is
/// `net/ipv4/conf/eth0/rp_filter`, and `ipv4/neigh/gc_stale_time` is
/// `net/ipv4/neigh/eth0/gc_stale_time`.
pub fn link_knob_path(link: &str, key: &str) -> Result<Vec<String>, KeyError> {
    let parts = knob_path(key).map_err(|error| match error {
        KeyError::NoSeparator(key) => KeyError::NotOfLink(key),
        other => other,
    })?;
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let path = match parts.as_slice() {
        [family @ ("ipv4" | "ipv6"), group @ ("conf" | "neigh"), knob] => {
            ["net", family, group, link, knob]
        }
        [family @ ("ipv4" | "ipv6" | "mpls"), knob] => ["net", family, "conf", link, knob],
        _ => return Err(KeyError::NotOfLink(key.to_owned())),
    };
    Ok(path.map(str::to_owned).to_vec())
}

/// Refuses parts that do not name one file or directory below the root.
pub(crate) fn check_parts(key: &str, parts: &[String]) -> Result<(), KeyError> {
    if key.contains(char::is_control) {
        return Err(KeyError::Control(key.to_owned()));
    }
    if parts.iter().any(String::is_empty) {
        return Err(KeyError::EmptyPart(key.to_owned()));
    }
    if parts.iter().any(|part| part == "." || part == "..") {
        return Err(KeyError::Traversal(key.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_separator_decides() {
        for (key, path) in [
            ("net.ipv4.ip_forward", "net/ipv4/ip_forward"),
            ("net/ipv4/ip_forward", "net/ipv4/ip_forward"),
            ("net.ipv4.conf.enp3s0/200.forwarding", "net/ipv4/conf/enp3s0.200/forwarding"),
            ("net/ipv4/conf/enp3s0.200/forwarding", "net/ipv4/conf/enp3s0.200/forwarding"),
            ("kernel.hostname", "kernel/hostname"),
            ("net/a.b", "net/a.b"),
        ] {
            assert_eq!(knob_path(key).unwrap().join("/"), path, "{key}");
        }
    }

    #[test]
    fn keys_that_name_no_knob_are_refused() {
        let refused = |key: &str| knob_path(key).unwrap_err();
        for key in ["", ".", "/", "net.", ".net", "/net/ipv4", "net/ipv4/", "net..x", "net//x"] {
            assert_eq!(refused(key), KeyError::EmptyPart(key.to_owned()));
        }
        for key in ["net/../kernel/hostname", "net/./x", "net.//.x", "net./.x"] {
            assert_eq!(refused(key), KeyError::Traversal(key.to_owned()));
        }
        for key in ["net.ipv4\0.x", "net.ipv4\n.x", "net/\u{7f}", "net.ipv4.a b", "net.\u{a0}.x"] {
            assert_eq!(refused(key), KeyError::Control(key.to_owned()));
        }
        assert_eq!(refused("net"), KeyError::NoSeparator("net".to_owned()));
    }

    #[test]
    fn a_key_of_a_link_goes_below_the_link() {
        let path = |key: &str| link_knob_path("a.b", key).map(|path| path.join("/"));
        assert_eq!(path("ipv4/rp_filter").unwrap(), "net/ipv4/conf/a.b/rp_filter");
        assert_eq!(path("ipv6.disable_ipv6").unwrap(), "net/ipv6/conf/a.b/disable_ipv6");
        assert_eq!(path("ipv4/conf/rp_filter").unwrap(), "net/ipv4/conf/a.b/rp_filter");
        assert_eq!(path("ipv4/neigh/app_solicit").unwrap(), "net/ipv4/neigh/a.b/app_solicit");
        for key in ["rp_filter", "net/ipv4/x", "ipv4/conf/eth0/rp_filter", "core/x", "../x/y"] {
            assert!(path(key).is_err(), "{key}");
        }
    }
}
