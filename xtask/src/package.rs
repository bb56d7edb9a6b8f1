//! `cargo xtask package`: the library crates as a registry would get them.
//!
//! No registry is asked: the packages of all members are made without a lock file, which would name versions that are
//! not published yet. To verify them they are unpacked, and a program is built on each alone: in the workspace a crate may
//! live on features that other members switch on.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::console;
use crate::run::{Program, metadata, root, target_directory};

/// What a registry and its readers need of a manifest.
const FIELDS: [&str; 8] = [
    "description",
    "license",
    "documentation",
    "readme",
    "keywords",
    "categories",
    "rust_version",
    "authors",
];

/// The addresses that a manifest may have.
const ADDRESSES: [&str; 3] = ["documentation", "homepage", "repository"];

/// Top-level domains that lead nowhere.
const RESERVED: [&str; 4] = [".example", ".invalid", ".localhost", ".test"];

/// What every package has beside its sources.
const FILES: [&str; 4] = ["Cargo.toml", "README.md", "LICENSE-APACHE", "LICENSE-MIT"];

/// A member that may be published.
struct Crate {
    name: String,
    version: String,
    manifest: Value,
    directory: PathBuf,
}

impl Crate {
    /// Nothing for a member that is not published.
    fn of(manifest: &Value) -> Option<Self> {
        let is_private = manifest["publish"].as_array().is_some_and(Vec::is_empty);
        let path = Path::new(manifest["manifest_path"].as_str()?);
        (!is_private).then_some(Crate {
            name: manifest["name"].as_str()?.to_owned(),
            version: manifest["version"].as_str()?.to_owned(),
            directory: path.parent()?.to_owned(),
            manifest: manifest.clone(),
        })
    }

    fn stem(&self) -> String {
        format!("{}-{}", self.name, self.version)
    }

    fn features(&self) -> Vec<&String> {
        self.manifest["features"].as_object().into_iter().flat_map(|all| all.keys()).collect()
    }
}

/// Packs and checks all crates; builds them too, if asked to.
pub(crate) fn package(verify: bool) -> Result<()> {
    let metadata = metadata()?;
    let members = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    let crates: Vec<Crate> = members.iter().filter_map(Crate::of).collect();
    let names: Vec<&str> = crates.iter().map(|one| one.name.as_str()).collect();
    pack(&names).run()?;
    let packages = target_directory()?.join("package");
    let mut problems = Vec::new();
    for one in &crates {
        let archive = packages.join(format!("{}.crate", one.stem()));
        let archive = archive.to_str().context("the target directory is no text")?;
        let files = Program::new("tar", &["-tzf", archive]).read()?;
        let page = fs::read_to_string(one.directory.join("src/lib.rs")).unwrap_or_default();
        let manifest = [lacking(&one.manifest), unreachable(&one.manifest)].concat();
        let found = [manifest, absent(&files, &one.stem()), paths(&page)].concat();
        problems.extend(found.into_iter().map(|problem| format!("{}: {problem}", one.name)));
    }
    for problem in &problems {
        console::note(&format!("error: {problem}"));
    }
    if !problems.is_empty() {
        bail!("the crates cannot be published as they are: {} problem(s)", problems.len());
    }
    if verify {
        build(&crates, &packages)?;
    }
    Ok(())
}

/// Dependencies are looked up nowhere: most of them are members, which no registry has yet.
fn pack(names: &[&str]) -> Program {
    let options = ["package", "--quiet", "--no-verify", "--offline", "--exclude-lockfile"];
    let names = names.iter().flat_map(|name| ["--package", name]);
    Program::cargo(&options.into_iter().chain(["--allow-dirty"]).chain(names).collect::<Vec<_>>())
}

/// The fields that a manifest lacks.
fn lacking(manifest: &Value) -> Vec<String> {
    let is_empty = |value: &Value| match value {
        Value::String(text) => text.trim().is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => true,
    };
    let empty = FIELDS.iter().filter(|field| is_empty(&manifest[**field]));
    empty.map(|field| format!("the manifest has no `{field}`")).collect()
}

/// The addresses of a manifest that nobody can open.
fn unreachable(manifest: &Value) -> Vec<String> {
    let is_reserved = |address: &str| {
        let host = address.split("://").last().unwrap_or_default();
        let host = host.split(['/', ':', '?', '#']).next().unwrap_or_default();
        RESERVED.iter().any(|domain| host.ends_with(domain))
    };
    let named = ADDRESSES.iter().filter_map(|field| Some((field, manifest[*field].as_str()?)));
    let reserved = named.filter(|(_, address)| is_reserved(address));
    reserved.map(|(field, address)| format!("nobody can open the `{field}` {address}")).collect()
}

/// The files that an archive lacks.
fn absent(listed: &str, stem: &str) -> Vec<String> {
    let listed: BTreeSet<&str> = listed.lines().collect();
    let absent = FILES.iter().filter(|file| !listed.contains(format!("{stem}/{file}").as_str()));
    absent.map(|file| format!("the package has no `{file}`")).collect()
}

