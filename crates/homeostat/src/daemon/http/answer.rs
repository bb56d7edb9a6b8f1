//! What a client gets.

use super::request::{Method, Refusal};

/// An answer that is complete.
#[derive(Debug)]
pub(super) struct Answer {
    status: u16,
    kind: &'static str,
    body: String,
}

pub(super) const JSON: &str = "application/json";
pub(super) const JSON_LINES: &str = "application/x-ndjson";
pub(super) const METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

impl Answer {
    /// A page.
    pub(super) fn new(status: u16, kind: &'static str, body: String) -> Self {
        Answer { status, kind, body }
    }

    /// Plain words.
    pub(super) fn text(status: u16, words: &str) -> Self {
        Answer::new(status, TEXT, format!("{words}\n"))
    }

    #[cfg(test)]
    pub(super) fn status(&self) -> u16 {
        self.status
    }

    /// All of it, as bytes. Who asks for the head alone is told how long the rest would be.
    pub(super) fn into_bytes(self, method: Method) -> Vec<u8> {
        let Answer { status, kind, body } = self;
        let allow = if status == 405 { "Allow: GET, HEAD\r\n" } else { "" };
        let length = body.len();
        let head = head(status, kind, &format!("{allow}Content-Length: {length}\r\n"));
        let body = if method == Method::Get { body } else { String::new() };
        (head + &body).into_bytes()
    }
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        Answer::text(refusal.status, refusal.why)
    }
}

/// The head of an answer. A connection carries one request: nothing is left to be guessed about
/// where the next one begins.
pub(super) fn head(status: u16, kind: &str, more: &str) -> String {
    let words = words(status);
    format!(
        "HTTP/1.1 {status} {words}\r\nContent-Type: {kind}\r\n{more}Cache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    )
}

fn words(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => "Internal Server Error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_tells_the_length_of_what_it_leaves_out() {
        let page = || Answer::text(200, "yes");
        let (whole, head) = (page().into_bytes(Method::Get), page().into_bytes(Method::Head));
        assert!(whole.ends_with(b"\r\n\r\nyes\n"));
        assert_eq!(whole.strip_suffix(b"yes\n"), Some(&*head));
        assert!(String::from_utf8(head).unwrap().contains("Content-Length: 4\r\n"));
    }
}
