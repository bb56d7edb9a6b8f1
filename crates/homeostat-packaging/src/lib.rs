//! Builds the Debian package: the files that the manifest of the program lists, the scripts of `packaging/debian`, and
//! what the program itself prints (manual, completions, schema), packed by `dpkg-deb`.
//!
//! The list has the form of cargo-deb, so that one list serves both. Start at [`Recipe::build`].

mod program;
mod stage;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::program::Program;
use crate::stage::Stage;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("cannot start `{program}`")]
    Start {
        program: String,
        #[source]
        source: io::Error,
    },
    #[error("`{program}` failed: {text}")]
    Failed { program: String, text: String },
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("the manifest of the program has no {0} for its package")]
    Manifest(&'static str),
    #[error("the package lists `{0}`, and there is no such file")]
    NoFile(String),
}

impl Error {
    fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Error::File { path, source }
    }
}

/// How much time is spent on a small package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// For packages that are published.
    Best,
    /// For tests.
    Fast,
}

/// What a package is made of.
#[derive(Debug)]
pub struct Recipe {
    root: PathBuf,
    /// `package.metadata.deb` of the program.
    deb: Value,
    summary: String,
    /// Of the newest entry of the package's changelog.
    version: String,
    /// The time of that entry: all times in the package.
    epoch: String,
}

/// One line of the list.
#[derive(Debug, PartialEq, Eq)]
struct Asset<'a> {
    from: &'a str,
    /// A directory if it ends with a slash.
    to: &'a str,
    mode: u32,
}

impl<'a> Asset<'a> {
    fn read(line: &'a Value) -> Option<Self> {
        let [from, to, mode] = line.as_array()?.as_slice() else { return None };
        let mode = u32::from_str_radix(mode.as_str()?, 8).ok()?;
        Some(Asset { from: from.as_str()?, to: to.as_str()?, mode })
    }
}

/// Where the list says that the program is.
const BINARY: &str = "target/release/homeostat";
/// Where the list says that the files are that are generated.
const GENERATED: &str = "../../target/deb/generated/";
const MANIFEST: &str = "crates/homeostat";
const CHANGELOG: &str = "packaging/debian/changelog";

impl Recipe {
    /// Reads the manifest of the program in the workspace at `root`.
    pub fn read(root: &Path) -> Result<Self, Error> {
        let arguments = ["metadata", "--format-version=1", "--no-deps", "--offline"];
        let text = Program::new("cargo", &arguments).within(root).read()?;
        let metadata: Value = serde_json::from_str(&text).unwrap_or_default();
        let packages = metadata["packages"].as_array().into_iter().flatten();
        let package = packages.into_iter().find(|package| package["name"] == "homeostat");
        let package = package.ok_or(Error::Manifest("entry"))?;
        let changelog = |field| {
            let arguments = ["--file", CHANGELOG, "--show-field", field];
            let text = Program::new("dpkg-parsechangelog", &arguments).within(root).read()?;
            Ok::<_, Error>(text.trim().to_owned())
        };
        Ok(Recipe {
            root: root.to_owned(),
            deb: package["metadata"]["deb"].clone(),
            summary: package["description"].as_str().unwrap_or_default().to_owned(),
            version: changelog("Version")?,
            epoch: changelog("Timestamp")?,
        })
    }

    /// The version of the package.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The same with another version.
    #[must_use]
    pub fn with_version(mut self, version: &str) -> Self {
        version.clone_into(&mut self.version);
        self
    }

    /// Lets the program write what the list has of it, below `directory`.
    pub fn generate(&self, binary: &Path, directory: &Path) -> Result<(), Error> {
        let [man, completions] = ["man", "completions"].map(|name| directory.join(name));
        for directory in [&man, &completions] {
            fs::create_dir_all(directory).map_err(Error::file(directory))?;
        }
        let name = binary.display().to_string();
        let run = |words: &[&str]| Program::new(&name, words).read();
        run(&["man", "--out", &man.display().to_string()])?;
        let write =
            |path: PathBuf, text: String| fs::write(&path, text).map_err(Error::file(&path));
        for (shell, file) in
            [("bash", "homeostat"), ("zsh", "_homeostat"), ("fish", "homeostat.fish")]
        {
            write(completions.join(file), run(&["completions", shell])?)?;
        }
        write(directory.join("schema.json"), run(&["schema"])?)
    }

