//! The key of a module: its name, as the kernel writes it.

use std::fmt;
use std::str::FromStr;

/// The name of a module. The kernel writes `_` where the file may have `-`: both name the same module.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModuleName(String);

/// A text that no module has as its name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the name of a module")]
pub struct NameError(pub String);

/// One module; as text, `module br_netfilter`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub ModuleName);

/// A text that is no key of this source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not `module` and the name of one")]
pub struct KeyError(pub String);

impl NameError {
    /// The way out.
    #[must_use]
    pub fn help(&self) -> &'static str {
        if self.0.contains(['/', '.']) {
            "write the name alone, without a path and without `.ko`, such as \"8021q\""
        } else if self.0.contains([' ', '=']) {
            "options of modules are in /etc/modprobe.d; write the name alone, such as \"8021q\""
        } else {
            "write it as `modinfo` shows it, such as \"8021q\" or \"br_netfilter\""
        }
    }
}

impl ModuleName {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ModuleName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        // The kernel's own limit is that of `MODULE_NAME_LEN`.
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        let is_name = (1..56).contains(&text.len()) && text.bytes().all(is_letter);
        if !is_name || text.starts_with('-') {
            return Err(NameError(text.to_owned()));
        }
        Ok(ModuleName(text.replace('-', "_")))
    }
}

impl fmt::Display for ModuleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "module {}", self.0)
    }
}

impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let name = text.strip_prefix("module ").and_then(|name| name.parse().ok());
        name.map(Key).ok_or_else(|| KeyError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_reads_back_equal() {
        for text in ["module 8021q", "module br_netfilter"] {
            assert_eq!(text.parse::<Key>().unwrap().to_string(), text);
        }
        for text in ["", "module", "module ", "8021q", "module a b"] {
            assert_eq!(text.parse::<Key>(), Err(KeyError(text.to_owned())));
        }
    }

    #[test]
    fn a_dash_and_an_underscore_are_the_same() {
        let name = |text: &str| text.parse::<ModuleName>();
        assert_eq!(name("nf-conntrack"), name("nf_conntrack"));
        for (text, help) in [
            ("", "modinfo"),
            ("-r", "modinfo"),
            ("8021q.ko", "without"),
            ("/lib/modules/x.ko", "without"),
            ("loop max_loop=8", "modprobe.d"),
        ] {
            let error = name(text).unwrap_err();
            assert!(error.help().contains(help), "{text}: {}", error.help());
        }
    }
}
