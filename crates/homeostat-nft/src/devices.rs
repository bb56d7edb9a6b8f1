//! The links that chains and flowtables of a text hook into. Pure.
//!
//! Quirk `hooks-want-links` (Linux 6.1): `nft add chain netdev t c '{ type filter hook ingress device x
//! priority 0; }'` is refused with ENOENT as long as there is no link `x`. Linux 6.18 takes it, and hooks
//! in when the link comes. Which place of a text was meant, the refusal does not tell.

use std::collections::BTreeSet;

/// Every name behind `device` and `devices`, also by way of a `define`.
pub(crate) fn named(text: &str) -> BTreeSet<String> {
    let spaced = text.chars().flat_map(spaced).collect::<String>();
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut names = BTreeSet::new();
    for (at, word) in words.iter().enumerate() {
        if matches!(*word, "device" | "devices") {
            let rest = words.get(at + 1..).unwrap_or_default();
            names.extend(values(rest).iter().flat_map(|name| meant(&words, name)));
        }
    }
    names
}

/// Signs become words of their own.
fn spaced(c: char) -> impl Iterator<Item = char> {
    let (before, after) = if "{},;=".contains(c) { (Some(' '), Some(' ')) } else { (None, None) };
    let kept = (c != '"').then_some(c);
    before.into_iter().chain(kept).chain(after)
}

/// `x`, `= x` and `= { x, y }`.
fn values<'a>(words: &[&'a str]) -> Vec<&'a str> {
    let words = words.strip_prefix(&["="]).unwrap_or(words);
    match words.strip_prefix(&["{"]) {
        Some(list) => {
            let inside = list.iter().take_while(|word| **word != "}");
            inside.filter(|word| **word != ",").copied().collect()
        }
        None => words.first().copied().into_iter().collect(),
    }
}

/// A name, or what a `define` says that it is.
fn meant(words: &[&str], name: &str) -> Vec<String> {
    let Some(variable) = name.strip_prefix('$') else { return vec![name.to_owned()] };
    let is_it = |pair: &[&str]| pair == ["define", variable];
    let defined = words.windows(2).position(is_it).and_then(|at| words.get(at + 2..));
    // What is defined by something defined is left to who wrote it.
    let names = defined.map(values).unwrap_or_default().into_iter();
    names.filter(|name| !name.starts_with('$')).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_links_of_hooks_are_found_in_every_way_to_write_them() {
        let check = |text: &str, expected: &[&str]| {
            assert_eq!(named(text).iter().map(String::as_str).collect::<Vec<_>>(), expected);
        };
        check("chain x { type filter hook ingress device eth0 priority 0; }", &["eth0"]);
        check("hook ingress device \"eth0\" priority 0;", &["eth0"]);
        check("flowtable f { hook ingress priority 0; devices = { b, a }; }", &["a", "b"]);
        check("flowtable f { hook ingress priority 0; devices={a,b}; }", &["a", "b"]);
        check("define lan = { a, b }\ndevices = $lan;", &["a", "b"]);
        check("define wan=a\nhook ingress device $wan priority 0", &["a"]);
        check("device $nowhere", &[]);
        check("iif eth0 accept", &[]);
        check("device", &[]);
    }
}
