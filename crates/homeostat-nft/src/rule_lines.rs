//! Which line of the user's own text each rule comes from. Pure.
//!
//! `nft` and the kernel do not keep it. But blocks of rules only append, so that the n-th statement
//! of a chain is its n-th rule, as long as nothing but blocks follows the first one. Where that is not
//! certain, no line is known, and rules are shown as `nft` lists them.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::key::Key;
use crate::lexer::{Ends, code, statements};
use crate::model::{Rule, Table};

/// A rule in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuleText {
    /// As `nft` lists it.
    pub(crate) listed: String,
    /// As the user wrote it, where that is known.
    pub(crate) source: Option<SourceLine>,
}

/// What the user wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SourceLine {
    /// In one line, without comments.
    pub(crate) text: String,
    /// File and line.
    pub(crate) place: String,
}

/// Gives rules the lines that they come from; `place` is the file and line of a line of the whole text.
pub(crate) fn attach(text: &str, place: impl Fn(usize) -> String, tables: &mut [Table]) {
    let Some(chains) = chains(text) else { return };
    let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
    let line = |at: usize| ends.partition_point(|end| *end < at) + 1;
    for table in tables {
        for (chain, compiled) in &table.chains {
            let known = chains.get(&(table.key.clone(), chain.clone()));
            let Some(known) = known.filter(|known| known.len() == compiled.rules.len()) else {
                continue;
            };
            for (rule, at) in compiled.rules.iter().zip(known) {
                let place = place(line(at.start));
                let source =
                    text.get(at.clone()).map(|text| SourceLine { text: in_one_line(text), place });
                table.texts.entry(rule.handle).or_default().source = source;
            }
        }
    }
}

/// Whether the line of each rule of a table is known.
pub(crate) fn knows_all(table: &Table) -> bool {
    let has_line =
        |rule: &Rule| table.texts.get(&rule.handle).is_some_and(|words| words.source.is_some());
    table.chains.values().flat_map(|chain| &chain.rules).all(has_line)
}

type Chains = BTreeMap<(Key, String), Vec<Range<usize>>>;

/// The rules of each chain; nothing, if anything but blocks may have had a part in them.
fn chains(text: &str) -> Option<Chains> {
    let mut chains = Chains::new();
    for statement in statements(text, 0..text.len(), Ends::WithBlock) {
        let (words, body) = head(text, &statement);
        match words.as_slice() {
            ["define" | "redefine" | "undefine", ..] => {}
            ["table", rest @ ..] | ["add", "table", rest @ ..] => {
                let key = match rest {
                    [name] => format!("table ip {name}"),
                    [family, name] => format!("table {family} {name}"),
                    _ => return None,
                };
                let key: Key = key.parse().ok()?;
                for statement in
                    body.into_iter().flat_map(|body| statements(text, body, Ends::WithBlock))
                {
                    let (words, Some(body)) = head(text, &statement) else { continue };
                    if words.first() == Some(&"chain") {
                        let [_, name] = words[..] else { return None };
                        let rules = chains.entry((key.clone(), name.to_owned())).or_default();
                        rules.extend(rules_in(text, body));
                    }
                }
            }
            _ => return None,
        }
    }
    Some(chains)
}

fn rules_in(text: &str, body: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    const NO_RULES: [&str; 8] =
        ["type", "policy", "comment", "devices", "flags", "define", "redefine", "undefine"];
    statements(text, body, Ends::WithLine).filter(|at| {
        let first = code(text.get(at.clone()).unwrap_or_default()).next();
        first.is_some_and(|first| !NO_RULES.contains(&first.text))
    })
}

/// The words before a block, and what is inside of it.
fn head<'a>(text: &'a str, statement: &Range<usize>) -> (Vec<&'a str>, Option<Range<usize>>) {
    let whole = text.get(statement.clone()).unwrap_or_default();
    let (head, body) = match whole.strip_suffix('}').and_then(|_| whole.find('{')) {
        Some(open) => (whole.get(..open), Some(statement.start + open + 1..statement.end - 1)),
        None => (Some(whole), None),
    };
    (head.unwrap_or_default().split_whitespace().collect(), body)
}

/// For people: blanks are one blank, and comments are gone.
fn in_one_line(text: &str) -> String {
    let (mut line, mut end) = (String::new(), 0);
    for token in code(text).filter(|token| token.text != "\n") {
        if token.start > end && !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&token.text.replace('\n', " "));
        end = token.end();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rules of each chain, as they are shown, with their lines.
    fn known(text: &str) -> Option<Vec<(String, Vec<String>)>> {
        let rule = |at: &Range<usize>| {
            let line = text[..at.start].matches('\n').count() + 1;
            format!("{line}: {}", in_one_line(&text[at.clone()]))
        };
        let shown = |((key, chain), rules): ((Key, String), Vec<Range<usize>>)| {
            (format!("{key} {chain}"), rules.iter().map(rule).collect())
        };
        chains(text).map(|chains| chains.into_iter().map(shown).collect())
    }

    fn check(text: &str, chain: &str, expected: &[&str]) {
        let known = known(text).unwrap();
        let found = known.iter().find(|(name, _)| name == chain);
        assert_eq!(found.map(|(_, rules)| rules.clone()).unwrap_or_default(), expected, "{text}");
    }

    #[test]
    fn each_statement_of_a_chain_is_a_rule() {
        let text = "#!/usr/sbin/nft -f\ndefine wan = { eth0,\n eth1 }\n\ntable inet filter {\n\
            \tcomment \"{ a; b\"\n\tset s { type ipv4_addr; elements = { 1.1.1.1, # one }\n 2.2.2.2 } }\n\
            \tchain input { # the way in {\n\t\ttype filter hook input priority 0; policy drop;\n\
            \t\tiif $wan   accept # a ; comment\n\n\t\ttcp dport { 22,\n\t\t\t80 # web\n\t\t} counter accept; udp dport 53 \\\n\
            \t\t  accept comment \"x; # y\"\n\t\tjump { drop; accept; }\n\t}\n} table a { chain input { drop } }\n";
        check(
            text,
            "table inet filter input",
            &[
                "11: iif $wan accept",
                "13: tcp dport { 22, 80 } counter accept",
                "15: udp dport 53 accept comment \"x; # y\"",
                "17: jump { drop; accept; }",
            ],
        );
        check(text, "table ip a input", &["19: drop"]);
    }

    #[test]
    fn blocks_of_one_chain_follow_each_other() {
        let text = "table ip a { chain x { accept; }; }\nadd table ip a { chain x { drop; } }\n";
        check(text, "table ip a x", &["1: accept", "2: drop"]);
    }

    #[test]
    fn wherever_something_else_may_have_a_part_in_it_nothing_is_known() {
        for text in [
            "table ip a { chain x { accept; }; }\nadd rule ip a x drop",
            "table ip a { chain x { accept; }; }\nflush chain ip a x",
            "table ip a { chain x { accept; }; }\n}",
        ] {
            assert_eq!(known(text), None, "{text}");
        }
    }
}