    /// Packs this program; returns the path of the package, which is in `out`.
    pub fn build(
        &self,
        binary: &Path,
        out: &Path,
        compression: Compression,
    ) -> Result<PathBuf, Error> {
        let generated = out.join("generated");
        self.generate(binary, &generated)?;
        let stage = Stage::new(out.join("stage"))?;
        for asset in self.assets()? {
            let to_directory = asset.to.ends_with('/');
            for source in self.sources(asset.from, binary, &generated)? {
                let name = source.file_name().unwrap_or_default();
                let to =
                    if to_directory { Path::new(asset.to).join(name) } else { asset.to.into() };
                stage.add(&source, &to, asset.mode)?;
            }
        }
        let to = "usr/share/doc/homeostat/changelog.Debian";
        stage.add(&self.root.join(CHANGELOG), Path::new(to), 0o644)?;
        let architecture = Program::new("dpkg", &["--print-architecture"]).read()?;
        let architecture = architecture.trim();
        stage.add_sums()?;
        for script in ["postinst", "prerm", "postrm"] {
            let from = self.root.join("packaging/debian").join(script);
            stage.add(&from, &Path::new("DEBIAN").join(script), 0o755)?;
        }
        let depends = self.dependencies(binary, out)?;
        stage.write_control(&self.control(architecture, &depends, stage.size()?)?)?;
        stage
            .set_times(self.epoch.parse().map_err(|_| Error::Manifest("time in its changelog"))?)?;
        let package = out.join(format!("homeostat_{}_{architecture}.deb", self.version));
        let options: &[&str] = match compression {
            Compression::Best => &["-Zxz", "-z9"],
            Compression::Fast => &["-Zgzip", "-z1"],
        };
        let places = [stage.path().display().to_string(), package.display().to_string()];
        let arguments = options.iter().copied().chain(["--root-owner-group", "--build"]);
        let arguments: Vec<&str> = arguments.chain(places.iter().map(String::as_str)).collect();
        Program::new("dpkg-deb", &arguments).env("SOURCE_DATE_EPOCH", &self.epoch).read()?;
        Ok(package)
    }

