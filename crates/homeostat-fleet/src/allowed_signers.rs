//! Who may sign: a file in OpenSSH's format of allowed signers, and the rule that k distinct keys have signed.
//!
//! ```text
//! # principals       options                         key
//! ann@example.net    namespaces="homeostat-rollout"  ssh-ed25519 AAAAC3…
//! bob@example.net    valid-before="20270101Z"        sk-ssh-ed25519@openssh.com AAAAGn…
//! ```
//!
//! What OpenSSH knows and this crate does not (certificate authorities, other types of keys, times of the local zone)
//! is refused with its line: a line that is skipped in silence would change who may sign.

use std::collections::BTreeSet;

use crate::base64;
use crate::error::{Error, SignatureError};
use crate::signature::{PLAIN, PublicKey, Signature, TOKEN};
use crate::time::Time;

/// The keys that may sign.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedSigners {
    signers: Vec<Signer>,
}

/// One line of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signer {
    /// Who it is, for people: nothing is decided by it.
    pub principals: String,
    pub key: PublicKey,
    /// Patterns; any namespace if there are none.
    namespaces: Option<Vec<String>>,
    valid_after: Option<Time>,
    valid_before: Option<Time>,
}

/// The signatures that count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    /// Principals and fingerprint of each key, sorted.
    pub by: Vec<String>,
    /// A key was taken although its time could not be judged, since the clock is not synchronized.
    pub without_time: bool,
}

/// More signatures than this are not looked at: each costs time.
const MOST_SIGNATURES: usize = 32;

impl AllowedSigners {
    /// Reads the text of the file.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
        let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let signers = lines.map(|(number, line)| {
            Signer::parse(line).map_err(|why| Error::AllowedSigners { line: number, why })
        });
        Ok(AllowedSigners { signers: signers.collect::<Result<_, _>>()? })
    }

    #[must_use]
    pub fn signers(&self) -> &[Signer] {
        &self.signers
    }

    /// Whether at least `needed` distinct keys of the list have signed these bytes for this namespace. Signatures that do
    /// not count do no harm: everyone who writes to the store can add them. `now` is none if the clock is not synchronized.
    pub fn verify(
        &self,
        message: &[u8],
        namespace: &str,
        signatures: &[String],
        needed: usize,
        now: Option<Time>,
    ) -> Result<Approval, Error> {
        let mut keys = BTreeSet::new();
        let mut approval = Approval { by: Vec::new(), without_time: false };
        let mut refused = Vec::new();
        for armored in signatures.iter().take(MOST_SIGNATURES) {
            match self.judge(message, namespace, armored, now) {
                Ok(signer) => {
                    if keys.insert(&signer.key) {
                        approval.by.push(format!("{} {}", signer.principals, signer.key));
                        approval.without_time |= now.is_none() && signer.has_times();
                    }
                }
                Err(why) => refused.push(why),
            }
        }
        let needed = needed.max(1);
        if keys.len() < needed {
            return Err(Error::TooFewSignatures { valid: keys.len(), needed, refused });
        }
        approval.by.sort();
        Ok(approval)
    }

    fn judge(
        &self,
        message: &[u8],
        namespace: &str,
        armored: &str,
        now: Option<Time>,
    ) -> Result<&Signer, String> {
        let signature = Signature::parse(armored).map_err(|error| error.to_string())?;
        let named = |why: String| format!("{}: {why}", signature.key());
        let of_key = self.signers.iter().filter(|signer| signer.key == *signature.key());
        let mut reasons = of_key.map(|signer| signer.admits(namespace, now).map(|()| signer));
        let Some(first) = reasons.next() else {
            return Err(named("this key is not in the list of allowed signers".to_owned()));
        };
        // The lines of one key are alternatives.
        let signer = reasons.fold(first, Result::or).map_err(|why| named(why.to_owned()))?;
        let verified = signature.verify(message, namespace);
        verified.map_err(|error: SignatureError| named(error.to_string()))?;
        Ok(signer)
    }
}

impl Signer {
    fn parse(line: &str) -> Result<Self, String> {
        let mut fields = split(line)?.into_iter();
        let principals = unquote(&fields.next().ok_or("there are no principals")?)?;
        let mut signer = Signer {
            principals,
            key: PublicKey::Ed25519 { key: Vec::new() },
            namespaces: None,
            valid_after: None,
            valid_before: None,
        };
        let mut field = fields.next().ok_or("there is no key")?;
        if ![PLAIN, TOKEN].contains(&field.as_str()) && !is_kind_of_key(&field) {
            signer.take_options(&field)?;
            field = fields.next().ok_or("there is no key")?;
        }
        if ![PLAIN, TOKEN].contains(&field.as_str()) {
            return Err(format!(
                "keys of type `{field}` cannot be used here: use {PLAIN} or {TOKEN}"
            ));
        }
        let text = fields.next().ok_or("the key is cut off")?;
        let bytes = base64::decode(text.as_bytes()).ok_or("the key is not in base64")?;
        signer.key =
            PublicKey::read(&bytes).map_err(|error| format!("the key is damaged: {error}"))?;
        if signer.key.kind() != field {
            return Err(format!("the key is of type {}, not {field}", signer.key.kind()));
        }
        Ok(signer)
    }

