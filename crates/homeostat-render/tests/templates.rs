//! Templates: what they may do, and what they say when they fail.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use homeostat_render::{
    Content, Data, Facts, FileReader, FileSet, FileSetBuilder, Needs, RenderCause, RenderError,
    RenderedSet, Secrecy, Value,
};
use proptest::prelude::*;
use serde_json::json;
use tempfile::TempDir;

const OUT: &str = "/etc/x.conf";

/// Templates in a directory of their own, with the inputs `servers`, `absent` and the secret `cert`.
struct World(TempDir);

impl World {
    fn new(templates: &[(&str, &str)]) -> Self {
        let world = World(tempfile::tempdir().unwrap());
        for (name, text) in templates {
            world.write(name, text);
        }
        world
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn builder(&self) -> FileSetBuilder {
        FileSet::builder(self.0.path())
            .input("servers", Secrecy::Public)
            .input("absent", Secrecy::Public)
            .input("cert", Secrecy::Secret)
    }

    fn render_as(&self, secrecy: Secrecy, template: &str) -> Result<String, Box<RenderError>> {
        let content = Content::Template(template.into());
        let draft = self.builder().file(OUT, content, secrecy).build()?.render(&data())?;
        Ok(text(&draft.finish_unmasked(b"key"), OUT))
    }

    fn render(&self, template: &str) -> Result<String, Box<RenderError>> {
        self.render_as(Secrecy::Public, template)
    }

    /// The error without the temporary directory in it.
    #[track_caller]
    fn error(&self, template: &str) -> String {
        let error = self.render(template).unwrap_err();
        self.strip(&error.to_string())
    }

    fn strip(&self, text: &str) -> String {
        text.replace(&format!("{}/", self.0.path().display()), "")
    }
}

fn data() -> Data {
    let servers = json!([{ "name": "a", "weight": 10 }, { "name": "b", "weight": 20 }]);
    let inputs = BTreeMap::from([
        ("servers".to_owned(), Value::from(servers)),
        ("cert".to_owned(), Value::from("canary")),
    ]);
    Data { inputs, values: Value::from(json!({ "site": "a.test" })), ..Data::default() }
}

fn text(set: &RenderedSet, path: &str) -> String {
    String::from_utf8(set.files[Path::new(path)].bytes.clone()).unwrap()
}

#[test]
fn lines_of_blocks_leave_no_trace_and_the_last_newline_stays() {
    let world = World::new(&[(
        "a.j2",
        "backend x\n  {% for s in inputs.servers %}\n  server {{ s.name }}\n  {% endfor %}\n<{{ values.site }}>\n",
    )]);
    assert_eq!(world.render("a.j2").unwrap(), "backend x\n  server a\n  server b\n<a.test>\n");
}

#[test]
fn includes_macros_imports_and_inheritance_work_and_see_the_inputs() {
    let world = World::new(&[
        (
            "a.j2",
            "{% extends 'base.j2' %}\n{% block body %}{% include 'parts/one.j2' %}{% endblock %}\n",
        ),
        ("base.j2", "# {{ values.site }}\n{% block body %}{% endblock %}"),
        (
            "parts/one.j2",
            "{% from 'parts/macros.j2' import line %}\n{{ line(inputs.servers[0]) }}\n",
        ),
        (
            "parts/macros.j2",
            "{% macro line(s) %}{{ s.name }}={{ s.weight }} of {{ inputs.servers | length }}{% endmacro %}\n",
        ),
    ]);
    assert_eq!(world.render("a.j2").unwrap(), "# a.test\na=10 of 2\n");
}

#[test]
fn a_missing_value_is_an_error_at_its_place() {
    let world = World::new(&[("a.j2", "x\n  y {{ inputs.servers[0].nme }}\n")]);
    assert_eq!(world.error("a.j2"), "a.j2:2:22: `inputs.servers[0].nme` is undefined");
    assert_eq!(world.render("a.j2").unwrap_err().cause, RenderCause::Undefined);
}

#[test]
fn an_error_is_drawn_through_its_includes() {
    let world = World::new(&[
        ("a.j2", "x\n{% include 'b.j2' %}\n"),
        ("b.j2", "\n\n  {% include 'c.j2' %}\n"),
        ("c.j2", "ü {{ values.port }}\n"),
    ]);
    assert_eq!(
        world.error("a.j2"),
        "c.j2:1:6: `values.port` is undefined (included at b.j2:3:6) (included at a.j2:2:4)"
    );
    let drawn = world.strip(&world.render("a.j2").unwrap_err().draw(false));
    let expected = "\
error: `values.port` is undefined
 --> c.j2:1:6
  |
1 | ü {{ values.port }}
  |      ^^^^^^^^^^^
  |
 ::: b.j2:3:6
  |
3 |   {% include 'c.j2' %}
  |      -------------- included here
  |
  = help: it is included at b.j2:3:6, at a.j2:2:4

";
    assert_eq!(drawn, expected);
}

#[test]
fn a_broken_template_is_an_error_at_its_place() {
    let world = World::new(&[
        ("a.j2", "x\n{% for s in %}\n"),
        ("b.j2", "{% include 'a.j2' %}\n"),
        ("c.j2", "{{ 1 | nofilter }}\n"),
    ]);
    assert!(world.error("a.j2").starts_with("a.j2:2:"), "{}", world.error("a.j2"));
    let included = world.error("b.j2");
    assert!(included.starts_with("a.j2:2:"), "{included}");
    assert!(included.ends_with(" (included at b.j2:1:4)"), "{included}");
    assert!(world.error("c.j2").starts_with("c.j2:1:"), "{}", world.error("c.j2"));
    assert!(world.error("none.j2").starts_with("none.j2:1:1: "), "{}", world.error("none.j2"));
}

#[test]
fn a_template_can_refuse_its_data() {
    let world = World::new(&[(
        "a.j2",
        "{% if inputs.servers | length < 3 %}\n{{ fail('too few servers') }}\n{% endif %}\n",
    )]);
    assert_eq!(world.error("a.j2"), "a.j2:2:4: too few servers");
}

#[test]
fn a_template_that_never_ends_is_stopped() {
    let world = World::new(&[
        (
            "loop.j2",
            "\n{% for a in range(9999) %}\n{% for b in range(9999) %}{% endfor %}\n{% endfor %}\n",
        ),
        ("itself.j2", "x\n{% include 'itself.j2' %}\n"),
        ("macro.j2", "{% macro m() %}{{ m() }}{% endmacro %}\n{{ m() }}\n"),
        ("large.j2", "{% for a in range(9999) %}{{ 'x' * 99999 }}{% endfor %}\n"),
    ]);
    let fuel = world.error("loop.j2");
    assert!(fuel.starts_with("loop.j2:") && fuel.contains("too many steps"), "{fuel}");
    assert!(
        world.error("itself.j2").starts_with("itself.j2:2:4: "),
        "{}",
        world.error("itself.j2")
    );
    assert!(world.error("macro.j2").starts_with("macro.j2:1:"), "{}", world.error("macro.j2"));
    assert!(world.error("large.j2").ends_with("larger than 64 MiB"), "{}", world.error("large.j2"));
}

#[test]
fn templates_reach_no_file_outside_of_their_directory() {
    let outside = tempfile::tempdir().unwrap();
    let canary = outside.path().join("canary");
    fs::write(&canary, "canary\n").unwrap();
    let world = World::new(&[("in/b.j2", "b\n")]);
    std::os::unix::fs::symlink(&canary, world.0.path().join("link.j2")).unwrap();
    std::os::unix::fs::symlink("in/b.j2", world.0.path().join("inner.j2")).unwrap();
    let up = format!("../{}", canary.strip_prefix("/tmp").unwrap().display());
    for name in [canary.to_str().unwrap(), &up, "link.j2", "in/../../x", "/proc/self/environ"] {
        world.write("a.j2", &format!("{{% include {name:?} ignore missing %}}\n"));
        let error = world.error("a.j2");
        assert!(
            error.starts_with("a.j2:1:4: cannot read ") && error.contains("not below"),
            "{error}"
        );
    }
    world.write("a.j2", "{% include 'inner.j2' %}\n");
    assert_eq!(world.render("a.j2").unwrap(), "b\n");
    // The operator may name any file as a template.
    assert_eq!(world.render(canary.to_str().unwrap()).unwrap(), "canary\n");
}

#[test]
fn all_templates_are_reported_and_those_that_are_not_there_yet() {
    let world = World::new(&[
        ("a.j2", "{% include 'b.j2' %}{% include 'later.j2' ignore missing %}\n"),
        ("b.j2", "b\n"),
        ("unused.j2", "u\n"),
    ]);
    let set = world.builder().file(OUT, Content::Template("a.j2".into()), Secrecy::Public);
    let set = set.build().unwrap();
    set.render(&data()).unwrap();
    let names: Vec<PathBuf> =
        ["a.j2", "b.j2", "later.j2"].map(|name| world.0.path().join(name)).into();
    assert_eq!(set.templates().into_iter().collect::<Vec<_>>(), names);
}

#[test]
fn a_template_that_is_being_written_or_empty_is_not_used() {
    let world = World::new(&[("a.j2", "{% include 'b.j2' %}\n"), ("b.j2", "b\n")]);
    let error = {
        let _writer = File::options().append(true).open(world.0.path().join("b.j2")).unwrap();
        world.render("a.j2").unwrap_err()
    };
    assert_eq!(error.cause, RenderCause::BeingWritten { due_in: None });
    // A process that another test starts has the descriptor for a moment, too.
    assert!((0..1_000_000).any(|_| world.render("a.j2").is_ok()));
    world.write("b.j2", "");
    assert!(world.error("a.j2").ends_with("b.j2 is empty"), "{}", world.error("a.j2"));

    world.write("b.j2", "b\n");
    let written = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    for name in ["a.j2", "b.j2"] {
        let file = File::options().append(true).open(world.0.path().join(name)).unwrap();
        file.set_modified(written).unwrap();
    }
    let render_at = |after: u64| {
        let clock = move || written + Duration::from_millis(after);
        let set = world.builder().reader(FileReader::with_clock(clock));
        let set = set.file(OUT, Content::Template("a.j2".into()), Secrecy::Public).build()?;
        set.render(&data()).map(drop)
    };
    let cause = render_at(400).unwrap_err().cause;
    // A process that another test starts has the descriptor for a moment, too.
    assert!(matches!(cause, RenderCause::BeingWritten { .. }), "{cause:?}");
    assert!((0..1_000_000).any(|_| render_at(1000).is_ok()));
}

#[test]
fn a_file_that_reads_a_secret_must_be_secret() {
    let world = World::new(&[
        ("a.j2", "x\n{{ inputs.certificate is defined }}{{ inputs.cert }}\n"),
        ("b.j2", "{% include 'a.j2' %}\n"),
        ("c.j2", "{{ inputs['cert'] }}\n"),
        ("d.j2", "{{ inputs }}\n"),
    ]);
    for (template, place) in [("a.j2", "a.j2:2:"), ("b.j2", "a.j2:2:"), ("c.j2", "c.j2:1:4")] {
        let error = world.render(template).unwrap_err();
        assert_eq!(error.cause, RenderCause::Needs(Needs::Secrecy("cert".to_owned())));
        assert_eq!(error.file, Path::new(OUT));
        assert!(world.strip(&error.to_string()).starts_with(place), "{error}");
    }
    assert_eq!(world.render_as(Secrecy::Secret, "b.j2").unwrap(), "x\nFalsecanary\n");
    // All of them at once.
    assert!(matches!(world.render("d.j2").unwrap_err().cause, RenderCause::Needs(_)));
    // Before any input has answered.
    let set = world.builder().file(OUT, Content::Template("a.j2".into()), Secrecy::Public).build();
    let error = set.unwrap_err();
    assert!(
        error.to_string().ends_with("a.j2:2:39: the input `cert` is secret, and the file is not"),
        "{error}"
    );
}

#[test]
fn an_error_shows_no_secret() {
    let world = World::new(&[
        ("a.j2", "{{ inputs.cert | ip }}\n"),
        ("b.j2", "{{ fail('bad: ' ~ inputs.cert) }}\n"),
        ("c.j2", "{{ inputs.cert + 1 }}\n"),
        ("d.j2", "{% include inputs.cert %}\n"),
        ("e.j2", "{{ inputs.cert.x.y }}\n"),
        ("f.j2", "{{ inputs.servers[inputs.cert] }}\n"),
        ("g.j2", "{{ {}[inputs.cert] }}\n"),
        ("h.j2", "{{ inputs.cert | attr(inputs.cert) }}\n"),
        ("i.j2", "{% include '/' ~ inputs.cert %}\n"),
        ("j.j2", "{{ inputs.servers | map(inputs.cert) | list }}\n"),
        ("k.j2", "{% from inputs.cert import x %}\n"),
        ("l.j2", "{{ inputs.cert | round }}\n"),
        ("m.j2", "{{ inputs.servers | sort_by(inputs.cert) }}\n"),
    ]);
    for template in [
        "a.j2", "b.j2", "c.j2", "d.j2", "e.j2", "f.j2", "g.j2", "h.j2", "i.j2", "j.j2", "k.j2",
        "l.j2", "m.j2",
    ] {
        let error = world.render_as(Secrecy::Secret, template).unwrap_err();
        let shown = format!("{error} {error:?} {}", error.draw(false));
        assert!(!shown.contains("canary"), "{template}: {shown}");
    }
    // In a public file the value helps.
    world.write("a.j2", "{{ values.site | ip }}\n");
    assert_eq!(world.error("a.j2"), "a.j2:1:18: `a.test` is no IP address");
}

#[test]
fn a_file_waits_for_the_inputs_that_it_reads_and_for_no_others() {
    let world = World::new(&[
        ("a.j2", "{{ inputs.servers | length }}\n"),
        ("b.j2", "\n{{ inputs.absent | default('x') }}\n"),
        ("c.j2", "{% for name in inputs %}{{ inputs[name] }}{% endfor %}\n"),
        ("d.j2", "{{ links.eth0.mtu }}\n"),
        ("e.j2", "{% if links %}{% endif %}\n"),
    ]);
    assert_eq!(world.render("a.j2").unwrap(), "2\n");
    let cause = |template| world.render(template).unwrap_err().cause;
    let absent = RenderCause::Needs(Needs::Input("absent".to_owned()));
    assert_eq!(cause("b.j2"), absent);
    assert_eq!(cause("c.j2"), absent);
    assert_eq!(cause("d.j2"), RenderCause::Needs(Needs::Facts));
    assert_eq!(cause("e.j2"), RenderCause::Needs(Needs::Facts));
    assert!(world.error("b.j2").starts_with("b.j2:2:4: "), "{}", world.error("b.j2"));
}

#[test]
fn a_set_says_what_each_file_has_read() {
    let world = World::new(&[("a.j2", "{{ inputs.servers | length }}\n")]);
    let inline =
        Content::Text { name: "text of b".to_owned(), text: "{{ inputs.cert }}".to_owned() };
    let set = world
        .builder()
        .file("/a", Content::Template("a.j2".into()), Secrecy::Public)
        .file("/b", inline, Secrecy::Secret)
        .file("/c", Content::Bytes(vec![0xff]), Secrecy::Public);
    let set = set.build().unwrap().render(&data()).unwrap().finish_unmasked(b"key");
    let reads: Vec<Vec<&String>> =
        set.files.values().map(|file| file.reads.iter().collect()).collect();
    assert_eq!(reads, [vec!["servers"], vec!["cert"], vec![]]);
    assert_eq!(set.files[Path::new("/c")].bytes, [0xff]);
    assert!(!format!("{set:?}").contains("canary"));
}

/// Names are for messages only.
#[test]
fn texts_of_the_same_name_do_not_get_in_each_others_way() {
    let world = World::new(&[("a.j2", "file\n"), ("b.j2", "{% include 'a.j2' %}")]);
    let inline = |text: &str| Content::Text { name: "a.j2".to_owned(), text: text.to_owned() };
    let set = world
        .builder()
        .file("/a", inline("one"), Secrecy::Public)
        .file("/b", inline("two"), Secrecy::Public)
        .file("/c", Content::Template("b.j2".into()), Secrecy::Public)
        .file("/d", Content::Template("a.j2".into()), Secrecy::Public);
    let rendered = set.clone().build().unwrap().render(&data()).unwrap().finish_unmasked(b"");
    let texts = ["/a", "/b", "/c", "/d"].map(|path| text(&rendered, path));
    assert_eq!(texts, ["one", "two", "file\n", "file\n"]);
    let error =
        set.file("/a", inline("\n{{ x }}"), Secrecy::Public).build().unwrap().render(&data());
    assert_eq!(error.unwrap_err().to_string(), "a.j2:2:4: `x` is undefined");
}

#[test]
fn the_generation_is_that_of_the_rest_of_the_set() {
    let world = World::new(&[
        (
            "a.j2",
            "setenv HOMEOSTAT {{ generation }}\nserver a weight {{ inputs.servers[0].weight }}\n",
        ),
        ("b.j2", "{{ values.site }}\n"),
    ]);
    let set = world
        .builder()
        .file("/a", Content::Template("a.j2".into()), Secrecy::Public)
        .file("/b", Content::Template("b.j2".into()), Secrecy::Public)
        .build()
        .unwrap();
    let finish = |weight: u32, site: &str, key: &[u8], is_masked: bool| {
        let servers = Value::from(json!([{ "weight": weight }]));
        let inputs = BTreeMap::from([("servers".to_owned(), servers)]);
        let data = Data { inputs, values: Value::from(json!({ "site": site })), ..Data::default() };
        set.render(&data).unwrap().finish(key, |_, bytes| {
            let is_kept = |line: &&[u8]| !is_masked || !line.starts_with(b"server ");
            let lines = bytes.split_inclusive(|byte| *byte == b'\n').filter(is_kept);
            Cow::Owned(lines.flatten().copied().collect())
        })
    };
    let one = finish(1, "x", b"k", true);
    assert_eq!(
        text(&one, "/a"),
        format!("setenv HOMEOSTAT {}\nserver a weight 1\n", one.generation)
    );
    assert_eq!(one.generation.len(), 15);
    assert_eq!(one, finish(1, "x", b"k", true));
    assert_eq!(one.generation, finish(2, "x", b"k", true).generation, "the weight is masked");
    assert_ne!(one.generation, finish(2, "x", b"k", false).generation);
    assert_ne!(one.generation, finish(1, "y", b"k", true).generation, "another file of the set");
    assert_ne!(one.generation, finish(1, "x", b"l", true).generation, "the key");
}

#[test]
fn facts_are_there_for_templates() {
    let mut facts = Facts::default();
    facts.host.name = Some("edge1".to_owned());
    facts.namespaces.insert("blue".to_owned());
    let world = World::new(&[
        ("a.j2", "{{ host.name }} {{ namespaces | join(',') }} {{ links | length }}\n"),
        ("b.j2", "{{ host.memory }}\n"),
    ]);
    let render = |template: &str| {
        let set = world.builder().file(OUT, Content::Template(template.into()), Secrecy::Public);
        let data = Data { facts: Some(facts.clone().into()), ..data() };
        set.build()?.render(&data).map(|draft| text(&draft.finish_unmasked(b""), OUT))
    };
    assert_eq!(render("a.j2").unwrap(), "edge1 blue 0\n");
    assert!(render("b.j2").unwrap_err().message.contains("`host.memory` is undefined"));
}

/// Pieces of templates, right and wrong, in any order.
fn any_template() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "x",
        "\n",
        " ",
        "ü",
        "{{ ",
        " }}",
        "{% ",
        " %}",
        "{# ",
        " #}",
        "inputs",
        ".servers",
        ".cert",
        ".absent",
        "[0]",
        ".name",
        "values.site",
        "for s in ",
        "endfor",
        "if ",
        "else",
        "endif",
        " | ",
        "length",
        "sort_by('name')",
        "ip",
        "'",
        "include 'b.j2'",
        "include 'none'",
        "fail(",
        ")",
        "macro m()",
        "endmacro",
        "m()",
        "generation",
        "1 / 0",
        "range(99)",
        "links.lo.mtu",
        "set x = ",
        "-",
        "{%- ",
        " -%}",
        "raw",
        "endraw",
        "[",
        "]",
        "{",
        "}",
    ]);
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