    fn assets(&self) -> Result<Vec<Asset<'_>>, Error> {
        let list = self.deb["assets"].as_array().ok_or(Error::Manifest("list of files"))?;
        let read = |one| Asset::read(one).ok_or(Error::Manifest("good list of files"));
        list.iter().map(read).collect()
    }

    /// The files that a path of the list means; `*` in the last part stands for any text.
    fn sources(&self, from: &str, binary: &Path, generated: &Path) -> Result<Vec<PathBuf>, Error> {
        if from == BINARY {
            return Ok(vec![binary.to_owned()]);
        }
        let path = match from.strip_prefix(GENERATED) {
            Some(rest) => generated.join(rest),
            None => self.root.join(MANIFEST).join(from),
        };
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Error::NoFile(from.to_owned()));
        };
        let name = name.to_string_lossy();
        let Some((start, end)) = name.split_once('*') else { return Ok(vec![path]) };
        let mut found = Vec::new();
        for entry in fs::read_dir(directory).map_err(Error::file(directory))? {
            let entry = entry.map_err(Error::file(directory))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(start) && name.ends_with(end) && entry.path().is_file() {
                found.push(entry.path());
            }
        }
        found.sort();
        if found.is_empty() { Err(Error::NoFile(from.to_owned())) } else { Ok(found) }
    }

    /// The libraries that the program needs, as Debian calls them.
    fn dependencies(&self, binary: &Path, out: &Path) -> Result<String, Error> {
        let place = out.join("shlibdeps");
        let control = place.join("debian/control");
        fs::create_dir_all(place.join("debian")).map_err(Error::file(&place))?;
        let text = "Source: homeostat\n\nPackage: homeostat\nArchitecture: any\n";
        fs::write(&control, text).map_err(Error::file(&control))?;
        let binary = fs::canonicalize(binary).map_err(Error::file(binary))?;
        let arguments = ["-O", "-e", &binary.display().to_string()];
        let found = Program::new("dpkg-shlibdeps", &arguments).within(&place).read()?;
        let found = found.trim().strip_prefix("shlibs:Depends=").unwrap_or_default();
        let depends = self.deb["depends"].as_str().ok_or(Error::Manifest("`depends`"))?;
        Ok(depends.replace("$auto", found))
    }

    fn control(&self, architecture: &str, depends: &str, size: u64) -> Result<String, Error> {
        let field = |name: &'static str| self.deb[name].as_str().ok_or(Error::Manifest(name));
        let description = field("extended-description")?.trim().replace("\n\n", "\n.\n");
        let description = description.replace('\n', "\n ");
        Ok(format!(
            "Package: homeostat\nVersion: {}\nArchitecture: {architecture}\nMaintainer: {}\n\
             Installed-Size: {}\nDepends: {depends}\nRecommends: {}\nSection: {}\nPriority: {}\n\
             Description: {}\n {description}\n",
            self.version,
            field("maintainer")?,
            size.div_ceil(1024),
            field("recommends")?,
            field("section")?,
            field("priority")?,
            self.summary,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe(list: &str) -> Recipe {
        let text = format!(
            r#"{{"assets": {list}, "maintainer": "M <m@m.example>", "recommends": "r",
            "section": "net", "priority": "optional", "extended-description": "a"}}"#
        );
        Recipe {
            root: PathBuf::from("/root-of-sources"),
            deb: serde_json::from_str(&text).unwrap(),
            summary: "keeps".to_owned(),
            version: "1-1".to_owned(),
            epoch: "0".to_owned(),
        }
    }

    #[test]
    fn the_program_and_what_it_prints_are_found_where_they_are() {
        let recipe = recipe("[]");
        let sources =
            |from| recipe.sources(from, Path::new("/b/homeostat"), Path::new("/g")).unwrap();
        assert_eq!(sources("target/release/homeostat"), [PathBuf::from("/b/homeostat")]);
        assert_eq!(sources("../../target/deb/generated/x"), [PathBuf::from("/g/x")]);
        let expected = PathBuf::from("/root-of-sources/crates/homeostat/../../README.md");
        assert_eq!(sources("../../README.md"), [expected]);
    }

    #[test]
    fn a_star_stands_for_any_text_and_for_something() {
        let place = tempfile::tempdir().unwrap();
        for name in ["a.1", "b.1", "c.5"] {
            fs::write(place.path().join(name), "").unwrap();
        }
        let recipe = recipe("[]");
        let sources =
            |from| recipe.sources(from, Path::new("/b"), place.path()).map(|found| found.len());
        assert_eq!(sources("../../target/deb/generated/*.1").unwrap(), 2);
        let error = sources("../../target/deb/generated/*.9").unwrap_err().to_string();
        assert!(error.starts_with("the package lists `") && error.contains("*.9"), "{error}");
    }

    #[test]
    fn a_line_of_the_list_that_is_not_understood_is_an_error() {
        let good = recipe(r#"[["a", "usr/bin/", "755"]]"#);
        let expected = Asset { from: "a", to: "usr/bin/", mode: 0o755 };
        assert_eq!(good.assets().unwrap(), [expected]);
        for bad in [r#"[["a", "b"]]"#, r#"[["a", "b", "rwx"]]"#, r#"["a"]"#, "7"] {
            assert!(recipe(bad).assets().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_control_file_has_what_the_manifest_says() {
        let control = recipe("[]").control("amd64", "libc6", 2049).unwrap();
        for line in ["Version: 1-1", "Installed-Size: 3", "Depends: libc6", "Description: keeps"] {
            assert!(control.lines().any(|one| one == line), "{line}\n{control}");
        }
    }
}
