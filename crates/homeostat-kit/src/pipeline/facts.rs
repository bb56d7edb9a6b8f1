//! What a template may want to know of the machine.

use std::fs;

use serde_json::{Value, json};

/// The machine's name, kernel and number of processors. What cannot be read is missing, and a template
/// that asks for it fails.
#[must_use]
pub fn host_facts() -> Value {
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

    #[test]
    fn a_machine_has_a_name_a_kernel_and_processors() {
        let facts = host_facts();
        assert!(facts["hostname"].is_string() && facts["kernel"].is_string(), "{facts}");
        assert!(facts["processors"].as_u64().is_some_and(|count| count > 0), "{facts}");
    }
}
