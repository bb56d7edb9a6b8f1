//! `cargo xtask screenshots`: pictures of the page, made by its own tests.

use anyhow::Result;

use crate::run::{Program, root};
use crate::setup;

/// Where they are kept.
const IMAGES: &str = "docs/images";

/// The tests that make them.
const TESTS: &str = "page::";

pub(crate) fn screenshots() -> Result<()> {
    setup::setup()?;
    let images = root().join(IMAGES);
    std::fs::create_dir_all(&images)?;
    let tests = ["test", "-p", "homeostat", "--test", "e2e", "--", TESTS];
    Program::cargo(&tests).env("HOMEOSTAT_SCREENSHOTS", images.display().to_string()).run()
}
