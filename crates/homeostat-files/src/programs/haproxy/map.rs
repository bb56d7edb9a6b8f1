//! Map files, and how their entries are changed in a running `HAProxy`.

/// The entries of a map, in their order: it decides which one is found.
pub(crate) type Entries = Vec<(String, String)>;

/// Reads a map as `HAProxy` does; nothing, if it holds what could be read in another way.
pub(crate) fn parse(content: &[u8]) -> Option<Entries> {
    let text = str::from_utf8(content).ok()?;
    if text.chars().any(|c| c.is_control() && c != '\n' && c != '\t') {
        return None;
    }
    let lines = text.lines().map(|line| line.trim_matches([' ', '\t']));
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    Some(lines.map(entry).collect())
}

/// Reads the answer to `show map`: each entry behind its address in memory.
pub(crate) fn parse_shown(answer: &str) -> Entries {
    let lines = answer
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(address, _)| address.starts_with("0x"));
    lines.map(|(_, line)| entry(line)).collect()
}

fn entry(line: &str) -> (String, String) {
    let (key, value) = line.split_once([' ', '\t']).unwrap_or((line, ""));
    (key.to_owned(), value.trim_matches([' ', '\t']).to_owned())
}

/// How a map becomes another one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Update {
    /// By single commands.
    Few(Vec<String>),
    /// By a whole new version.
    Whole,
}

/// More than so many entries are written as a new version of the map.
const FEW: usize = 64;

/// How the entries that are there become those that are declared. Single commands can set, delete and append; what would
/// change the order otherwise is a new version, and so is what would have to be quoted.
pub(crate) fn update(path: &str, is: &Entries, wanted: &Entries) -> Update {
    use std::collections::HashMap;
    let by_key = |entries: &Entries| {
        let map: HashMap<String, String> = entries.iter().cloned().collect();
        (map.len() == entries.len()).then_some(map)
    };
    let (Some(old), Some(new)) = (by_key(is), by_key(wanted)) else { return Update::Whole };
    let stays: Vec<&String> =
        is.iter().map(|(key, _)| key).filter(|key| new.contains_key(*key)).collect();
    let in_order = stays.iter().zip(wanted).all(|(is, (wanted, _))| *is == wanted);
    let deleted = is.iter().filter(|(key, _)| !new.contains_key(key));
    let deleted = deleted.map(|(key, _)| (key, format!("del map {path} {key}")));
    let changed = wanted.iter().filter_map(|(key, value)| match old.get(key) {
        Some(old) if old == value => None,
        Some(_) => Some((key, value, "set")),
        None => Some((key, value, "add")),
    });
    let changed: Vec<_> = changed.collect();
    let is_plain = |text: &str| {
        !text.is_empty()
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-:/@*+=,%".contains(c))
    };
    let all_plain =
        is_plain(path) && changed.iter().all(|(key, value, _)| is_plain(key) && is_plain(value));
    let deleted: Vec<_> = deleted.collect();
    let is_few = deleted.len() + changed.len() <= FEW;
    if !in_order || !all_plain || !is_few || !deleted.iter().all(|(key, _)| is_plain(key)) {
        return Update::Whole;
    }
    let changed =
        changed.into_iter().map(|(key, value, verb)| format!("{verb} map {path} {key} {value}"));
    Update::Few(deleted.into_iter().map(|(_, command)| command).chain(changed).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_commands_keep_the_order_and_everything_else_is_a_new_version() {
        let entries = |text: &str| parse(text.as_bytes()).unwrap();
        for (is, wanted, expected) in [
            ("a 1\nb 2\n", "a 1\nb 3\nc 4\n", Some(vec!["set map /m b 3", "add map /m c 4"])),
            ("a 1\nb 2\n", "b 2\n", Some(vec!["del map /m a"])),
            ("a 1\nb 2\n", "b 2\na 1\n", None),
            ("a 1\nb 2\n", "c 1\na 1\nb 2\n", None),
            ("a 1\n", "a 1\na 2\n", None),
            ("a 1\n", "a x;y\n", None),
            ("a 1\n", "a\n", None),
        ] {
            let expected = expected.map_or(Update::Whole, |few| {
                Update::Few(few.into_iter().map(str::to_owned).collect())
            });
            assert_eq!(
                update("/m", &entries(is), &entries(wanted)),
                expected,
                "{is} became {wanted}"
            );
        }
    }
}
