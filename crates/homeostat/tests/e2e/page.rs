//! The page of the daemon, in a real browser. `cargo xtask screenshots` makes the pictures of the docs from these tests.

use std::fmt::Write as _;

use serde_json::json;

use crate::browser::{Browser, Kind, PAGE};
use crate::daemon::Daemon;
use crate::http::read;
use crate::keeping::until;
use crate::undone::begin;
use crate::world::World;

const KEY: &str = "net/ipv4/tcp_retries1";
const DOCUMENT: &str = r#"
routes = [
    { to = "10.0.0.0/8", type = "blackhole" },
    { to = "10.1.0.0/16", type = "blackhole" },
]
[sysctl]
"net.ipv4.tcp_retries1" = 5
"#;

/// A daemon with a page, once everything is as declared.
fn kept(document: &str) -> (World, Daemon) {
    let world = World::new();
    world.ip("link set lo up");
    let daemon = world.keep_with(document, "--listen 127.0.0.1:9876");
    world.stands();
    (world, daemon)
}

/// The steps from a converged daemon to one that needs somebody, in one page that is never read again.
#[test]
fn headline_and_title_say_how_everything_stands_while_it_changes() {
    let (world, _daemon) = kept(DOCUMENT);
    world.converges();
    let browser = Browser::on_page(Kind::default());
    let host = browser.text(".host");
    let title = |words: &str| format!("{host}: {words}");
    assert_eq!((browser.title(), browser.text("h1")), (title("converged"), "converged".to_owned()));
    assert_eq!(browser.text("#needs .empty"), "Nothing. Everything is as declared.");
    browser.until("a connection", |page| page.text("#live").contains("live"));
    world.run("pause").exits(0);
    browser.until("the pause", |page| page.title() == title("paused"));
    assert_eq!(
        browser.text("#command code"),
        format!("homeostat --state-dir {} resume", state(&world))
    );
    world.run("resume").exits(0);
    browser.until("the end of the pause", |page| page.title() == title("converged"));
    // Somebody else's route takes the place of ours: no event heals that.
    world.ip("route replace unreachable 10.1.0.0/16 proto static");
    browser.until("the conflict", |page| page.title() == title("1 thing needs you"));
    assert_eq!(browser.text("#again"), "Something changed: read again");
    browser.click("#again");
    let card = browser.text("#needs .card");
    for words in ["conflict", "route 10.1.0.0/16", "owner protocol static", "since"] {
        assert!(card.contains(words), "{words}: {card}");
    }
    let command = browser.text("#needs .card .command code");
    let expected = format!("homeostat --state-dir {} adopt 'route 10.1.0.0/16'", state(&world));
    assert_eq!(command, expected);
    browser.picture("conflict");
    // What the page says is what a shell does.
    let mut shell = world.command("sh");
    let directory = std::path::Path::new(crate::program::HOMEOSTAT).parent().unwrap();
    let path = format!("PATH={}:$PATH; {command}", directory.display());
    shell.args(["-euc", &path]);
    world.finish(shell).exits(0);
    browser.until("the end of the conflict", |page| page.title() == title("converged"));
}

fn state(world: &World) -> String {
    world.state().display().to_string()
}

#[test]
fn a_heal_is_put_on_top_with_its_culprit_and_its_time_and_repeats_are_one_row() {
    let (world, _daemon) = kept(DOCUMENT);
    world.converges();
    let browser = Browser::on_page(Kind::default());
    browser.until("a connection", |page| page.text("#live").contains("live"));
    assert_eq!(browser.text("#no-drift"), "Nothing has drifted since the start.");
    world.ip("route del blackhole 10.0.0.0/8");
    browser.until("the heal", |page| page.texts("#drift-rows tr").len() == 1);
    let row = browser.text("#drift-rows tr");
    for words in ["route 10.0.0.0/8", "create", "process ", "s"] {
        assert!(row.contains(words), "{words}: {row}");
    }
    world.meddle(KEY, "9");
    browser.until("the second heal", |page| page.texts("#drift-rows tr").len() == 2);
    assert!(browser.text("#drift-rows tr").contains("sysctl net.ipv4.tcp_retries1"));
    world.meddle(KEY, "8");
    browser.until("the repeat", |page| page.text("#drift-rows tr").contains("\u{d7} 2"));
    assert_eq!(browser.texts("#drift-rows tr").len(), 2);
    // The server makes the same of it.
    let before = browser.texts("#drift-rows tr");
    browser.go(PAGE);
    assert_eq!(browser.texts("#drift-rows tr"), before);
    assert!(browser.text("#latency").contains("Half of 3 within"), "{}", browser.text("#latency"));
    assert_eq!(browser.role("#latency svg").0, "image");
    assert_eq!(browser.texts("#latency tbody tr").len(), 2);
    browser.picture("healed");
}

