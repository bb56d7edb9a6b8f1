//! Licence expressions: `MIT OR (Apache-2.0 AND BSD-3-Clause)`, and the older `MIT/Apache-2.0`.

/// Whether somebody who accepts only `allowed` can use what is offered under `expression`.
/// What cannot be read is not accepted.
pub(crate) fn is_satisfied(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words: Vec<&str> = spaced.split_whitespace().rev().collect();
    let accepted = any_of(&mut words, allowed);
    accepted == Some(true) && words.is_empty()
}

/// `words` are in reverse: the next one is the last. `AND` binds tighter than `OR`.
fn any_of(words: &mut Vec<&str>, allowed: &[String]) -> Option<bool> {
    let mut accepted = all_of(words, allowed)?;
    while words.last() == Some(&"OR") {
        words.pop();
        accepted |= all_of(words, allowed)?;
    }
    Some(accepted)
}

fn all_of(words: &mut Vec<&str>, allowed: &[String]) -> Option<bool> {
    let mut accepted = one(words, allowed)?;
    while words.last() == Some(&"AND") {
        words.pop();
        accepted &= one(words, allowed)?;
    }
    Some(accepted)
}

fn one(words: &mut Vec<&str>, allowed: &[String]) -> Option<bool> {
    let word = words.pop()?;
    if word == "(" {
        let accepted = any_of(words, allowed)?;
        return (words.pop() == Some(")")).then_some(accepted);
    }
    let mut licence = word.to_owned();
    if words.last() == Some(&"WITH") {
        words.pop();
        licence = format!("{word} WITH {}", words.pop()?);
    }
    Some(allowed.contains(&licence))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expression: &str, accepted: bool) {
        let allowed = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "ISC"];
        let allowed = allowed.map(str::to_owned);
        assert_eq!(is_satisfied(expression, &allowed), accepted, "{expression}");
    }

    #[test]
    fn one_accepted_choice_is_enough() {
        check("MIT", true);
        check("GPL-3.0 OR MIT", true);
        check("MIT/GPL-2.0", true);
        check("GPL-3.0", false);
    }

    #[test]
    fn every_part_of_an_and_must_be_accepted() {
        check("MIT AND ISC", true);
        check("MIT AND GPL-3.0", false);
        check("GPL-3.0 AND MIT OR ISC", true);
        check("GPL-3.0 AND (MIT OR ISC)", false);
        check("(MIT OR Apache-2.0) AND ISC", true);
    }

    #[test]
    fn an_exception_belongs_to_its_licence() {
        check("Apache-2.0 WITH LLVM-exception OR GPL-3.0", true);
        check("MIT WITH LLVM-exception", false);
    }

    #[test]
    fn what_cannot_be_read_is_not_accepted() {
        for expression in ["", "MIT OR", "(MIT", "MIT ISC", "MIT)", "OR MIT"] {
            check(expression, false);
        }
    }
}
