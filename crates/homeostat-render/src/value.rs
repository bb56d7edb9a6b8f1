//! What an input says, and the forms in which it is written.

use std::collections::BTreeMap;
use std::fmt;

use homeostat_document::{Format, Json, read_data};
use minijinja::value::Serde;
use ring::digest;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Whether something may be shown in plans and logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Secrecy {
    #[default]
    Public,
    Secret,
}

/// How the text of an input becomes a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    Json,
    Yaml,
    Toml,
    /// A list of lines. The last one must end, since half of a line may be valid, too.
    Lines,
    #[default]
    Text,
}

/// The value of an input. Cheap to clone. `Debug` does not show it: it may be a secret.
///
/// Names of a table have no order: templates see them sorted, so that a writer that shuffles them changes no file.
///
/// Values are equal if they were written the same: for templates `1`, `1.0` and `true` are equal, too.
#[derive(Clone, Default)]
pub struct Value {
    pub(crate) jinja: minijinja::Value,
    /// Of the text that it was made of.
    pub(crate) digest: Digest,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Digest([u8; 32]);

impl Digest {
    fn of(text: &[u8]) -> Self {
        let digest = digest::digest(&digest::SHA256, text);
        Digest(digest.as_ref().first_chunk().copied().unwrap_or_default())
    }
}

impl Value {
    /// Understands the text of an input that messages call `name`.
    pub fn parse(form: Form, name: &str, text: &str, secrecy: Secrecy) -> Result<Self, Error> {
        let format = match form {
            Form::Json => Format::Json,
            Form::Yaml => Format::Yaml,
            Form::Toml => Format::Toml,
            Form::Text => return Ok(Value::from(text)),
            Form::Lines => {
                return Ok(Value {
                    jinja: text.lines().collect(),
                    digest: Digest::of(text.as_bytes()),
                });
            }
        };
        let jinja = match strict_json(form, text) {
            Some(jinja) => jinja,
            None => minijinja::Value::from(Serde(read(name, format, text, secrecy)?)),
        };
        Ok(Value { jinja, digest: Digest::of(text.as_bytes()) })
    }
}

/// The short way for JSON, of which inputs may have a lot. Nothing if it is not JSON, or anything about it is strange: then
/// the reader of documents judges it, and says what is wrong and where.
fn strict_json(form: Form, text: &str) -> Option<minijinja::Value> {
    let strict = || serde_json::from_str(text).ok().map(|Strict(value)| value);
    (form == Form::Json).then(strict).flatten()
}

fn read(name: &str, format: Format, text: &str, secrecy: Secrecy) -> Result<Json, Error> {
    read_data(name, format, text).map_err(|found| {
        let first = found.iter().next();
        let message = match (first, secrecy) {
            (Some(first), Secrecy::Public) => first.to_string(),
            (first, _) => {
                let at = first.and_then(|first| Some((first.line?, first.column?)));
                let (line, column) = at.unwrap_or((1, 1));
                format!("{name}:{line}:{column}: it is malformed")
            }
        };
        Error::Malformed { message }
    })
}

/// A value of JSON without names that occur twice and without numbers that were rounded.
struct Strict(minijinja::Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Strict;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of JSON")
    }

