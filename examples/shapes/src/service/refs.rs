//! References to shapes: small records beside the declarations, each of which says that a shape has an owner.

use std::collections::BTreeMap;

use super::http::{Answer, Request};

/// `POST /refs` with all changes at once, null for a reference that goes; `DELETE /refs/NAME`, as a user may.
pub(super) fn write(refs: &mut BTreeMap<String, String>, request: &Request) -> Answer {
    let changes = match (request.method.as_str(), request.path.strip_prefix("/refs/")) {
        ("POST", None) => serde_json::from_value(request.body.clone()),
        ("DELETE", Some(name)) => Ok(BTreeMap::from([(name.to_owned(), None)])),
        _ => return Answer::error(405, "unheard of"),
    };
    let changes: BTreeMap<String, Option<String>> = match changes {
        Ok(changes) => changes,
        Err(error) => return Answer::error(400, &error.to_string()),
    };
    for (name, record) in changes {
        match record {
            Some(record) => refs.insert(name, record),
            None => refs.remove(&name),
        };
    }
    Answer::of(200, refs)
}