    fn take_options(&mut self, text: &str) -> Result<(), String> {
        for option in split_quoted(text, ',')? {
            let (name, value) = option.split_once('=').unwrap_or((&option, ""));
            match name.to_ascii_lowercase().as_str() {
                "namespaces" if self.namespaces.is_none() => {
                    let patterns = unquote(value)?;
                    self.namespaces = Some(patterns.split(',').map(str::to_owned).collect());
                }
                "valid-after" if self.valid_after.is_none() => {
                    self.valid_after = Some(utc(&unquote(value)?)?);
                }
                "valid-before" if self.valid_before.is_none() => {
                    self.valid_before = Some(utc(&unquote(value)?)?);
                }
                "namespaces" | "valid-after" | "valid-before" => {
                    return Err(format!("`{name}` is there twice"));
                }
                "cert-authority" => {
                    return Err(
                        "certificates cannot be used here: list the keys themselves".to_owned()
                    );
                }
                _ => return Err(format!("`{name}` is no option of allowed signers")),
            }
        }
        Ok(())
    }

    fn has_times(&self) -> bool {
        self.valid_after.is_some() || self.valid_before.is_some()
    }

    fn admits(&self, namespace: &str, now: Option<Time>) -> Result<(), &'static str> {
        if self.namespaces.as_ref().is_some_and(|patterns| !matches_list(patterns, namespace)) {
            return Err("this key may not sign for this namespace");
        }
        let is_too_early = |now: Time| self.valid_after.is_some_and(|start| now < start);
        let is_too_late = |now: Time| self.valid_before.is_some_and(|end| now > end);
        match now {
            Some(now) if is_too_early(now) => Err("this key is not valid yet"),
            Some(now) if is_too_late(now) => Err("this key is no longer valid"),
            _ => Ok(()),
        }
    }
}

/// Types that OpenSSH knows, ours included, and their certificates.
fn is_kind_of_key(field: &str) -> bool {
    let starts = ["ssh-", "sk-ssh-", "ecdsa-sha2-", "sk-ecdsa-sha2-", "webauthn-"];
    starts.iter().any(|start| field.starts_with(start))
}

/// Fields between blanks. Blanks between quotes belong to their field.
fn split(line: &str) -> Result<Vec<String>, String> {
    let fields = split_quoted(&line.replace('\t', " "), ' ')?;
    Ok(fields.into_iter().filter(|field| !field.is_empty()).collect())
}

fn split_quoted(text: &str, separator: char) -> Result<Vec<String>, String> {
    let mut fields = vec![String::new()];
    let mut is_quoted = false;
    for letter in text.chars() {
        is_quoted ^= letter == '"';
        match fields.last_mut() {
            Some(field) if letter != separator || is_quoted => field.push(letter),
            _ => fields.push(String::new()),
        }
    }
    if is_quoted { Err("a quote is not closed".to_owned()) } else { Ok(fields) }
}

fn unquote(text: &str) -> Result<String, String> {
    let quoted = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    let text = quoted.unwrap_or(text);
    if text.is_empty() || text.contains('"') {
        return Err("a value is empty, or has a quote inside".to_owned());
    }
    Ok(text.to_owned())
}

/// `YYYYMMDDZ`, `YYYYMMDDHHMMZ` or `YYYYMMDDHHMMSSZ`. Without the `Z`, OpenSSH takes the zone of the machine that looks.
fn utc(text: &str) -> Result<Time, String> {
    let refuse =
        || format!("`{text}` is no time in UTC: write 20270131Z, 202701311200Z or 20270131120000Z");
    let digits = text.strip_suffix('Z').ok_or_else(refuse)?;
    if ![8, 12, 14].contains(&digits.len()) || !digits.bytes().all(|it| it.is_ascii_digit()) {
        return Err(refuse());
    }
    let digits = format!("{digits:0<14}");
    let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
    let (year, month, day) = (part(0, 4), part(4, 6), part(6, 8));
    let (hour, minute, second) = (part(8, 10), part(10, 12), part(12, 14));
    let time = format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z");
    time.parse().map_err(|_| refuse())
}

