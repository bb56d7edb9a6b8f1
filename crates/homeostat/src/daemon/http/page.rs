//! The page for people at `/`: how everything stands, from what matters most down. It only reads, is whole without
//! JavaScript, and is small whatever the state is: of each list it has what fits, and the number of the rest.

mod differences;
mod drift;
mod filters;
mod find;
mod history;
mod latency;
mod loops;
mod needs;
mod rows;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use maud::{DOCTYPE, Markup, html};
use tokio::sync::watch;
use tokio::time::Instant;

use self::differences::Differences;
use self::filters::Filters;
use self::find::Found;
use self::history::History;
use crate::confirmed::ConfirmedDocuments;
use crate::daemon::answers::Answers;
use crate::daemon::headline::{Headline, Standing, open};
use crate::daemon::live::{Live, in_words};
use crate::daemon::loops_snapshot::LoopsSnapshot;
use crate::wire::{Overview, ProviderStatus, time_in_words};

/// Nothing but what this daemon serves itself is loaded, and nothing in the text is run.
pub(super) const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; \
                                 connect-src 'self'; img-src 'self'; base-uri 'none'; \
                                 form-action 'self'; frame-ancestors 'none'";

/// A file of the page, under a name that changes with its text: it is asked for once.
pub(super) struct Asset {
    pub(super) path: String,
    pub(super) kind: &'static str,
    pub(super) text: &'static str,
}

impl Asset {
    fn new(name: &str, ending: &str, kind: &'static str, text: &'static str) -> Self {
        let digest = homeostat_engine::Fingerprint::of_text(&text);
        Asset { path: format!("/{name}-{digest:016x}.{ending}"), kind, text }
    }
}

/// How the page looks, and what keeps it up to date.
pub(super) static ASSETS: LazyLock<[Asset; 2]> = LazyLock::new(|| {
    [
        Asset::new("page", "css", "text/css; charset=utf-8", include_str!("page/page.css")),
        Asset::new("page", "js", "text/javascript; charset=utf-8", include_str!("page/page.js")),
    ]
});

/// What the page says of the daemon itself.
#[derive(Clone, Debug)]
pub(in crate::daemon) struct About {
    pub(in crate::daemon) host: String,
    pub(in crate::daemon) owner: String,
    pub(in crate::daemon) since: Instant,
    pub(in crate::daemon) confirmed: ConfirmedDocuments,
}

/// Where what is on the page comes from.
#[derive(Clone)]
pub(in crate::daemon) struct PageSource {
    pub(in crate::daemon) snapshot: watch::Receiver<LoopsSnapshot>,
    pub(in crate::daemon) answers: Answers,
    pub(in crate::daemon) live: Live,
    pub(in crate::daemon) about: Arc<About>,
}

/// How often a page without JavaScript is read again, in seconds.
const REFRESH: u32 = 30;

impl PageSource {
    /// The page as it is asked for.
    pub(super) async fn page(&self, query: &str) -> String {
        let filters = Filters::read(query);
        let now = self.snapshot.borrow().clone();
        let confirmed = self.about.confirmed.clone();
        let history = tokio::task::spawn_blocking(move || History::read(&confirmed));
        let found = match &filters.find {
            Some(text) => Some(find::find(&self.answers, &now, text).await),
            None => None,
        };
        let differences =
            if filters.diff { Some(differences::look(&self.answers, &now).await) } else { None };
        let history = history.await.unwrap_or_default();
        let shown = Shown { filters, found, differences, history };
        self.draw(&now, &shown).into_string()
    }

