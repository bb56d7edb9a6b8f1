//! Programs judge a set at its real paths, before it is there.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use homeostat_files::programs::{ALL, Privileges, Profile, bird, nginx};
use homeostat_files::{
    Attributes, Check, Content, DesiredState, DigestKey, DirectorySpec, FileSpec, Network, Verdict,
};

/// A directory of this machine with real paths, and a set in it.
struct Place {
    temp: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Place { temp: tempfile::tempdir().unwrap() }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    fn desired(&self, files: &[(&str, &str)]) -> DesiredState {
        let specs = files.iter().map(|(name, text)| {
            let spec = FileSpec {
                content: Content::new(text.as_bytes()),
                attributes: Attributes::default(),
                secret: name.contains("secret"),
                adopt: false,
            };
            (self.at(name).to_str().unwrap().parse().unwrap(), spec)
        });
        let sub = self.at("sub").to_str().unwrap().parse().unwrap();
        let sub = (
            sub,
            DirectorySpec { attributes: Attributes::default(), adopt: false, exclusive: None },
        );
        let key = DigestKey::generate().unwrap();
        DesiredState::new(&key, specs.collect::<BTreeMap<_, _>>(), BTreeMap::from([sub]))
    }

    /// Lets a shell judge a set; `@` stands for the directory.
    fn ask(&self, desired: &DesiredState, script: &str, network: Network) -> Verdict {
        self.ask_for(None, desired, script, network)
    }

    /// The same in place of the check of a known program.
    fn ask_for(
        &self,
        profile: Option<&'static Profile>,
        desired: &DesiredState,
        script: &str,
        network: Network,
    ) -> Verdict {
        let script = script.replace('@', self.temp.path().to_str().unwrap());
        let arguments = ["/bin/sh", "-c", &script].map(str::to_owned).to_vec();
        Check { arguments, network, profile }.ask(desired, Vec::new())
    }
}

#[test]
fn the_set_is_at_its_real_paths_and_nothing_of_it_is_on_the_disk() {
    let place = Place::new();
    fs::write(place.at("old"), "old\n").unwrap();
    fs::write(place.at("beside"), "beside\n").unwrap();
    let desired = place.desired(&[("old", "new\n"), ("sub/added", "added\n")]);
    let script = "cat @/old @/sub/added @/beside; echo scribble > @/old; echo left > @/left; \
                  echo tmp > /run/homeostat-test-left; rm @/beside; id -u >&2";
    let Verdict::Valid { warnings } = place.ask(&desired, script, Network::Here) else { panic!() };
    assert_eq!(warnings, "0\n\nnew\nadded\nbeside");
    assert_eq!(fs::read_to_string(place.at("old")).unwrap(), "old\n");
    assert_eq!(fs::read_to_string(place.at("beside")).unwrap(), "beside\n");
    assert!(!place.at("sub").exists() && !place.at("left").exists());
    assert!(!PathBuf::from("/run/homeostat-test-left").exists());
}

#[test]
fn a_refusal_names_the_line_and_shows_what_was_to_be_there() {
    let place = Place::new();
    let desired = place.desired(&[("a.cfg", "one\ntwo\nthree\n"), ("secret.cfg", "CANARY\n")]);
    let refused = |script: &str| match place.ask(&desired, script, Network::Here) {
        Verdict::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    };
    let refusal = refused("echo '@/a.cfg:2: error: no two' >&2; exit 1");
    let path = place.at("a.cfg").display().to_string();
    assert_eq!(refusal.key.unwrap().to_string(), format!("file {path}"));
    assert_eq!(refusal.line, Some(2));
    assert_eq!(refusal.words, format!("{path}:2: error: no two; 1: one; 2: two; 3: three"));
    let refusal = refused("echo '@/secret.cfg:1: error' >&2; exit 1");
    assert!(refusal.line == Some(1) && !refusal.words.contains("CANARY"), "{refusal:?}");
    assert_eq!(refused("echo no >&2; exit 1").key, None);
}