fn cases() -> u32 {
    if std::env::var_os("HOMEOSTAT_SOAK").is_some() { 20_000 } else { 256 }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn the_same_data_gives_the_same_bytes_and_every_error_has_a_place(
        main in any_template(),
        part in any_template(),
        is_secret: bool,
    ) {
        let world = World::new(&[("a.j2", &format!("{main}\n{{% include 'b.j2' %}}\n")), ("b.j2", &format!("{part}\n"))]);
        let secrecy = if is_secret { Secrecy::Secret } else { Secrecy::Public };
        match (world.render_as(secrecy, "a.j2"), world.render_as(secrecy, "a.j2")) {
            (Ok(first), Ok(second)) => prop_assert_eq!(first, second),
            (Err(first), Err(second)) => {
                prop_assert_eq!(first.to_string(), second.to_string());
                let file = world.strip(&first.at.file);
                prop_assert!(["a.j2", "b.j2"].contains(&file.as_str()), "{}", first);
                let text = fs::read_to_string(world.0.path().join(file)).unwrap();
                prop_assert!((1..=text.split('\n').count()).contains(&first.at.line), "{}", first);
                prop_assert!(first.at.column >= 1 && !first.message.is_empty());
                prop_assert!(first.draw(false).contains(&first.message));
                prop_assert!(!first.draw(false).contains("canary"));
            }
            (first, second) => prop_assert!(false, "{:?} {:?}", first, second),
        }
    }
}