    fn draw(&self, now: &LoopsSnapshot, shown: &Shown) -> Markup {
        let overview = now.overview();
        let headline = Headline::of(&overview, now.is_healthy(), &now.invocation);
        let (healed, unnamed) = self.live.drift.rows();
        let newest = healed.first().map_or(0, |row| row.id);
        let [css, js] = &*ASSETS;
        let Shown { filters, found, differences, history } = shown;
        let host = &self.about.host;
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (host) ": " (headline.text) }
                    link rel="icon" href="/favicon.ico";
                    link rel="stylesheet" href=(css.path);
                    script defer src=(js.path) {}
                    noscript { meta http-equiv="refresh" content=(REFRESH); }
                }
                body data-host=(host) data-newest=(newest) {
                    a .skip href="#needs" { "Skip to what needs you" }
                    (self.header(&overview, &headline))
                    main {
                        (needs::section(now, &overview, filters))
                        (find::section(filters, found.as_ref()))
                        (differences::section(&overview, differences.as_ref(), filters))
                        (loops::section(&overview, filters))
                        (drift::section(&healed, unnamed, filters))
                        (latency::section(&self.live.drift.latencies()))
                        (history::section(history, now))
                        (loops::roles(&overview))
                        (loops::counters(now))
                    }
                    footer {
                        p {
                            "This page only reads. The same for programs: "
                            a href="/api/v1/status" { "status" } ", "
                            a href="/api/v1/open" { "open keys" } ", "
                            a href="/api/v1/events" { "events" } ", "
                            a href="/metrics" { "metrics" } ", "
                            a href="/healthz" { "health" } "."
                        }
                    }
                }
            }
        }
    }

    fn header(&self, overview: &Overview, headline: &Headline) -> Markup {
        let About { host, owner, since, .. } = &*self.about;
        let Headline { sign, class, text, detail, command, left_ms, .. } = headline;
        html! {
            header {
                div .bar {
                    strong .host { (host) }
                    span { "homeostat " (env!("CARGO_PKG_VERSION")) }
                    span { "owner " (owner) }
                    span { "up " (time_in_words(millis(since.elapsed()))) }
                    @if let Some(provider) = &overview.provider { (document(overview, provider)) }
                    span #live {}
                    a #again href="?" { "Read again" }
                }
                div #headline .headline .(class) data-left=[left_ms.as_ref()] {
                    span #sign .sign aria-hidden="true" { (sign) }
                    div {
                        h1 #text { (text) }
                        // What changes is read out from here: a countdown would be each second.
                        p #said .hidden role="status" { (text) }
                        p #detail { (detail) }
                        p #command .command hidden[command.is_none()] {
                            code { (command.as_deref().unwrap_or_default()) }
                        }
                        @if let Some(trial) = overview.trial.as_ref().filter(|_| headline.standing == Standing::Trial) {
                            @for result in trial.checks.iter().take(10) { p { "Check: " (result) } }
                        }
                    }
                }
            }
        }
    }
}

/// What was asked for.
struct Shown {
    filters: Filters,
    found: Option<Found>,
    differences: Option<Differences>,
    history: History,
}

/// Which document is in force.
fn document(overview: &Overview, provider: &ProviderStatus) -> Markup {
    let other = match (overview.handed_number, overview.fallback) {
        (_, Some(number)) => Some(format!("the confirmed document {number} in its place")),
        (Some(number), _) if overview.handed => {
            Some(format!("the confirmed document {number}, which is newer"))
        }
        _ if overview.handed => Some("one that `apply` handed over in its place".to_owned()),
        _ => None,
    };
    html! {
        span {
            "document " code { (provider.from) }
            @if let Some(other) = other { " (" (other) ")" }
        }
    }
}

/// How many keys are open in all.
fn all_open(overview: &Overview) -> usize {
    overview.loops.iter().map(open).sum()
}

fn millis(time: Duration) -> u64 {
    crate::wire::millis(time)
}

/// A number that people can read: 12,311.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Text of others that may be long.
fn clipped(text: &str, most: usize) -> String {
    let text = crate::output::line::plain(text);
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_the_page_are_small_and_ask_nobody_else() {
        for Asset { path, text, .. } in &*ASSETS {
            assert!(text.len() <= 8 * 1024, "{path} has {} bytes", text.len());
            for elsewhere in ["http:", "https:", "//cdn", "url(", "@import", "eval("] {
                assert!(!text.contains(elsewhere), "{path} has {elsewhere}");
            }
        }
    }

    #[test]
    fn large_numbers_and_long_texts_can_be_read() {
        let rows = [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")];
        for (number, expected) in rows {
            assert_eq!(grouped(number), expected);
        }
        assert_eq!(clipped("12345", 5), "12345");
        assert_eq!(clipped("123456\u{202e}", 5), "12345...");
    }
}
