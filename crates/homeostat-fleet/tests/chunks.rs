//! Documents go through the store in chunks and come out as they were, or not at all.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use homeostat_fleet::chunks::{
    Chunks, File, LARGEST, Manifest, Packed, SMALLEST, cut, deflate, inflate, pack,
};
use homeostat_fleet::records::Record;
use homeostat_fleet::{Digest, Error};
use proptest::prelude::*;

/// Chunks as a store has them.
#[derive(Default)]
struct Store(BTreeMap<Digest, Vec<u8>>);

impl Store {
    /// Puts what is not there yet.
    fn put(&mut self, packed: &Packed) {
        for (digest, chunk) in &packed.chunks {
            self.0.entry(*digest).or_insert_with(|| deflate(chunk));
        }
    }

    /// A node that has some raw chunks fetches what it lacks; returns the bytes that it has fetched, manifest included.
    fn fetch(&self, packed: &Packed, have: &mut BTreeMap<Digest, Vec<u8>>) -> usize {
        let manifest = Manifest::of_document(&packed.document, &packed.manifest).unwrap();
        let mut moved = packed.manifest.len();
        loop {
            let raw = |digest: &Digest| have.get(digest).cloned();
            let missing = manifest.missing(raw, |digest| have.contains_key(digest)).unwrap();
            if missing.is_empty() {
                return moved;
            }
            for digest in missing {
                let stored = &self.0[&digest];
                moved += stored.len();
                have.insert(digest, inflate(stored, &digest).unwrap());
            }
        }
    }
}

fn assemble(packed: &Packed, have: &BTreeMap<Digest, Vec<u8>>) -> BTreeMap<String, Vec<u8>> {
    let manifest = Manifest::of_document(&packed.document, &packed.manifest).unwrap();
    let file =
        |file: &File| (file.path.clone(), file.assemble(|it| have.get(it).cloned()).unwrap());
    manifest.files.iter().map(file).collect()
}

/// A list of routes as documents have them, each on a line of its own.
fn route(number: u32, via: u32) -> String {
    let [_, b, c, d] = number.to_be_bytes();
    format!("10.{b}.{c}.{d}/32 via 192.0.2.{via} metric {}\n", number % 7 + 100)
}

fn routes(count: u32) -> String {
    (0..count).map(|number| route(number, number % 4 + 1)).collect()
}

#[test]
fn one_changed_route_of_a_million_moves_at_most_sixteen_kilobytes() {
    let text = routes(1_000_000);
    let former = pack([("routes.txt", text.as_bytes())], &[]);
    let average = text.len() / former.chunks.len();
    assert!((48 * 1024..80 * 1024).contains(&average), "{average}");
    let mut moved = Vec::new();
    for changed in [123_456, 500_000, 999_999] {
        let text = text.replacen(&route(changed, changed % 4 + 1), &route(changed, 77), 1);
        let packed = pack([("routes.txt", text.as_bytes())], &[]);
        // Only what is new is put and fetched.
        let mut store = Store::default();
        let is_new = |digest: &Digest| !former.chunks.contains_key(digest);
        let new = packed.chunks.iter().filter(|(digest, _)| is_new(digest));
        store.0.extend(new.map(|(digest, chunk)| (*digest, deflate(chunk))));
        let mut have = former.chunks.clone();
        moved.push(store.fetch(&packed, &mut have));
        assert!(assemble(&packed, &have)["routes.txt"] == text.into_bytes());
    }
    println!("bytes moved: {moved:?}");
    assert!(moved.iter().all(|bytes| (1000..=16_000).contains(bytes)), "{moved:?}");
}