/// The files of the repository that a front page names: its reader has none of them.
fn paths(page: &str) -> Vec<String> {
    let lines = page.lines().map_while(|line| line.strip_prefix("//!"));
    let words = lines.flat_map(|line| line.split([' ', '`', '(', ')', '[', ']', ',', '"']));
    let is_path = |word: &&str| {
        let is_file = Path::new(word).extension().is_some_and(|one| one == "rs" || one == "md");
        let is_folder = ["docs/", "crates/", "examples/", "src/", "tests/"];
        !word.contains("://") && (is_file || is_folder.iter().any(|it| word.starts_with(it)))
    };
    words.filter(is_path).map(|word| format!("the front page names the file `{word}`")).collect()
}

/// Builds each package as the dependency of a program outside of the workspace.
fn build(crates: &[Crate], packages: &Path) -> Result<()> {
    let user = packages.join("user");
    fs::create_dir_all(user.join("src")).context("cannot make a program")?;
    fs::write(user.join("src/main.rs"), "fn main() {}\n").context("cannot write its source")?;
    for one in crates {
        let archive = format!("../{}.crate", one.stem());
        Program::new("tar", &["-xzf", &archive]).within(&user).run()?;
    }
    for one in crates {
        let mut choices = vec![Vec::new(), one.features()];
        choices.dedup();
        for features in choices {
            console::note(&format!("{} with {features:?}", one.name));
            let manifest = manifest(one, &features, crates);
            fs::write(user.join("Cargo.toml"), manifest).context("cannot write its manifest")?;
            // The versions of the workspace, which are there; what is not used is dropped.
            fs::copy(root().join("Cargo.lock"), user.join("Cargo.lock"))
                .context("cannot lock it")?;
            Program::cargo(&["check", "--quiet", "--offline"]).within(&user).run()?;
        }
    }
    Ok(())
}

/// A program that depends on one crate, with these features.
fn manifest(one: &Crate, features: &[&String], crates: &[Crate]) -> String {
    let Crate { name, version, .. } = one;
    let mut text = format!(
        "[package]\nname = \"user\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies.{name}]\n\
         version = \"={version}\"\ndefault-features = false\nfeatures = {features:?}\n\n\
         [patch.crates-io]\n"
    );
    for one in crates {
        let _ = writeln!(text, "{} = {{ path = \"{}\" }}", one.name, one.stem());
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn whole() -> Value {
        json!({
            "name": "lamps", "version": "1.2.3", "manifest_path": "/x/lamps/Cargo.toml", "publish": null,
            "description": "Lamps", "license": "MIT", "documentation": "https://docs.rs/lamps", "readme": "README.md",
            "keywords": ["lamp"], "categories": ["config"], "rust_version": "1.95", "authors": ["us"],
            "features": { "default": [], "dim": [] },
        })
    }

    #[test]
    fn a_member_that_is_not_published_is_left_out() {
        let mut private = whole();
        private["publish"] = json!([]);
        assert!(Crate::of(&private).is_none());
        assert_eq!(Crate::of(&whole()).unwrap().stem(), "lamps-1.2.3");
    }

    #[test]
    fn a_manifest_that_lacks_something_is_found() {
        assert!(lacking(&whole()).is_empty());
        for field in FIELDS {
            let mut manifest = whole();
            manifest[field] = json!(null);
            assert_eq!(lacking(&manifest), [format!("the manifest has no `{field}`")]);
        }
    }

    #[test]
    fn an_address_that_leads_nowhere_is_found() {
        assert!(unreachable(&whole()).is_empty());
        for (field, address) in [
            ("repository", "https://lamps.example/repository"),
            ("homepage", "http://lamps.invalid:80"),
        ] {
            let mut manifest = whole();
            manifest[field] = json!(address);
            let problem = format!("nobody can open the `{field}` {address}");
            assert_eq!(unreachable(&manifest), [problem]);
        }
        let mut manifest = whole();
        manifest["repository"] = json!("https://git.lamps.org/lamps.example");
        assert!(unreachable(&manifest).is_empty());
    }

    #[test]
    fn an_archive_that_lacks_something_is_found() {
        let all = FILES.map(|file| format!("lamps-1.2.3/{file}\n")).concat();
        assert!(absent(&all, "lamps-1.2.3").is_empty());
        let problems = absent("lamps-1.2.3/src/README.md\n", "lamps-1.2.3");
        assert!(problems.contains(&"the package has no `README.md`".to_owned()), "{problems:?}");
    }

    #[test]
    fn a_front_page_that_names_files_is_found() {
        let page = "//! See `docs/lamps.md`, [here](examples/x), (`dim.rs`), https://docs.rs/lamps,\n\
                    //! `a/b` and e.g. this.\n\nmod dim; // docs/lamps.md\n";
        let found = ["docs/lamps.md", "examples/x", "dim.rs"];
        assert_eq!(paths(page), found.map(|it| format!("the front page names the file `{it}`")));
    }

    #[test]
    fn all_crates_are_packed_together_and_each_is_built_alone() {
        let typed = "cargo package --quiet --no-verify --offline --exclude-lockfile --allow-dirty \
                     --package a --package b";
        assert_eq!(pack(&["a", "b"]).to_string(), typed);
        let lamps = [Crate::of(&whole()).unwrap()];
        let text = manifest(&lamps[0], &lamps[0].features(), &lamps);
        for part in [
            "[dependencies.lamps]\nversion = \"=1.2.3\"\ndefault-features = false\n",
            "features = [\"default\", \"dim\"]\n",
            "[patch.crates-io]\nlamps = { path = \"lamps-1.2.3\" }\n",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}