#[test]
fn mistakes_that_need_no_data_are_found_without_it() {
    let check = |template: &str, expected: Option<&str>| {
        let world =
            World::new(&[("a.j2", template), ("part.j2", "{{ outer }} {{ inputs.servers }}")]);
        let set = world.builder().file(OUT, Content::Template("a.j2".into()), Secrecy::Public);
        let checked = set.build().unwrap().check(&Value::from(json!({ "port": 80 })));
        let found = checked.err().map(|error| world.strip(&error.to_string()));
        assert_eq!(found.as_deref(), expected, "{template}");
    };
    check("{{ values.port }} {{ host.name }} {{ links }} {{ generation }} {{ range(3) }}", None);
    check("{% set outer = 1 %}{% include 'part.j2' %}", None);
    check("{% for one in inputs.servers %}{{ one.name }}{{ loop.index }}{% endfor %}", None);
    check("{{ inputs.absent }} {{ fail('not reached') }}", None);
    check("a\n{{ prot }}", Some("a.j2:2:4: `prot` is undefined"));
    check("{{ inputs.server }}", Some("a.j2:1:4: the input `server` is not declared"));
    check("{% if values.prot %}{% endif %}", Some("a.j2:1:7: `values.prot` is undefined"));
}

#[test]
fn templates_that_are_named_in_others_are_known_from_the_beginning() {
    let world = World::new(&[
        ("a.j2", "{% extends \"b.j2\" %}{% from 'c.j2' import x %}"),
        ("b.j2", "{%- include \"d/e.j2\" ignore missing %}"),
        ("c.j2", "{% macro x() %}{% endmacro %}"),
    ]);
    let build = || {
        let file = Content::Template("a.j2".into());
        world.builder().file(OUT, file, Secrecy::Public).build().unwrap()
    };
    let former = build();
    let names = ["a.j2", "b.j2", "c.j2", "d/e.j2"].map(|name| world.0.path().join(name));
    assert_eq!(former.templates(), names.into_iter().collect());
    assert!(former.is_same(&build()));
    world.write("d/e.j2", "now it is there\n");
    assert!(!former.is_same(&build()));
}

