//! A real browser on the page of the daemon: Debian's Chromium, moved by its own driver over `WebDriver`.
//!
//! It runs in the network namespace of the test, so there is nobody else whom it could ask. Without it these tests fail.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::keeping::comes;
use crate::program::command;

/// Where the daemon of these tests listens.
pub(crate) const PAGE: &str = "http://127.0.0.1:9876/";
const DRIVER: &str = "127.0.0.1:9515";

/// However busy the machine is, silence for so long is a failure.
const PATIENCE: Duration = Duration::from_mins(2);

/// The name that `WebDriver` gives to the reference of an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// How a browser differs from the usual one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) has_no_javascript: bool,
    pub(crate) is_dark: bool,
    /// Width and height of the window; the usual one is 1280 by 900.
    pub(crate) size: Option<(u32, u32)>,
}

/// A browser with one open page. It ends with this value.
pub(crate) struct Browser {
    driver: Child,
    session: String,
    _profile: TempDir,
}

impl Browser {
    pub(crate) fn start(kind: Kind) -> Self {
        let mut driver = command("chromedriver");
        driver.arg("--port=9515").stdout(Stdio::piped()).stderr(Stdio::null());
        let mut driver = driver.spawn().unwrap_or_else(|error| {
            panic!("chromedriver cannot be started ({error}): run `cargo xtask setup` as root")
        });
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let is_up = lines.any(|line| line.unwrap().contains("started successfully"));
        assert!(is_up, "chromedriver did not start");
        // It says more later on, which nobody reads but which must not stop it.
        std::thread::spawn(move || lines.for_each(drop));
        let profile = tempfile::tempdir().unwrap();
        let (width, height) = kind.size.unwrap_or((1280, 900));
        let mut arguments = vec![
            "--headless=new".to_owned(),
            "--no-sandbox".to_owned(),
            "--disable-gpu".to_owned(),
            "--disable-quic".to_owned(),
            "--no-first-run".to_owned(),
            "--disable-background-networking".to_owned(),
            "--disable-component-update".to_owned(),
            "--disable-sync".to_owned(),
            "--disable-dev-shm-usage".to_owned(),
            "--hide-scrollbars".to_owned(),
            format!("--window-size={width},{height}"),
            format!("--user-data-dir={}", profile.path().display()),
        ];
        if kind.is_dark {
            arguments.push("--force-dark-mode".to_owned());
        }
        let scripts = if kind.has_no_javascript { 2 } else { 1 };
        let answer = ask(
            "POST",
            "/session",
            &json!({ "capabilities": { "alwaysMatch": {
                "browserName": "chrome",
                "pageLoadStrategy": "eager",
                "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
                "goog:chromeOptions": {
                    "args": arguments,
                    "prefs": { "profile.managed_default_content_settings.javascript": scripts },
                },
            } } }),
        );
        let session = answer["sessionId"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
        Browser { driver, session, _profile: profile }
    }

    /// One that has the page of the daemon open.
    pub(crate) fn on_page(kind: Kind) -> Self {
        let browser = Self::start(kind);
        browser.go(PAGE);
        browser
    }

    /// Opens an address.
    pub(crate) fn go(&self, address: &str) {
        self.ask("POST", "/url", &json!({ "url": address }));
    }

    pub(crate) fn title(&self) -> String {
        text(&self.ask("GET", "/title", &Value::Null))
    }

    pub(crate) fn source(&self) -> String {
        text(&self.ask("GET", "/source", &Value::Null))
    }

    /// What a script returns.
    pub(crate) fn run(&self, script: &str) -> Value {
        self.ask("POST", "/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// The text of the first element that a selector finds, as it is shown; empty if there is none.
    pub(crate) fn text(&self, selector: &str) -> String {
        let script = format!("return document.querySelector('{selector}')?.innerText ?? ''");
        text(&self.run(&script))
    }

    /// The text of all elements that a selector finds.
    pub(crate) fn texts(&self, selector: &str) -> Vec<String> {
        let script = format!(
            "return [...document.querySelectorAll('{selector}')].map(one => one.textContent)"
        );
        let texts = self.run(&script);
        texts.as_array().unwrap().iter().map(text).collect()
    }

    /// What assistive programs are told of an element: its role and its label.
    pub(crate) fn role(&self, selector: &str) -> (String, String) {
        let element = self.find(selector);
        let of = |what| text(&self.ask("GET", &format!("/element/{element}/{what}"), &Value::Null));
        (of("computedrole"), of("computedlabel"))
    }

    pub(crate) fn click(&self, selector: &str) {
        self.ask("POST", &format!("/element/{}/click", self.find(selector)), &json!({}));
    }

    pub(crate) fn write(&self, selector: &str, text: &str) {
        let element = self.find(selector);
        self.ask("POST", &format!("/element/{element}/value"), &json!({ "text": text }));
    }

    /// Presses a key on whatever has the focus.
    pub(crate) fn press(&self, key: char) {
        let keys = json!([{ "type": "keyDown", "value": key }, { "type": "keyUp", "value": key }]);
        let actions = json!({ "actions": [{ "type": "key", "id": "keys", "actions": keys }] });
        self.ask("POST", "/actions", &actions);
    }

    /// The addresses that were asked for since the start, and what the console of the browser has.
    pub(crate) fn logs(&self) -> (Vec<String>, Vec<String>) {
        let log = |kind: &str| self.ask("POST", "/se/log", &json!({ "type": kind }));
        // The page of a new tab is a part of the browser.
        let is_own = |text: &str| text.starts_with("chrome://") || text.starts_with("data:");
        let console = log("browser").as_array().unwrap().clone();
        let console = console.iter().filter(|entry| !is_own(&text(&entry["message"])));
        let console = console.map(ToString::to_string).collect();
        let mut asked = Vec::new();
        for entry in log("performance").as_array().unwrap() {
            let event: Value = serde_json::from_str(entry["message"].as_str().unwrap()).unwrap();
            if event["message"]["method"] == "Network.requestWillBeSent" {
                let address = text(&event["message"]["params"]["request"]["url"]);
                // What is in an address is asked of nobody.
                asked.extend(Some(address).filter(|address| !is_own(address)));
            }
        }
        (asked, console)
    }

    /// Waits until the page is so.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, so: impl Fn(&Self) -> bool) {
        assert!(comes(|| so(self)), "{what} never came:\n{}", self.source());
    }

    /// Saves a picture of the whole page where `HOMEOSTAT_SCREENSHOTS` says, if it says so.
    pub(crate) fn picture(&self, name: &str) {
        let Some(directory) = std::env::var_os("HOMEOSTAT_SCREENSHOTS") else { return };
        let size = self.run(
            "return [document.documentElement.scrollWidth, document.documentElement.scrollHeight]",
        );
        let clip = json!({ "x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1 });
        let params = json!({ "captureBeyondViewport": true, "clip": clip });
        let order = json!({ "cmd": "Page.captureScreenshot", "params": params });
        let picture = self.ask("POST", "/goog/cdp/execute", &order);
        let file = std::path::Path::new(&directory).join(format!("{name}.png"));
        std::fs::write(file, decoded(picture["data"].as_str().unwrap())).unwrap();
    }

    fn find(&self, selector: &str) -> String {
        let by = json!({ "using": "css selector", "value": selector });
        text(&self.ask("POST", "/element", &by)[ELEMENT])
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        ask(method, &format!("/session/{}{path}", self.session), body)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver ends the browser with the session; in a failed test it may be gone.
        let _ = exchange("DELETE", &format!("/session/{}", self.session), "");
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// One request to the driver; its value, which must not be an error.
#[track_caller]
fn ask(method: &str, path: &str, body: &Value) -> Value {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let answer = exchange(method, path, &body).unwrap();
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    let value = answer["value"].clone();
    assert!(value["error"].is_null(), "{method} {path} {body}: {value:#}");
    value
}

/// Sends a request to the driver, which keeps the connection open after its answer.
fn exchange(method: &str, path: &str, body: &str) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(DRIVER)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n");
    stream.write_all(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes())?;
    let (mut reader, mut length, mut line) = (BufReader::new(stream), 0, String::new());
    while reader.read_line(&mut line)? > 2 {
        let field =
            line.split_once(':').filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
        length = field.and_then(|(_, value)| value.trim().parse().ok()).unwrap_or(length);
        line.clear();
    }
    let mut answer = vec![0; length];
    reader.read_exact(&mut answer)?;
    Ok(answer)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("not a text: {value}")).to_owned()
}

/// The bytes of a text in Base64.
fn decoded(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for byte in text.bytes() {
        let Some(digit) = DIGITS.iter().position(|digit| *digit == byte) else { continue };
        bits = bits << 6 | u32::try_from(digit).unwrap();
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).unwrap());
        }
    }
    bytes
}
