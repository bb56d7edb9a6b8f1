//! Names of users and groups, as `/etc/passwd` and `/etc/group` have them.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use crate::model::Account;

/// The accounts of a machine at one moment.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    pub(crate) users: Names,
    pub(crate) groups: Names,
}

#[derive(Debug, Default)]
pub(crate) struct Names(HashMap<String, u32>);

impl Accounts {
    /// A file that cannot be read names nobody.
    pub(crate) fn read(root: &Path) -> Self {
        let names = |file: &str| {
            let text = fs::read_to_string(root.join("etc").join(file)).unwrap_or_default();
            let entries = text.lines().filter_map(|line| {
                let mut parts = line.split(':');
                let name = parts.next()?;
                Some((name.to_owned(), parts.nth(1)?.parse().ok()?))
            });
            Names(entries.collect())
        };
        Accounts { users: names("passwd"), groups: names("group") }
    }
}

impl Names {
    /// The account with a number.
    pub(crate) fn of(&self, id: u32) -> Account {
        // Several names may have one number: the first by the alphabet, so that a look is like the last one.
        let names = self.0.iter().filter(|(_, number)| **number == id).map(|(name, _)| name);
        Account { id: Some(id), name: names.min().cloned() }
    }

    /// The number of a declared account; nothing, if there is no such account.
    pub(crate) fn number(&self, declared: &Account) -> Option<u32> {
        declared.id.or_else(|| self.0.get(declared.name.as_ref()?).copied())
    }

    /// A declared account that agrees with another name of the same number is that one.
    pub(crate) fn seen(&self, id: u32, declared: Option<&Account>) -> Account {
        match declared {
            Some(Account { name: Some(name), .. }) if self.0.get(name) == Some(&id) => {
                Account { id: Some(id), name: Some(name.clone()) }
            }
            _ => self.of(id),
        }
    }
}