/// A program that refuses a file may quote it.
#[test]
fn what_a_program_says_of_a_secret_is_not_shown() {
    let place = Place::new();
    let desired = place.desired(&[("a.cfg", "public\n"), ("secret.cfg", "password CANARY\n")]);
    for (script, shown) in [
        (
            "echo '@/secret.cfg:1: unknown keyword CANARY' >&2; exit 1",
            "secret.cfg:1: unknown keyword",
        ),
        ("echo '@/a.cfg:1: no CANARY here' >&2; exit 1", "a.cfg:1: no *** here; 1: public"),
        ("echo 'weak: CANARY'", "weak: ***"),
    ] {
        let words = match place.ask(&desired, script, Network::Here) {
            Verdict::Refused(refusal) => refusal.words,
            Verdict::Valid { warnings } => warnings,
            Verdict::Unchecked { why } => panic!("{why}"),
        };
        assert!(words.contains(shown) && !words.contains("CANARY"), "{script}: {words}");
    }
}

#[test]
fn what_could_not_run_is_neither_good_nor_bad() {
    let place = Place::new();
    let desired = place.desired(&[("a", "1\n")]);
    let check = |arguments: &[&str], network| {
        let arguments = arguments.iter().map(|one| (*one).to_owned()).collect();
        Check { arguments, network, profile: None }.ask(&desired, Vec::new())
    };
    for (verdict, word) in [
        (check(&["/usr/sbin/no-such-program"], Network::Here), "No such file"),
        (
            check(
                &["/bin/sh", "-c", "kill -9 $$; exec tail -f /dev/null & kill -SEGV 0; exit"],
                Network::Missing("blue".into()),
            ),
            "`blue` does not exist",
        ),
    ] {
        match verdict {
            Verdict::Unchecked { why } => assert!(why.contains(word), "{why}"),
            other => panic!("{other:?}"),
        }
    }
}

/// It may read what only root can read, and nothing else.
#[test]
fn a_program_that_only_reads_is_an_unprivileged_process() {
    let place = Place::new();
    let desired = place.desired(&[("secret.cfg", "secret\n")]);
    let script = "id -u; id -g; id -G; cat @/secret.cfg; \
                  touch @/secret.cfg 2>/dev/null || echo cannot write; \
                  touch /etc/passwd 2>/dev/null || echo nor elsewhere; \
                  sed -n 's/^CapEff:\\t0*//p; s/^NoNewPrivs:\\t/nnp /p' /proc/self/status | sort";
    for profile in [&bird::PROFILE, &nginx::PROFILE] {
        let verdict = place.ask_for(Some(profile), &desired, script, Network::Here);
        let Verdict::Valid { warnings } = verdict else { panic!("{verdict:?}") };
        let lines: Vec<&str> = warnings.lines().collect();
        let expected = match profile.privileges {
            // Reading and searching is the capability 2.
            Privileges::ReadOnly => {
                &["65534", "65534", "65534", "***", "cannot write", "nor elsewhere", "4", "nnp 1"][..]
            }
            Privileges::Start => &["0", "0", "0", "***", "4cf", "nnp 1"],
        };
        assert_eq!(lines, expected, "{}", profile.name);
    }
    let unprivileged = ALL.iter().filter(|one| one.privileges == Privileges::ReadOnly);
    let names: Vec<&str> = unprivileged.map(|one| one.name).collect();
    assert_eq!(names, ["bird", "chrony", "haproxy", "unbound"]);
}

#[test]
fn a_program_in_the_view_has_little_power_and_sees_its_own_network_and_processes() {
    let place = Place::new();
    let desired = place.desired(&[]);
    let netns = std::sync::Arc::new(homeostat_netns::Netns::anonymous().unwrap());
    let script = "grep -c : /proc/net/dev; echo $$; \
                  grep -q 'NoNewPrivs:.1' /proc/self/status && echo nnp; \
                  mount -t tmpfs none /mnt 2>/dev/null || echo no mounts; env | sort";
    let Verdict::Valid { warnings } = place.ask(&desired, script, Network::In(netns)) else {
        panic!()
    };
    let lines: Vec<&str> = warnings.lines().collect();
    // The loopback alone, and the first of its processes.
    assert_eq!(lines[..4], ["1", "1", "nnp", "no mounts"], "{warnings}");
    assert!(!warnings.contains("CARGO"), "{warnings}");
}