/// OpenSSH's lists of patterns: `!` excludes, and one that excludes decides.
fn matches_list(patterns: &[String], text: &str) -> bool {
    let excluded = patterns.iter().filter_map(|pattern| pattern.strip_prefix('!'));
    let mut included = patterns.iter().filter(|pattern| !pattern.starts_with('!'));
    !excluded.into_iter().any(|pattern| matches(pattern.as_bytes(), text.as_bytes()))
        && included.any(|pattern| matches(pattern.as_bytes(), text.as_bytes()))
}

/// `*` stands for any text, `?` for any letter. It goes back to the last star only, so it is quick for any pattern.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut place) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while place < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, place));
                at += 1;
            }
            Some(letter) if *letter == b'?' || text.get(place) == Some(letter) => {
                at += 1;
                place += 1;
            }
            _ => match &mut star {
                Some((start, from)) => {
                    *from += 1;
                    (at, place) = (*start + 1, *from);
                }
                None => return false,
            },
        }
    }
    pattern.get(at..).is_some_and(|rest| rest.iter().all(|letter| *letter == b'*'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An arbitrary key: nothing is signed with it.
    const KEY: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f";

    #[test]
    fn a_list_as_openssh_writes_it_is_read() {
        let text = format!(
            "# who may sign\n\nann@a,*@b {KEY} a comment\n\"bob and co\" namespaces=\"x,y-*\",valid-after=\"20260101Z\" {KEY}\n\
             carl\tvalid-before=20270131120000Z\t{KEY}\n"
        );
        let signers = AllowedSigners::parse(&text).unwrap().signers;
        let principals: Vec<_> = signers.iter().map(|signer| signer.principals.as_str()).collect();
        assert_eq!(principals, ["ann@a,*@b", "bob and co", "carl"]);
        assert_eq!(signers[1].valid_after.unwrap().to_string(), "2026-01-01T00:00:00Z");
        assert_eq!(signers[2].valid_before.unwrap().to_string(), "2027-01-31T12:00:00Z");
        let now = Some("2026-06-01T00:00:00Z".parse().unwrap());
        assert_eq!(signers[1].admits("y-1", now), Ok(()));
        assert_eq!(signers[1].admits("z", now), Err("this key may not sign for this namespace"));
        let early = Some("2025-12-31T23:59:59Z".parse().unwrap());
        assert_eq!(signers[1].admits("x", early), Err("this key is not valid yet"));
        assert_eq!(signers[1].admits("x", None), Ok(()));
        let late = Some("2027-01-31T12:00:01Z".parse().unwrap());
        assert_eq!(signers[2].admits("any", late), Err("this key is no longer valid"));
    }

    #[test]
    fn a_line_that_cannot_be_honoured_is_refused_with_its_number() {
        let check = |line: &str, expected: &str| {
            let error = AllowedSigners::parse(&format!("# first\n{line}\n")).unwrap_err();
            assert_eq!(error.to_string(), format!("line 2 of the allowed signers: {expected}"));
        };
        check("ann", "there is no key");
        check("ann ssh-ed25519", "the key is cut off");
        check("ann ssh-ed25519 AAA", "the key is not in base64");
        check("ann ssh-ed25519 AAAA", "the key is damaged: it ends too early");
        check(
            "ann ssh-rsa AAAA",
            "keys of type `ssh-rsa` cannot be used here: use ssh-ed25519 or sk-ssh-ed25519@openssh.com",
        );
        let cert = format!("*@a cert-authority {KEY}");
        check(&cert, "certificates cannot be used here: list the keys themselves");
        check(
            &format!("ann principals=\"x\" {KEY}"),
            "`principals` is no option of allowed signers",
        );
        check(&format!("ann namespaces=\"x {KEY}"), "a quote is not closed");
        check(&format!("ann namespaces=x,namespaces=y {KEY}"), "`namespaces` is there twice");
        check(
            &format!("ann valid-before=20270101 {KEY}"),
            "`20270101` is no time in UTC: write 20270131Z, 202701311200Z or 20270131120000Z",
        );
        let token = KEY.replace("ssh-ed25519", TOKEN);
        check(
            &format!("ann {token}"),
            "the key is of type ssh-ed25519, not sk-ssh-ed25519@openssh.com",
        );
    }

    #[test]
    fn patterns_match_as_in_openssh() {
        let check = |list: &str, text: &str, expected: bool| {
            let list: Vec<String> = list.split(',').map(str::to_owned).collect();
            assert_eq!(matches_list(&list, text), expected, "{list:?} {text}");
        };
        check("a", "a", true);
        check("a", "ab", false);
        check("a*", "ab", true);
        check("*b*d", "abcbd", true);
        check("*b*d", "abcde", false);
        check("a?c", "abc", true);
        check("a?c", "ac", false);
        check("*,!b", "b", false);
        check("*,!b", "a", true);
        check("!b", "a", false);
        check("a**", "a", true);
        let star = "*a".repeat(50);
        check(&star, &"a".repeat(49), false);
    }
}