#[test]
fn long_lines_and_files_without_line_ends_are_bounded() {
    let check = |content: &[u8], count: std::ops::RangeInclusive<usize>| {
        let chunks: Vec<&[u8]> = cut(content).collect();
        assert_eq!(chunks.concat(), content);
        assert!(count.contains(&chunks.len()), "{}", chunks.len());
        let (_, whole) =
            chunks.split_last().map_or((None, [].as_slice()), |(it, all)| (Some(it), all));
        for chunk in whole {
            assert!((SMALLEST..=LARGEST).contains(&chunk.len()), "{}", chunk.len());
        }
        assert!(chunks.iter().all(|chunk| !chunk.is_empty() && chunk.len() <= LARGEST));
    };
    check(b"", 0..=0);
    check(b"x", 1..=1);
    check(&vec![b'x'; LARGEST], 1..=1);
    check(&vec![b'x'; LARGEST + 1], 2..=2);
    check(&vec![b'x'; 10 * LARGEST], 10..=10);
    check(&vec![b'\n'; 10 * LARGEST], 10..=160);
    let lines = |length: usize| format!("{}\n", "y".repeat(length - 1)).repeat(3);
    check(lines(LARGEST).as_bytes(), 3..=3);
    check(lines(LARGEST + 1).as_bytes(), 4..=6);
    check(lines(SMALLEST - 1).as_bytes(), 1..=3);
    check(format!("a\n{}b\n", "z".repeat(3 * LARGEST)).as_bytes(), 4..=4);
}

#[test]
fn a_small_document_needs_its_manifest_and_one_chunk_a_file() {
    let files = [("host.toml", b"a = 1\n".as_slice()), ("empty", b""), ("dir/x", b"a = 1\n")];
    let packed = pack(files, &["https://mirror.example.net/blobs".to_owned()]);
    assert_eq!(packed.chunks.len(), 1);
    let mut store = Store::default();
    store.put(&packed);
    let mut have = BTreeMap::new();
    store.fetch(&packed, &mut have);
    let expected = files.map(|(path, content)| (path.to_owned(), content.to_vec()));
    assert_eq!(assemble(&packed, &have), BTreeMap::from(expected));
    // The same files make the same document.
    assert_eq!(pack(files, &["https://mirror.example.net/blobs".to_owned()]), packed);
    assert_ne!(pack(files, &[]).document, packed.document);
}

#[test]
fn damaged_chunks_are_refused() {
    let chunk = routes(2000).into_bytes();
    let digest = Digest::of(&chunk);
    let stored = deflate(&chunk);
    assert_eq!(inflate(&stored, &digest).unwrap(), chunk);
    let check = |stored: &[u8], digest: &Digest, expected: &str| {
        let error = inflate(stored, digest).unwrap_err().to_string();
        assert!(error.ends_with(expected), "{error}");
    };
    check(&stored, &Digest::of(b"other"), "its content has another hash");
    check(&stored[..stored.len() / 2], &digest, "it cannot be inflated to a chunk");
    check(b"", &digest, "it cannot be inflated to a chunk");
    // A few bytes that would become a gibibyte.
    let bomb = deflate(&vec![0; LARGEST + 1]);
    assert!(bomb.len() < 1000);
    check(&bomb, &Digest::of(&vec![0; LARGEST + 1]), "it cannot be inflated to a chunk");
}