    fn visit_unit<E>(self) -> Result<Strict, E> {
        Ok(Strict(minijinja::Value::from(())))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Strict, E> {
        Ok(Strict(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Strict, E> {
        Ok(Strict(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Strict, E> {
        Ok(Strict(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Strict, E> {
        /// From here on it may have been written as a whole number, which has no room in 64 bits.
        const WHOLE: f64 = 9e18;
        if value.abs() < WHOLE { Ok(Strict(value.into())) } else { Err(E::custom("large")) }
    }

    fn visit_str<E>(self, value: &str) -> Result<Strict, E> {
        Ok(Strict(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Strict, A::Error> {
        let mut list = Vec::new();
        while let Some(Strict(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Strict(list.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Strict, A::Error> {
        let mut table = BTreeMap::new();
        while let Some((Strict(name), Strict(value))) = entries.next_entry()? {
            if table.insert(name, value).is_some() {
                return Err(de::Error::custom("twice"));
            }
        }
        Ok(Strict(table.into()))
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for Value {}

impl From<Json> for Value {
    fn from(json: Json) -> Self {
        let digest = Digest::of(json.to_string().as_bytes());
        Value { jinja: minijinja::Value::from(Serde(json)), digest }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value { jinja: text.into(), digest: Digest::of(text.as_bytes()) }
    }
}

impl<V: Into<Value>> FromIterator<(String, V)> for Value {
    fn from_iter<I: IntoIterator<Item = (String, V)>>(entries: I) -> Self {
        let entries = entries.into_iter().map(|(name, value)| (name, value.into()));
        let entries: BTreeMap<String, Value> = entries.collect();
        let mut digests = Vec::new();
        for (name, Value { digest: Digest(digest), .. }) in &entries {
            digests.extend_from_slice(&Digest::of(name.as_bytes()).0);
            digests.extend_from_slice(digest);
        }
        let entries = entries.into_iter().map(|(name, value)| (name, value.jinja));
        let jinja = minijinja::Value::from(entries.collect::<BTreeMap<_, _>>());
        Value { jinja, digest: Digest::of(&digests) }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Value(..)")
    }
}

impl Serialize for Value {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.jinja.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_text_becomes_a_value_in_its_form() {
        let check = |form, text: &str, expected: Json| {
            let value = Value::parse(form, "list", text, Secrecy::Public).unwrap();
            assert_eq!(serde_json::to_value(&value).unwrap(), expected);
        };
        check(Form::Json, "{\"b\": 1, \"a\": [true, null]}", json!({ "a": [true, null], "b": 1 }));
        check(Form::Yaml, "a: x\n", json!({ "a": "x" }));
        check(Form::Toml, "a = 1.5\n", json!({ "a": 1.5 }));
        check(Form::Lines, "a\nb\r\n\n", json!(["a", "b", ""]));
        check(Form::Text, "a\n", json!("a\n"));
    }

    #[test]
    fn the_short_way_for_json_is_as_strict_as_the_long_one() {
        let parse = |text| Value::parse(Form::Json, "x", text, Secrecy::Public);
        for bad in
            ["", "{", "[1,]", "{\"a\": 1, \"a\": 2}", "123456789012345678901234", "nul", "1 2"]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
        for good in [
            "1e30",
            "-0.5",
            "18446744073709551615",
            "-9223372036854775808",
            "\"\\u00fc\\n\"",
            "[]",
            "{}",
            "null",
        ] {
            let expected: Json = serde_json::from_str(good).unwrap();
            assert_eq!(serde_json::to_value(parse(good).unwrap()).unwrap(), expected, "{good}");
        }
    }

    #[test]
    fn values_are_the_same_if_they_are_written_the_same() {
        let value = |json: Json| Value::from(json);
        let different = [json!(1), json!(1.0), json!(true), json!("1"), json!([1]), json!(null)];
        for (index, one) in different.iter().enumerate() {
            for (other_index, other) in different.iter().enumerate() {
                assert_eq!(value(one.clone()) == value(other.clone()), index == other_index);
            }
        }
    }

    #[test]
    fn a_mistake_in_a_secret_names_its_place_only() {
        let message = |secrecy| {
            let error = Value::parse(Form::Yaml, "key.yaml", "a: 1\nb: 0600", secrecy).unwrap_err();
            error.to_string()
        };
        assert!(message(Secrecy::Public).contains("0600"));
        assert_eq!(message(Secrecy::Secret), "key.yaml:2:4: it is malformed");
        let value = Value::from("canary");
        assert!(!format!("{value:?}").contains("canary"));
    }
}