#[test]
fn ten_thousand_heals_leave_two_hundred_rows_and_a_page_that_lives() {
    const HEALS: usize = 10_000;
    const BATCH: usize = 50;
    let mut document = String::from("[[routes]]\nfrom-file = \"many.routes\"\n");
    document.push_str("[settings.rtnl]\ndelete-budget = \"100%\"\n");
    let world = World::new();
    world.ip("link set lo up");
    let to = |at: usize| format!("11.{}.{}.{}/32", at >> 16 & 255, at >> 8 & 255, at & 255);
    let routes: Vec<String> = (0..HEALS).map(|at| format!("blackhole {}\n", to(at))).collect();
    world.write("many.routes", routes.concat());
    let _daemon = world.keep_with(&document, "--listen 127.0.0.1:9876");
    world.converges();
    let browser = Browser::on_page(Kind::default());
    browser.until("a connection", |page| page.text("#live").contains("live"));
    let healed = || {
        let (_, metrics) = read("/metrics");
        let name = "homeostat_drift_total{source=\"rtnl\",scope=\"host\",found_by=\"hint\"} ";
        let line = metrics.lines().find_map(|line| line.strip_prefix(name));
        line.map_or(0, |count| count.parse::<usize>().unwrap())
    };
    for first in (0..HEALS).step_by(BATCH) {
        let mut batch = String::new();
        for at in first..first + BATCH {
            writeln!(batch, "route del blackhole {}", to(at)).unwrap();
        }
        let file = world.write("batch", batch);
        world.ip(&format!("-batch {}", file.display()));
        until("the heals of a batch", || healed() >= first + BATCH);
    }
    let last = to(HEALS - 1).replace("/32", "");
    browser.until("the last heals", |page| page.run("return newest").as_u64() == Some(10_000));
    let rows = browser.texts("#drift-rows tr");
    assert_eq!(rows.len(), 200);
    assert!(rows.iter().take(BATCH).any(|row| row.contains(&last)), "{last}: {}", rows[0]);
    // It still answers, and at once: a click is handled within a frame or two.
    let took = browser.run("const t = performance.now(); tick(); document.body.offsetHeight; return performance.now() - t");
    assert!(took.as_f64().unwrap() < 500.0, "{took}");
    let (_, page) = read("/");
    assert!(page.len() <= 64 << 10, "{} bytes", page.len());
}

#[test]
fn nobody_but_the_daemon_is_asked_and_nothing_breaks_the_policy() {
    let (world, _daemon) = kept(DOCUMENT);
    world.converges();
    let browser = Browser::on_page(Kind::default());
    browser.until("a connection", |page| page.text("#live").contains("live"));
    world.ip("route del blackhole 10.0.0.0/8");
    browser.until("the heal", |page| page.texts("#drift-rows tr").len() == 1);
    for query in ["?find=10.0.0.1", "?diff=show", "?source=rtnl&scope=host&why=held&q=x"] {
        browser.go(&format!("{PAGE}{query}"));
    }
    let (asked, console) = browser.logs();
    assert!(asked.len() >= 6, "{asked:?}");
    for address in &asked {
        assert!(address.starts_with(PAGE), "{address}");
    }
    assert_eq!(console, [""; 0], "no error, no warning, nothing that the policy stopped");
    // The policy is one: what it forbids does not run.
    let result = browser.run(
        "const script = document.createElement('script');
         script.textContent = 'window.ran = true';
         document.body.append(script);
         const image = document.createElement('img');
         image.src = 'http://127.0.0.1:1/x';
         document.body.append(image);
         return window.ran === true",
    );
    assert_eq!(result, json!(false));
    browser.until("two violations", |page| {
        page.logs().1.iter().filter(|line| line.contains("Content Security Policy")).count() == 2
    });
}

