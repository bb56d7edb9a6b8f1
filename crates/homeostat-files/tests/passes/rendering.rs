//! Sets that are made of inputs: which values are in force, and what stands while others are refused.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use homeostat_files::{Attributes, Check, DesiredState, FilePart, Network, ProgramOf, Recipe};
use homeostat_render::{Content, FileSet, InputSpec, Origin, Secrecy, Value};
use homeostat_testkit::script::write_script;

use crate::bench::{Bench, report_lines};

/// A set of one file below the directory of the bench.
pub(crate) fn made_of(
    path: &Path,
    text: &str,
    inputs: &[(&str, &Path)],
    program: Option<&str>,
) -> DesiredState {
    let template = Content::Text { name: "text".to_owned(), text: text.to_owned() };
    let mut templates = FileSet::builder("/").file(path, template, Secrecy::Public);
    for (name, _) in inputs {
        templates = templates.input(*name, Secrecy::Public);
    }
    let part = FilePart { attributes: Attributes::default(), secret: false, adopt: false };
    let specs = inputs
        .iter()
        .map(|(name, file)| ((*name).to_owned(), InputSpec::new(Origin::File((*file).to_owned()))));
    DesiredState::made_of(Arc::new(Recipe {
        files: BTreeMap::from([(path.to_str().unwrap().parse().unwrap(), part)]),
        directories: BTreeMap::new(),
        templates: templates.build().unwrap(),
        values: Value::default(),
        inputs: specs.collect(),
        program: program.map(|set| ProgramOf { set: set.to_owned(), profile: None, haproxy: None }),
    }))
}

#[test]
fn a_value_that_could_not_be_checked_is_neither_accepted_nor_refused() {
    let bench = Bench::new();
    let (a, b) = (bench.state().join("a"), bench.state().join("b"));
    let check = bench.state().join("check");
    let arguments = vec![check.display().to_string()];
    let check_by = Check { arguments, network: Network::Here, profile: None };
    let source = bench.source.clone().below("/").checked_by(Some(check_by));
    let bench = Bench { source, ..bench };
    let conf = bench.at("/etc/web.cfg");
    let desired = made_of(&conf, "{{ inputs.a }}{{ inputs.b }}", &[("a", &a), ("b", &b)], None);
    fs::write(&a, "one\n").unwrap();
    fs::write(&b, "one\n").unwrap();
    write_script(&check, "#!/bin/sh\nexit 0\n").unwrap();
    bench.converge_once(&desired);
    assert_eq!(fs::read_to_string(&conf).unwrap(), "one\none\n");
    fs::remove_file(&check).unwrap();
    fs::write(&a, "two\n").unwrap();
    for _ in 0..2 {
        let lines = report_lines(&bench.pass_once(&desired)).join("\n");
        assert!(lines.contains("it could not be checked"), "{lines}");
        assert!(!lines.contains("input a"), "{lines}");
        assert_eq!(fs::read_to_string(&conf).unwrap(), "one\none\n");
    }
    write_script(&check, "#!/bin/sh\nexit 0\n").unwrap();
    bench.converge_once(&desired);
    assert_eq!(fs::read_to_string(&conf).unwrap(), "two\none\n");
}

#[test]
fn a_plan_accepts_nothing_and_an_apply_keeps_what_it_accepted() {
    let bench = Bench::new();
    let a = bench.state().join("a");
    let conf = bench.at("/etc/web.cfg");
    let source = bench.source.clone().below("/");
    let bench = Bench { source, ..bench };
    let desired = made_of(&conf, "{{ inputs.a }}", &[("a", &a)], None);
    fs::write(&a, "one\n").unwrap();
    bench.looking().look(&desired);
    assert!(!bench.state().join("inputs").exists());
    bench.converge_once(&desired);
    assert!(bench.state().join("inputs").exists());
    // Another process, whose input is gone.
    fs::remove_file(&a).unwrap();
    fs::write(&conf, "edited\n").unwrap();
    let source = bench.source.clone().sharing(homeostat_files::LiveInputs::default());
    let bench = Bench { source, ..bench };
    let lines = report_lines(&bench.pass_once(&desired)).join("\n");
    assert_eq!(fs::read_to_string(&conf).unwrap(), "one\n");
    assert!(lines.contains("input a") && lines.contains("stands in"), "{lines}");
}
