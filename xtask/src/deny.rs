//! `cargo xtask deny`: licences, bans and sources of all dependencies, checked by cargo-deny after `deny.toml`.
//!
//! cargo-deny has to be built first, so this is a step of `cargo xtask soak` and not of `cargo xtask test`.

use std::path::Path;

use anyhow::Result;

use crate::run::Program;
use crate::tools::Tool;

const DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2" };

pub(crate) fn deny() -> Result<()> {
    check(&DENY.binary()?).run()
}

/// Not the advisories: they need a database from the network, and fail without any change of ours.
fn check(binary: &Path) -> Program {
    let binary = binary.display().to_string();
    Program::new(&binary, &["--locked", "check", "licenses", "bans", "sources"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_but_advisories_is_checked() {
        let typed = "/t/tools/x/bin/cargo-deny --locked check licenses bans sources";
        assert_eq!(check(&DENY.installed_at(Path::new("/t/tools/x"))).to_string(), typed);
    }
}