#[test]
fn without_javascript_the_page_is_whole() {
    let (world, _daemon) = kept(DOCUMENT);
    world.converges();
    world.meddle(KEY, "9");
    until("the heal", || read("/").1.contains("sysctl net.ipv4.tcp_retries1"));
    world.ip("route replace unreachable 10.1.0.0/16 proto static");
    until("the conflict", || read("/").1.contains("1 thing needs you"));
    let browser = Browser::on_page(Kind { has_no_javascript: true, ..Kind::default() });
    assert!(browser.title().ends_with(": 1 thing needs you"), "{}", browser.title());
    let page = browser.source();
    assert!(
        !page.contains("class=\"copy\"") && !page.contains("\u{25cf} live"),
        "no script has run"
    );
    for words in ["adopt 'route 10.1.0.0/16'", "sysctl net.ipv4.tcp_retries1", "Half of 1 within"] {
        assert!(page.contains(words), "{words}:\n{page}");
    }
    // Forms and links work as in any page.
    browser.write("#find-text", "10.1.2.3");
    browser.click("#find button");
    browser.until("what was found", |page| page.source().contains("What was found"));
    let page = browser.source();
    let [long, short] = ["route 10.1.0.0/16</th>", "route 10.0.0.0/8</th>"];
    assert!(page.find(long).unwrap() < page.find(short).unwrap(), "the longest is first:\n{page}");
    assert!(page.contains("host.toml:3:5") && page.contains("host.toml:4:5"), "{page}");
}

#[test]
fn a_link_whose_name_is_markup_is_text() {
    let name = "<b>x<i>";
    let (_world, _daemon) = kept(&format!(
        "[links.\"{name}\"]\nmtu = 1400\n[links.d0]\nkind = \"bridge\"\nalias = \"</title><img src=x onerror=window.ran=1>\"\n"
    ));
    let browser = Browser::on_page(Kind::default());
    let card = browser.text("#needs .card strong");
    assert_eq!(card, format!("link {name} mtu"));
    assert_eq!(browser.run("return document.querySelectorAll('main b, main i').length"), json!(0));
    browser.go(&format!("{PAGE}?find=d0"));
    assert!(browser.text("#find").contains("<img src=x"), "{}", browser.text("#find"));
    browser.go(&format!(
        "{PAGE}?find=%3Cscript%3Ewindow.ran%3D1%3C%2Fscript%3E&q=%22%3E%3Cimg+src%3Dx%3E"
    ));
    assert_eq!(browser.run("return [window.ran === 1, document.images.length]"), json!([false, 0]));
}

#[test]
fn a_trial_counts_down_with_its_confirm_command_beside_it() {
    let (world, _daemon) = kept(DOCUMENT);
    world.converges();
    let browser = Browser::on_page(Kind::default());
    let tried = DOCUMENT.replace("= 5", "= 6");
    let mut client = begin(&world, &tried, "");
    browser.until("the trial", |page| page.text("h1").starts_with("trial "));
    let command = browser.text("#command code");
    assert_eq!(command, format!("homeostat --state-dir {} confirm", state(&world)));
    let seconds = |browser: &Browser| {
        let text = browser.text("h1");
        let (_, clock) = text.strip_suffix(" left").unwrap().split_once(", ").unwrap();
        clock.split(':').fold(0, |sum, part| sum * 60 + part.parse::<u32>().unwrap())
    };
    let first = seconds(&browser);
    assert!((3000..=3600).contains(&first), "{first}");
    browser.until("a second that has passed", |page| seconds(page) < first);
    assert!(browser.title().contains(": trial "), "{}", browser.title());
    browser.picture("trial");
    // Also in a page that is opened now, and without a script.
    let plain = read("/").1;
    assert!(plain.contains("left</h1>") && plain.contains(" confirm</code>"), "{plain}");
    assert_eq!(browser.role("#said").0, "status", "the countdown is not in what is read out");
    assert_eq!(
        browser.run(
            "return document.getElementById('said').contains(document.getElementById('text'))"
        ),
        json!(false)
    );
    world.run("confirm --same-session").exits(0);
    browser.until("the end of the trial", |page| page.title().ends_with(": converged"));
    client.wait().unwrap();
    browser.go(PAGE);
    assert!(browser.text("#history").contains("document 2"), "{}", browser.text("#history"));
}

