//! Configuration files as Debian packages shipped them: such a file was never edited, so it is taken over without consent.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use md5::{Digest as _, Md5};

use crate::digest::hex;

/// MD5 sums of conffiles by path, as dpkg recorded them.
#[derive(Debug, Default)]
pub(crate) struct Conffiles(HashMap<String, String>);

impl Conffiles {
    /// Without dpkg there are none.
    pub(crate) fn read(root: &Path) -> Self {
        let status = fs::read_to_string(root.join("var/lib/dpkg/status")).unwrap_or_default();
        Self::parse(&status)
    }

    fn parse(status: &str) -> Self {
        let (mut all, mut inside) = (HashMap::new(), false);
        for line in status.lines() {
            match line.strip_prefix(' ') {
                Some(entry) if inside => {
                    // A path may hold spaces; the sum and words such as `obsolete` hold none.
                    let mut words = entry.rsplit(' ');
                    let sum = words.find(|word| word.len() == 32);
                    if let Some(sum) = sum
                        && let Some(path) = entry.split(&format!(" {sum}")).next()
                    {
                        all.insert(path.to_owned(), sum.to_owned());
                    }
                }
                _ => inside = line == "Conffiles:",
            }
        }
        Conffiles(all)
    }

    /// Whether a file has the content that its package shipped.
    pub(crate) fn is_as_shipped(&self, path: &str, content: &[u8]) -> bool {
        self.0.get(path).is_some_and(|sum| *sum == hex(&Md5::digest(content)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conffile_is_known_by_its_sum() {
        let status = "Package: a\nStatus: install ok installed\nConffiles:\n \
            /etc/a.conf b1946ac92492d2347c6235b4d2611184\n \
            /etc/old b1946ac92492d2347c6235b4d2611184 obsolete\nDescription: x\n \
            /etc/no b1946ac92492d2347c6235b4d2611184\n";
        let conffiles = Conffiles::parse(status);
        for (path, content, expected) in [
            ("/etc/a.conf", "hello\n", true),
            ("/etc/a.conf", "hello", false),
            ("/etc/old", "hello\n", true),
            ("/etc/no", "hello\n", false),
        ] {
            assert_eq!(conffiles.is_as_shipped(path, content.as_bytes()), expected, "{path}");
        }
    }
}
