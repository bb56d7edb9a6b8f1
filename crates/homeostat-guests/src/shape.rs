//! Checks the JSON type of answers. Something else than a list is an error, never an empty list. Pure.

use serde_json::{Map, Value};

/// The rows of a list, each of which must make sense; else why not.
pub(crate) fn rows<T, C: FromIterator<T>>(
    answer: Value,
    read: impl Fn(&Value) -> Option<T>,
) -> Result<C, String> {
    let Value::Array(rows) = answer else {
        return Err(format!("it should be a list, and is {}", name(&answer)));
    };
    let read = rows.iter().map(read).collect::<Option<C>>();
    read.ok_or_else(|| "a row lacks what says what it is about".to_owned())
}

/// The fields of an object; else why not.
pub(crate) fn fields(answer: Value) -> Result<Map<String, Value>, String> {
    match answer {
        Value::Object(fields) => Ok(fields),
        other => Err(format!("it should be an object, and is {}", name(&other))),
    }
}

/// Numbers come as numbers, or as texts.
pub(crate) fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// A value as text, as a configuration has it.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// The type of a value. The value itself may be private, and is not shown.
fn name(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a yes or no",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_has_another_shape_is_not_taken_for_nothing() {
        for other in [json!(null), json!({}), json!("x"), json!(1), json!(true)] {
            assert!(rows::<_, Vec<_>>(other.clone(), number).is_err(), "{other}");
        }
        for other in [json!(null), json!([]), json!("x")] {
            assert!(fields(other.clone()).is_err(), "{other}");
        }
        assert_eq!(rows(json!([]), number), Ok(vec![]));
        assert_eq!(rows(json!([1, "2"]), number), Ok(vec![1, 2]));
        assert!(rows::<_, Vec<_>>(json!([1, null]), number).is_err(), "one row without a name");
    }
}
