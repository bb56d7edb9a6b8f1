//! From inputs to files: what is in force when some of it is bad.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use homeostat_render::{
    Content, Credentials, Data, FileReader, FileSet, Form, InputSpec, InputState, InputTasks,
    Inputs, Origin, RenderError, RenderedSet, Secrecy, Shrunk, Verdict,
};
use tempfile::TempDir;

const TEMPLATE: &str = "\
{% for server in inputs.servers %}
server {{ server.name }} {{ server.address | ip }}
{% endfor %}
{% for address in inputs.blocked %}
block {{ address | network }}
{% endfor %}
";

struct World {
    directory: TempDir,
    set: FileSet,
    tasks: InputTasks,
    inputs: Inputs,
    /// What the program would run.
    current: Option<RenderedSet>,
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let template = Content::Text { name: "x.j2".to_owned(), text: TEMPLATE.to_owned() };
        let set = FileSet::builder(directory.path())
            .input("servers", Secrecy::Public)
            .input("blocked", Secrecy::Public)
            .file("/x", template, Secrecy::Public)
            .build()
            .unwrap();
        let tasks = InputTasks::new(FileReader::once(), Credentials::default());
        World { directory, set, tasks, inputs: Inputs::default(), current: None }
    }

    fn add(&mut self, name: &str, form: Form) {
        let path = self.directory.path().join(name);
        let spec = InputSpec::new(Origin::File(path)).form(form);
        self.inputs.add(name, spec.kept(&self.directory.path().join("kept"), "set", name));
        self.tasks.start(name, spec);
    }

    /// As a careful program would write it.
    fn write(&self, name: &str, text: &str) {
        let new = self.directory.path().join("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.directory.path().join(name)).unwrap();
    }

    fn render(&self, inputs: &Inputs) -> Result<RenderedSet, Box<RenderError>> {
        let data = Data { inputs: inputs.accepted(), ..Data::default() };
        Ok(self.set.render(&data)?.finish_unmasked(b"key"))
    }

    fn text(&self) -> String {
        let file = &self.current.as_ref().unwrap().files[Path::new("/x")];
        String::from_utf8(file.bytes.clone()).unwrap()
    }

    /// Takes what comes until this is reached, as a program that keeps the files would.
    async fn run_until(&mut self, is_reached: impl Fn(&Self) -> bool) {
        loop {
            self.tasks.deliver(&mut self.inputs);
            while let Some(proposal) = self.inputs.propose() {
                let data = Data { inputs: proposal.values.clone(), ..Data::default() };
                let verdict = match self.set.render(&data) {
                    Ok(draft) => {
                        let reads = draft.finish_unmasked(b"key").reads();
                        Verdict::Accepted { reads }
                    }
                    Err(error) => error.verdict(),
                };
                self.inputs.judge(&proposal, verdict).unwrap();
            }
            self.current = self.render(&self.inputs).ok().or(self.current.take());
            if is_reached(self) {
                return;
            }
            self.tasks.changed().await;
        }
    }

    fn is_refused(&self, name: &str) -> bool {
        let is_refused = |state| matches!(state, InputState::Pending { refused: Some(_), .. });
        self.inputs.states().any(|(found, state)| found == name && is_refused(state))
    }
}

#[tokio::test]
async fn a_bad_input_holds_neither_the_good_ones_nor_what_was_good_of_it() {
    let mut world = World::new();
    world.add("servers", Form::Json);
    world.add("blocked", Form::Lines);
    world.write("servers", r#"[{"name": "a", "address": "192.0.2.1"}]"#);
    world.write("blocked", "10.0.0.0/8\n");
    world.run_until(|world| world.current.is_some()).await;
    assert_eq!(world.text(), "server a 192.0.2.1\nblock 10.0.0.0/8\n");
    // Both at once; one of them is nonsense.
    world.write("blocked", "10.0.0.0/99\n");
    world.write("servers", r#"[{"name": "b", "address": "192.0.2.2"}]"#);
    world.run_until(|world| world.is_refused("blocked") && world.text().contains("server b")).await;
    assert_eq!(world.text(), "server b 192.0.2.2\nblock 10.0.0.0/8\n");
    // The reason names the place in the template.
    let refused = world.inputs.states().find_map(|(name, state)| match state {
        InputState::Pending { refused, .. } if name == "blocked" => refused,
        _ => None,
    });
    let expected = "x.j2:5:20: `10.0.0.0/99` is no address with a length, such as 192.0.2.1/24";
    assert_eq!(refused.as_deref(), Some(expected));
    world.write("blocked", "172.16.0.0/12\n");
    world.run_until(|world| world.text().contains("172")).await;
    assert_eq!(world.text(), "server b 192.0.2.2\nblock 172.16.0.0/12\n");
}

/// What a source that has lost its state says is valid, and would empty the file.
#[tokio::test]
async fn a_list_that_has_become_short_is_found() {
    let mut world = World::new();
    world.add("servers", Form::Json);
    world.add("blocked", Form::Lines);
    world.write("servers", "[]");
    let many = (0..100).map(|number| format!("10.{number}.0.0/16\n")).collect::<Vec<_>>().concat();
    world.write("blocked", &many);
    world.run_until(|world| world.current.is_some()).await;
    let before = world.text();
    world.write("blocked", "10.0.0.0/16\n");
    world.run_until(|world| world.text() != before).await;
    let found = Shrunk::find(before.as_bytes(), world.text().as_bytes()).unwrap();
    assert_eq!((found.from_lines, found.to_lines), (100, 1));
}