#[test]
fn content_that_is_not_as_its_manifest_says_is_refused() {
    let have = BTreeMap::from([b"one\n", b"two\n"].map(|it| (Digest::of(it), it.to_vec())));
    let whole = b"one\ntwo\n";
    let list = vec![Digest::of(b"one\n"), Digest::of(b"two\n")];
    let good = File {
        path: "x".to_owned(),
        size: 8,
        digest: Digest::of(whole),
        chunks: Chunks::Here(list.clone()),
    };
    let check = |file: &File, expected: &str| {
        let found = file.assemble(|digest| have.get(digest).cloned());
        let found = found.map_err(|error| error.to_string());
        assert_eq!(found, Err(expected.to_owned()));
    };
    assert_eq!(good.assemble(|digest| have.get(digest).cloned()).unwrap(), whole);
    let content = "the content of `x` does not match its manifest: ";
    let with = |chunks: Vec<Digest>| File { chunks: Chunks::Here(chunks), ..good.clone() };
    check(&with(vec![list[1], list[0]]), &format!("{content}it has another hash"));
    check(&with(vec![list[0]]), &format!("{content}it is smaller"));
    check(&with([list.clone(), list.clone()].concat()), &format!("{content}it is larger"));
    check(&File { size: 9, ..good.clone() }, &format!("{content}it is smaller"));
    check(&File { digest: list[0], ..good.clone() }, &format!("{content}it has another hash"));
    let absent = Digest::of(b"absent");
    check(&with(vec![absent]), &format!("the chunk {absent} is not here yet"));
    let lists = File { chunks: Chunks::In(vec![list[0]]), ..good.clone() };
    check(&lists, &format!("{content}a list of its chunks is damaged"));
    let lie = good.assemble(|_| Some(b"lie\n".to_vec()));
    assert!(matches!(lie, Err(Error::DamagedChunk { .. })), "{lie:?}");
}

#[test]
fn a_manifest_is_read_by_its_digest_and_leads_nowhere_else() {
    let check = |path: &str, size: u64, expected: &str| {
        let file = |path: &str| File {
            path: path.to_owned(),
            size,
            digest: Digest::of(b""),
            chunks: Chunks::Here(Vec::new()),
        };
        let manifest = Manifest { files: vec![file("a"), file(path)], urls: Vec::new() };
        let bytes = manifest.write();
        let error = Manifest::of_document(&Digest::of(&bytes), &bytes).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    for path in ["", "/etc/passwd", "../x", "x/../../y", "x//y", "./x", "x/", "a\0b"] {
        check(path, 0, "is no path below the document");
    }
    check("a", 0, "`a` is there twice");
    check("b", 1 << 40, "larger than a gibibyte");
    let packed = pack([("x", b"1".as_slice())], &[]);
    let error = Manifest::of_document(&Digest::of(b""), &packed.manifest).unwrap_err();
    assert!(error.to_string().contains("it is not the one of document"), "{error}");
}

fn cases() -> u32 {
    if std::env::var_os("HOMEOSTAT_SOAK").is_some() { 2000 } else { 24 }
}

/// Contents with lines of all lengths, some of them the same.
fn any_content() -> impl Strategy<Value = Vec<u8>> {
    let line = (0..6_usize, any::<u8>(), any::<bool>()).prop_map(|(scale, letter, has_end)| {
        let mut line = vec![letter; 7_usize.pow(u32::try_from(scale).unwrap())];
        line.extend(has_end.then_some(b'\n'));
        line
    });
    prop::collection::vec(line, 0..400).prop_map(|lines| lines.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn every_content_comes_out_as_it_was(content in any_content(), other in any_content()) {
        let chunks: Vec<&[u8]> = cut(&content).collect();
        prop_assert_eq!(chunks.concat(), &content[..]);
        prop_assert!(chunks.iter().all(|chunk| chunk.len() <= LARGEST));
        let (_, whole) = chunks.split_last().unwrap_or((&[].as_slice(), &[]));
        prop_assert!(whole.iter().all(|chunk| chunk.len() >= SMALLEST));
        let packed = pack([("a", content.as_slice()), ("b", &other)], &[]);
        let manifest = Manifest::of_document(&packed.document, &packed.manifest).unwrap();
        let raw = |digest: &Digest| packed.chunks.get(digest).cloned();
        prop_assert_eq!(manifest.files[0].assemble(raw).unwrap(), content);
        prop_assert_eq!(manifest.files[1].assemble(raw).unwrap(), other);
        prop_assert_eq!(manifest.missing(raw, |it| packed.chunks.contains_key(it)).unwrap(), BTreeSet::new());
    }

    #[test]
    fn no_bytes_make_a_reader_of_chunks_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(inflate(&bytes, &Digest::of(b"other")).is_err());
        let _ = Manifest::of_document(&Digest::of(&bytes), &bytes);
    }
}
