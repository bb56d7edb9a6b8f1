//! What a client asks for, from the bytes that it sent. Pure, and trusting nothing.

/// The most that a request's head may be.
pub(super) const MOST: usize = 8 * 1024;

/// A request that may be answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) method: Method,
    /// Without the query.
    pub(super) path: String,
    /// What follows the question mark.
    pub(super) query: String,
    pub(super) wants: Wants,
}

/// How it is asked for. Nothing else is answered: HTTP only reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Get,
    Head,
}

/// What the client can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    /// The page as it is now.
    Page,
    /// Server-sent events, for as long as it listens.
    Stream,
}

/// Why a request is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) why: &'static str,
}

const fn refuse<T>(status: u16, why: &'static str) -> Result<T, Refusal> {
    Err(Refusal { status, why })
}

pub(super) const TOO_LONG: Refusal = Refusal { status: 431, why: "the request's head is too long" };
pub(super) const TOO_SLOW: Refusal = Refusal { status: 408, why: "the request took too long" };

/// Where the head ends, if it is all there.
pub(super) fn end(bytes: &[u8]) -> Option<usize> {
    let ends = |mark: &[u8]| {
        bytes.windows(mark.len()).position(|window| window == mark).map(|at| at + mark.len())
    };
    // People who type requests by hand end their lines with one character.
    [ends(b"\r\n\r\n"), ends(b"\n\n")].into_iter().flatten().min()
}

/// Reads the head of a request.
pub(super) fn parse(head: &[u8]) -> Result<Request, Refusal> {
    let Ok(text) = str::from_utf8(head) else { return refuse(400, "the request is not text") };
    let mut lines = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
    let (method, target) = first_line(lines.next().unwrap_or_default())?;
    let (mut hosts, mut wants) = (Vec::new(), Wants::Page);
    for line in lines.take_while(|line| !line.is_empty()) {
        let (name, value) = header(line)?;
        if name.eq_ignore_ascii_case("host") {
            hosts.push(value);
        }
        if name.eq_ignore_ascii_case("accept") && value.contains("text/event-stream") {
            wants = Wants::Stream;
        }
    }
    check_host(&hosts)?;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    Ok(Request { method, path: path.to_owned(), query: query.to_owned(), wants })
}

fn first_line(line: &str) -> Result<(Method, &str), Refusal> {
    let words: Vec<&str> = line.split(' ').collect();
    let [method, target, version] = words[..] else {
        return refuse(400, "the first line is not a method, a path and a version");
    };
    if !["HTTP/1.0", "HTTP/1.1"].contains(&version) {
        return refuse(505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
    }
    let method = match method {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        _ => return refuse(405, "only GET and HEAD are answered: HTTP only reads"),
    };
    if !target.starts_with('/') || target.contains(|c: char| c.is_control()) {
        return refuse(400, "the path does not begin with a slash");
    }
    Ok((method, target))
}

fn header(line: &str) -> Result<(&str, &str), Refusal> {
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    match line.split_once(':') {
        Some((name, value)) if !name.is_empty() && name.chars().all(is_token) => {
            Ok((name, value.trim_matches([' ', '\t'])))
        }
        _ => refuse(400, "a header is not a name, a colon and a value"),
    }
}

/// A page in a browser can have any name of its own lead to this machine, but it cannot change the
/// name that the browser then sends.
fn check_host(hosts: &[&str]) -> Result<(), Refusal> {
    let [host] = hosts else { return refuse(400, "there is not exactly one Host header") };
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, Some(port)),
        _ => (*host, None),
    };
    let is_port = port.is_none_or(|port| port.parse::<u16>().is_ok());
    let is_here = ["127.0.0.1", "[::1]"].contains(&name) || name.eq_ignore_ascii_case("localhost");
    if is_port && is_here {
        return Ok(());
    }
    refuse(403, "this host is not called so: ask localhost, 127.0.0.1 or [::1]")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(head: &str) -> u16 {
        parse(head.as_bytes()).map_or_else(|refusal| refusal.status, |_| 200)
    }

    #[test]
    fn a_request_is_its_method_its_path_and_what_it_wants() {
        let head = b"GET /api/v1/events?x=1 HTTP/1.1\r\nHost: localhost:80\r\nACCEPT: text/event-stream\r\n\r\n";
        let (method, path, query) = (Method::Get, "/api/v1/events".to_owned(), "x=1".to_owned());
        assert_eq!(parse(head), Ok(Request { method, path, query, wants: Wants::Stream }));
        assert_eq!(end(head), Some(head.len()));
        let (method, path, query) = (Method::Head, "/".to_owned(), String::new());
        let head = b"HEAD / HTTP/1.0\nHost: [::1]\n\nmore";
        assert_eq!(parse(head), Ok(Request { method, path, query, wants: Wants::Page }));
        assert_eq!(end(head), Some(head.len() - 4));
    }

    #[test]
    fn only_names_of_this_machine_are_answered() {
        let check = |host: &str, expected| {
            assert_eq!(
                status(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")),
                expected,
                "{host}"
            );
        };
        for host in ["localhost", "LocalHost:1", "127.0.0.1:9876", "[::1]", "[::1]:80"] {
            check(host, 200);
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:80",
            "",
            "localhost:http",
            "::1",
            "localhost@evil.example",
            "10.0.0.1",
            "evil:127.0.0.1",
        ] {
            check(host, 403);
        }
        check("localhost\r\nHost: evil.example", 400);
        assert_eq!(status("GET / HTTP/1.1\r\n\r\n"), 400);
    }

    #[test]
    fn what_is_no_request_to_read_is_refused() {
        let host = "Host: localhost\r\n\r\n";
        for (line, expected) in [
            ("POST / HTTP/1.1", 405),
            ("DELETE /api/v1/status HTTP/1.1", 405),
            ("get / HTTP/1.1", 405),
            ("GET / HTTP/2.0", 505),
            ("GET /", 400),
            ("GET  / HTTP/1.1", 400),
            ("GET http://localhost/ HTTP/1.1", 400),
            ("", 400),
            ("GET / HTTP/1.1\r\nno colon", 400),
            ("GET / HTTP/1.1\r\nX : y", 400),
            ("GET / HTTP/1.1\r\n folded", 400),
        ] {
            assert_eq!(status(&format!("{line}\r\n{host}")), expected, "{line}");
        }
        assert_eq!(parse(b"GET /\xff HTTP/1.1\r\n\r\n").unwrap_err().status, 400);
    }
}
