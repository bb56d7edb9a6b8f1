//! The shapes of answers. Something else than a list is an error, never an empty list. Lists are read row by row into
//! the type of their rows, and have a bound: an answer of megabytes of `{}` costs nothing. Pure.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// More than a cluster has nodes or guests, and a guest tasks or options.
const MOST_ROWS: usize = 20_000;

/// The rows of a list, each of which must have the fields of its type.
#[derive(Debug)]
pub(crate) struct Rows<T>(pub(crate) Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Rows<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(RowsVisitor(PhantomData))
    }
}

struct RowsVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for RowsVisitor<T> {
    type Value = Rows<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Rows<T>, A::Error> {
        let mut rows = Vec::new();
        while let Some(row) = list.next_element()? {
            if rows.len() == MOST_ROWS {
                return Err(A::Error::custom(format!("it has more than {MOST_ROWS} rows")));
            }
            rows.push(row);
        }
        Ok(Rows(rows))
    }
}

/// A single value. Numbers come as numbers, or as texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Scalar {
    /// Null, a list or an object.
    #[default]
    None,
    Text(String),
    Number(u64),
}

impl Scalar {
    pub(crate) fn number(&self) -> Option<u64> {
        match self {
            Scalar::None => None,
            Scalar::Text(text) => text.parse().ok(),
            Scalar::Number(number) => Some(*number),
        }
    }

    /// As a configuration has it.
    pub(crate) fn into_text(self) -> String {
        match self {
            Scalar::None => String::new(),
            Scalar::Text(text) => text,
            Scalar::Number(number) => number.to_string(),
        }
    }

    /// A text that is none if it is a number.
    pub(crate) fn text(self) -> Option<String> {
        if let Scalar::Text(text) = self { Some(text) } else { None }
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

impl<'de> Visitor<'de> for ScalarVisitor {
    type Value = Scalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Scalar, E> {
        Ok(Scalar::Text(text.to_owned()))
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Scalar, E> {
        Ok(Scalar::Text(text))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Scalar, E> {
        Ok(Scalar::Number(number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Scalar, E> {
        Ok(Scalar::Text(number.to_string()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Scalar, E> {
        Ok(Scalar::Text(number.to_string()))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Scalar, E> {
        Ok(Scalar::Text(value.to_string()))
    }

    fn visit_unit<E: Error>(self) -> Result<Scalar, E> {
        Ok(Scalar::None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Scalar, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Scalar::None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Scalar, A::Error> {
        while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Scalar::None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str) -> Result<Vec<Scalar>, String> {
        let rows: Result<Rows<Scalar>, _> = serde_json::from_str(text);
        rows.map(|rows| rows.0).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_no_list_is_not_taken_for_an_empty_one() {
        for other in ["null", "{}", "\"x\"", "1", "true"] {
            let why = rows(other).unwrap_err();
            assert!(why.contains("expected a list"), "{why}");
        }
        assert_eq!(rows("[]"), Ok(vec![]));
    }

    #[test]
    fn a_value_is_a_number_or_a_text_and_nothing_else() {
        let values = rows(r#"[1, "2", -3, 0.5, true, null, [1, {}], {"a": [1]}]"#).unwrap();
        let texts: Vec<_> = values.iter().cloned().map(Scalar::into_text).collect();
        assert_eq!(texts, ["1", "2", "-3", "0.5", "true", "", "", ""]);
        let numbers: Vec<_> = values.iter().map(Scalar::number).collect();
        assert_eq!(numbers[..3], [Some(1), Some(2), None]);
    }

    #[test]
    fn a_list_has_a_bound() {
        let list = |rows: usize| format!("[{}]", vec!["1"; rows].join(","));
        assert_eq!(rows(&list(MOST_ROWS)).unwrap().len(), MOST_ROWS);
        assert!(rows(&list(MOST_ROWS + 1)).unwrap_err().contains("more than 20000 rows"));
    }
}
