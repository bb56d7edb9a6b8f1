//! Objects as plans show them: without what goes without saying.

use serde_json::Value;

use crate::model::Object;

/// What every object of its kind has, unless somebody asked for something else.
const USUAL: [(&str, &str); 4] =
    [("type", "unicast"), ("scope", "global"), ("valid", "forever"), ("preferred", "forever")];

/// An object in the words of a document.
pub(crate) fn explained(object: &Object) -> Value {
    if matches!(object, Object::Link(_) | Object::Setting(_)) {
        // A link that is down was asked to be.
        return bare(object);
    }
    match bare(object) {
        Value::Object(fields) => {
            Value::Object(fields.into_iter().filter(is_worth_saying).collect())
        }
        other => other,
    }
}

/// What is stored of an object without the word that says of what kind it is: the key says that.
fn bare(object: &Object) -> Value {
    match serde_json::to_value(object).unwrap_or_default() {
        Value::Object(tagged) => tagged.into_iter().next().map_or(Value::Null, |(_, bare)| bare),
        other => other,
    }
}

fn is_worth_saying((name, value): &(String, Value)) -> bool {
    let usual = USUAL.iter().any(|(usual, text)| usual == name && value.as_str() == Some(text));
    !usual && *value != Value::Bool(false) && !value.is_null()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::{Address, Lifetime};
    use crate::links::field::Setting;
    use crate::number::Scope;
    use crate::route::{Route, RouteKind};
    use serde_json::json;

    #[test]
    fn what_goes_without_saying_is_not_said() {
        let seen = Route { onlink: Some(false), ..Route::via([10, 0, 0, 1].into()) };
        assert_eq!(explained(&Object::Route(seen)), json!({ "via": "10.0.0.1" }));
        let hole = Route::of_kind(RouteKind::Blackhole);
        assert_eq!(explained(&Object::Route(hole)), json!({ "type": "blackhole" }));
        let proxy = Object::Neighbour(crate::neighbour::Neighbour::proxy());
        assert_eq!(explained(&proxy), json!({}));
        let address = Address {
            scope: Some(Scope::GLOBAL),
            valid: Some(Lifetime::Forever),
            preferred: Some(Lifetime::Seconds(9)),
            noprefixroute: Some(false),
            ..Address::default()
        };
        let down = Object::Setting(Setting::Flag(false).into());
        assert_eq!(explained(&down), json!(false));
        let said = json!({ "preferred": { "seconds": 9 } });
        assert_eq!(explained(&Object::Address(address)), said);
    }
}
