//! The filters and functions that templates have besides those of the engine. None of them reads anything but its
//! arguments.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use minijinja::value::{Rest, Value};
use minijinja::{Environment, Error, ErrorKind};

/// How the filter `quote` writes a value, by what the program reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Quoting {
    /// `"..."` with a backslash before quotes and backslashes: unbound, BIRD, nginx, keepalived.
    #[default]
    Backslash,
    /// `'...'` in which nothing is special: shells, and `HAProxy`, which replaces variables in double quotes.
    Shell,
}

/// A template has called `fail`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Failed(pub(crate) String);

pub(crate) fn add(environment: &mut Environment<'_>, quoting: Quoting) {
    environment.add_function("fail", fail);
    environment.add_filter("ip", ip);
    environment.add_filter("network", network);
    environment.add_filter("quote", move |value: &Value| quote(quoting, value));
    environment.add_filter("sort_by", sort_by);
    environment.add_filter("unique_by", unique_by);
}

fn refused(message: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

fn fail(text: String) -> Result<Value, Error> {
    Err(refused("the template has failed".to_owned()).with_source(Failed(text)))
}

/// The address, with or without the length of a prefix behind it, in its one spelling.
fn ip(text: &str) -> Result<String, Error> {
    let address: Option<IpAddr> =
        text.parse().ok().or_else(|| Some(text.parse::<IpNet>().ok()?.addr()));
    let address = address.ok_or_else(|| refused(format!("`{text}` is no IP address")))?;
    Ok(address.to_string())
}

/// The network that an address with the length of a prefix is in.
fn network(text: &str) -> Result<String, Error> {
    let network: IpNet = text.parse().map_err(|_| {
        refused(format!("`{text}` is no address with a length, such as 192.0.2.1/24"))
    })?;
    Ok(network.trunc().to_string())
}

/// Refuses what would end the line: no program has a way to write it that all understand.
fn quote(quoting: Quoting, value: &Value) -> Result<String, Error> {
    let text = value.to_string();
    if text.contains(|c: char| c.is_control()) {
        return Err(refused(
            "a text with a line break or another control character cannot be quoted".to_owned(),
        ));
    }
    Ok(match quoting {
        Quoting::Backslash => format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")),
        Quoting::Shell => format!("'{}'", text.replace('\'', "'\\''")),
    })
}

/// Sorts by one attribute, then by the next; equal ones stay in order.
fn sort_by(items: &Value, Rest(attributes): Rest<String>) -> Result<Value, Error> {
    let mut sorted = keyed(items, &attributes)?;
    sorted.sort_by(|(left, _), (right, _)| left.cmp(right));
    Ok(sorted.into_iter().map(|(_, item)| item).collect())
}

/// Keeps the first of those in which these attributes are the same.
fn unique_by(items: &Value, Rest(attributes): Rest<String>) -> Result<Value, Error> {
    let mut seen = BTreeSet::new();
    let items = keyed(items, &attributes)?.into_iter();
    Ok(items.filter_map(|(key, item)| seen.insert(key).then_some(item)).collect())
}

/// Items with their attributes. An item that lacks one is a mistake.
fn keyed(items: &Value, attributes: &[String]) -> Result<Vec<(Vec<Value>, Value)>, Error> {
    if attributes.is_empty() {
        return Err(Error::new(ErrorKind::MissingArgument, "by which attribute?"));
    }
    let mut keyed = Vec::new();
    for item in items.try_iter()? {
        let mut key = Vec::new();
        for attribute in attributes {
            let value = item.get_attr(attribute)?;
            if value.is_undefined() {
                return Err(refused(format!("an item has no attribute `{attribute}`")));
            }
            key.push(value);
        }
        keyed.push((key, item));
    }
    Ok(keyed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(quoting: Quoting, template: &str) -> Result<String, String> {
        let mut environment = Environment::new();
        add(&mut environment, quoting);
        environment.render_str(template, ()).map_err(|error| error.to_string())
    }

    #[track_caller]
    fn check(template: &str, expected: &str) {
        assert_eq!(render(Quoting::Backslash, template).as_deref(), Ok(expected), "{template}");
    }

    #[track_caller]
    fn check_refused(template: &str) {
        assert!(render(Quoting::Backslash, template).is_err(), "{template}");
    }

    #[test]
    fn addresses_and_networks_have_one_spelling() {
        check("{{ '192.0.2.1/24' | ip }}", "192.0.2.1");
        check("{{ '2001:DB8:0::1' | ip }}", "2001:db8::1");
        check("{{ '192.0.2.1/24' | network }}", "192.0.2.0/24");
        check("{{ '2001:db8::1/64' | network }}", "2001:db8::/64");
        for bad in ["x", "192.0.2.300", "192.0.2.1/33", "192.0.2.1/", "192.0.2.1/x", ""] {
            check_refused(&format!("{{{{ '{bad}' | network }}}}"));
            check_refused(&format!("{{{{ '{bad}' | ip }}}}"));
        }
    }

    #[test]
    fn a_quoted_value_stays_one_word_in_one_line() {
        check(r#"{{ 'a "b" \\' | quote }}"#, r#""a \"b\" \\""#);
        check("{{ 7 | quote }}", "\"7\"");
        let shell = render(Quoting::Shell, r#"{{ "it's $HOME" | quote }}"#);
        assert_eq!(shell.as_deref(), Ok(r"'it'\''s $HOME'"));
        check_refused(r"{{ 'a\nb' | quote }}");
    }

    #[test]
    fn lists_are_sorted_and_cleared_of_doubles_by_attributes() {
        let list = "[{'n': 'b', 'w': 2}, {'n': 'a', 'w': 10}, {'n': 'a', 'w': 1}]";
        let names = "| map(attribute='n') | join(' ')";
        let weights = "| map(attribute='w') | join(' ')";
        check(&format!("{{{{ {list} | sort_by('n') {weights} }}}}"), "10 1 2");
        check(&format!("{{{{ {list} | sort_by('n', 'w') {weights} }}}}"), "1 10 2");
        check(&format!("{{{{ {list} | sort_by('w') {weights} }}}}"), "1 2 10");
        check(&format!("{{{{ {list} | unique_by('n') {names} }}}}"), "b a");
        check_refused(&format!("{{{{ {list} | sort_by('x') }}}}"));
        check_refused(&format!("{{{{ {list} | sort_by }}}}"));
    }

    #[test]
    fn a_template_can_fail() {
        check_refused("{{ fail('no servers') }}");
    }
}