#[test]
fn everything_has_a_role_and_a_label_and_can_be_reached_with_the_keyboard() {
    let (world, _daemon) = kept(DOCUMENT);
    world.converges();
    let browser = Browser::on_page(Kind::default());
    let role = |selector: &str, expected: (&str, &str)| {
        let (role, label) = browser.role(selector);
        assert_eq!((&*role, &*label), expected, "{selector}");
    };
    role("main", ("main", ""));
    role("header", ("banner", ""));
    role("h1", ("heading", "converged"));
    role("#needs", ("region", "What needs you"));
    role("#loops", ("region", "Loops"));
    role("#loops table", ("table", ""));
    role("#history .table", ("region", "History"));
    role("#find form", ("search", ""));
    role(
        "#find-text",
        (
            "searchbox",
            "A key, an address or network (its routes, the longest first), or a link (all that is on it)",
        ),
    );
    role("select[name=source]", ("combobox", "Source"));
    role("input[name=q]", ("textbox", "Key has"));
    role("#said", ("status", ""));
    // The first stop of the keyboard skips to what matters.
    browser.press('\u{e004}');
    let focus = || browser.run("return document.activeElement.textContent");
    assert_eq!(focus(), json!("Skip to what needs you"));
    browser.press('\u{e007}');
    assert_eq!(browser.run("return location.hash"), json!("#needs"));
    let reached: Vec<_> = (0..12)
        .map(|_| {
            browser.press('\u{e004}');
            browser.run("return document.activeElement.name || document.activeElement.textContent.slice(0, 20)")
        })
        .collect();
    for name in ["source", "scope", "why", "q", "find"] {
        assert!(reached.contains(&json!(name)), "{name}: {reached:?}");
    }
    // A state is a sign and a word, not only a colour.
    assert_eq!(browser.texts("#loops tbody td:nth-child(3)"), ["\u{2713} converged"; 2]);
}

/// A window of half the width shows what a zoom of 200 % does.
#[test]
fn a_narrow_or_enlarged_page_is_never_wider_than_its_window_in_either_colour_scheme() {
    let (world, _daemon) = kept(DOCUMENT);
    world.converges();
    world.meddle(KEY, "9");
    world.ip("route replace unreachable 10.1.0.0/16 proto static");
    until("the conflict", || read("/").1.contains("1 thing needs you"));
    let colours = |kind: Kind, name: &str| {
        let browser = Browser::on_page(kind);
        let wide =
            "return document.documentElement.scrollWidth - document.documentElement.clientWidth";
        assert_eq!(browser.run(wide), json!(0), "{name}");
        browser.go(&format!("{PAGE}?find=10.1.2.3&diff=show"));
        assert_eq!(browser.run(wide), json!(0), "{name} with a search");
        if name == "dark" {
            browser.picture(name);
        }
        let colour = |of: &str| {
            browser.run(&format!(
                "return getComputedStyle(document.querySelector('{of}')).{}",
                if of == "body" { "backgroundColor" } else { "color" }
            ))
        };
        [colour("body"), colour("h1")]
    };
    let light = colours(Kind { size: Some((640, 900)), ..Kind::default() }, "half");
    let dark = colours(Kind { is_dark: true, ..Kind::default() }, "dark");
    assert!(light[0] != dark[0] && light[1] != dark[1], "{light:?} {dark:?}");
    colours(Kind { size: Some((500, 900)), is_dark: true, ..Kind::default() }, "narrow");
}

#[test]
fn a_hundred_pages_are_kept_up_to_date_and_one_more_is_told_no() {
    let (world, _daemon) = kept(DOCUMENT);
    world.converges();
    let mut pages: Vec<_> = (0..100).map(|_| crate::http::follow_path("/live")).collect();
    for page in &mut pages {
        assert!(crate::http::next_line(page, "HTTP/1.1 ").contains("200"));
    }
    world.ip("route del blackhole 10.0.0.0/8");
    for page in &mut pages {
        let heal = crate::http::next_line(page, "data: {\"id\":1,");
        assert!(heal.contains("route 10.0.0.0/8"), "{heal}");
    }
    let mut one_more = crate::http::follow_path("/live");
    assert!(crate::http::next_line(&mut one_more, "HTTP/1.1 ").contains("503"));
    assert_eq!(read("/healthz").0, 200, "others are answered all the same");
}
