//! The store of declarations: each stays, marked as going, for as long as somebody has a finalizer on
//! it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::http::{Answer, Request};

/// A declared shape.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declaration {
    /// What is declared: a shape without its name.
    pub shape: Value,
    /// Who has to clean up before it may go.
    #[serde(default)]
    pub finalizers: BTreeSet<String>,
    /// Whether somebody asked for it to go.
    #[serde(default)]
    pub deleting: bool,
}

/// `PUT` and `DELETE /declarations/NAME`, and both on `/declarations/NAME/finalizers/WHO`.
pub(super) fn declarations(all: &mut BTreeMap<String, Declaration>, request: &Request) -> Answer {
    let mut parts = request.path.split('/').skip(2);
    let (name, who) = (parts.next().unwrap_or_default(), parts.nth(1));
    match (request.method.as_str(), all.get_mut(name), who) {
        ("PUT", Some(declared), Some(who)) if !declared.deleting => {
            declared.finalizers.insert(who.to_owned());
        }
        ("PUT", Some(_), Some(_)) => return Answer::error(409, "it is going"),
        ("PUT", Some(declared), None) => declared.shape = request.body.clone(),
        ("PUT", None, None) => {
            let declared = Declaration { shape: request.body.clone(), ..Declaration::default() };
            all.insert(name.to_owned(), declared);
        }
        ("DELETE", Some(declared), Some(who)) => {
            declared.finalizers.remove(who);
        }
        ("DELETE", Some(declared), None) => declared.deleting = true,
        (_, None, _) => return Answer::error(404, "no such declaration"),
        _ => return Answer::error(405, "unheard of"),
    }
    all.retain(|_, declared| !declared.deleting || !declared.finalizers.is_empty());
    Answer::of(200, all.get(name))
}
