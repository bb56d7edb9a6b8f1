//! Text with holes, filled with facts, and the facts of this machine.

use std::collections::BTreeMap;
use std::fs;

use homeostat_engine::{Failure, Retry};
use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior, Value};
use serde_json::{Value as Json, json};

/// What inputs say, by name.
pub type Facts = BTreeMap<String, Json>;

/// The name of the template in errors.
const NAME: &str = "template";

/// A template in Jinja's language. A fact that is missing is an error, and never an empty text.
#[derive(Debug)]
pub struct Template(Environment<'static>);

impl Template {
    /// Parses a template; the error says what is wrong with it.
    pub fn new(text: &str) -> Result<Self, String> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.add_template_owned(NAME, text.to_owned()).map_err(|error| words(&error))?;
        Ok(Template(environment))
    }

    /// The text, or why there is none.
    pub fn render(&self, facts: &Facts) -> Result<String, String> {
        let template = self.0.get_template(NAME).map_err(|error| words(&error))?;
        template.render(Value::from(Serde(facts))).map_err(|error| words(&error))
    }
}

/// An error with its causes; it says the line by itself.
fn words(error: &minijinja::Error) -> String {
    Failure::from_error(error, Retry::OnChange).error
}

/// The machine's name, kernel and number of processors. What cannot be read is missing, and a template
/// that asks for it fails.
#[must_use]
pub fn host_facts() -> Json {
    let mut facts = json!({});
    for (name, file) in [("hostname", "hostname"), ("kernel", "osrelease")] {
        if let Ok(text) = fs::read_to_string(format!("/proc/sys/kernel/{file}")) {
            facts[name] = json!(text.trim());
        }
    }
    if let Ok(count) = std::thread::available_parallelism() {
        facts["processors"] = json!(count.get());
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        Facts::from([("paint".to_owned(), json!({ "colour": "green" }))])
    }

    #[test]
    fn facts_fill_the_holes() {
        let template = Template::new("a {{ paint.colour }} door").unwrap();
        assert_eq!(template.render(&facts()).unwrap(), "a green door");
    }

    #[test]
    fn a_missing_fact_is_an_error_with_its_line() {
        let template = Template::new("a\n{{ paint.shade }} door").unwrap();
        let error = template.render(&facts()).unwrap_err();
        assert!(error.contains("undefined") && error.contains(":2"), "{error}");
    }

    #[test]
    fn a_broken_template_is_refused_at_once() {
        assert!(Template::new("{{ paint.colour").is_err());
    }

    #[test]
    fn a_machine_has_a_name_a_kernel_and_processors() {
        let facts = host_facts();
        assert!(facts["hostname"].is_string() && facts["kernel"].is_string(), "{facts}");
        assert!(facts["processors"].as_u64().is_some_and(|count| count > 0), "{facts}");
    }
}