#[test]
fn directories_are_known_in_which_templates_with_computed_names_may_be() {
    for (include, is_computed) in [
        ("{% include 'part.j2' %}", false),
        ("{%- include \"part.j2\" ignore missing -%}", false),
        ("{% from 'part.j2' import x %}{% set included = inputs.servers %}", false),
        ("{% include inputs.which %}", true),
        ("{% include 'part' ~ inputs.which %}", true),
        ("{% include 'part.j2' if inputs.which else 'other.j2' %}", true),
        ("{% include ['one.j2', 'two.j2'] %}", true),
    ] {
        let world =
            World::new(&[("sub/a.j2", include), ("part.j2", "{% macro x() %}{% endmacro %}")]);
        let file = Content::Template("sub/a.j2".into());
        let set = world.builder().file(OUT, file, Secrecy::Public).build().unwrap();
        let found = set.directories();
        let expected = [world.0.path().to_owned(), world.0.path().join("sub")];
        assert_eq!(found, expected.into_iter().filter(|_| is_computed).collect(), "{include}");
        // They may name anything.
        assert_eq!(set.names_facts(), is_computed, "{include}");
    }
}

#[test]
fn a_copy_has_no_meaning_but_for_the_generation() {
    let world = World::new(&[]);
    let copy = Content::Marked(b"{{ generation }} {% if %} {{ values }}\n".to_vec());
    let set = world.builder().file(OUT, copy, Secrecy::Public).build().unwrap();
    let rendered = set.render(&data()).unwrap().finish_unmasked(b"key");
    let expected = format!("{} {{% if %}} {{{{ values }}}}\n", rendered.generation);
    assert_eq!(text(&rendered, OUT), expected);
}
