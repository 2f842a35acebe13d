//! Feeds every parser of external data 20,000 reproducible mutations of valid inputs: none makes it panic or take long. `fuzz/`
//! continues with a fuzzer.

use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::time::{Duration, SystemTime};

use parsers::{PARSERS, Parser};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

const INPUTS: usize = 20_000;
/// Time limit for one input on a busy machine; most take microseconds.
const ONE_MAX: Duration = Duration::from_secs(2);
/// The length limit of changed inputs.
const BYTES_MAX: usize = 16 << 10;
/// Difficult input for parsers: ends, nesting, boundary values, multi-byte characters.
const PIECES: &[&[u8]] = &[
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b"\\",
    b"\\u",
    b":",
    b",",
    b"\n",
    b"\r\n\r\n",
    b"\n\n",
    b"data:",
    b"null",
    b"-1",
    b"0",
    b"1e999",
    b"18446744073709551615",
    b"9223372036854775808",
    b"NaN",
    b"%",
    b"&a",
    b"*a",
    b"!!",
    b"|",
    b"- ",
    b"<<: ",
    b"\xff",
    b"\xc3",
    b"\xf0\x9f\x98\x80",
    b"\0",
    b"../",
    b"{{",
    b"\xef\xbb\xbf",
    b"\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"[[[[[[[[[[[[[[[[",
    b"{\"a\":{\"a\":{\"a\":",
];

/// A valid input with a few changes.
fn changed(corpus: &[Vec<u8>], random: &mut StdRng) -> Vec<u8> {
    let mut bytes = corpus.choose(random).expect("an input").clone();
    for _ in 0..random.random_range(1..=6) {
        let at = random.random_range(0..=bytes.len());
        let end = (at + random.random_range(0..=16)).min(bytes.len());
        match random.random_range(0..8) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.random_range(0..8),
            1 if at < bytes.len() => bytes[at] = random.random(),
            2 => drop(bytes.drain(at..end)),
            3 => bytes.truncate(at),
            4 => {
                let again = bytes[at..end].to_vec();
                let times = random.random_range(1..=32);
                bytes.splice(at..at, again.repeat(times));
            }
            5 => {
                let other = corpus.choose(random).expect("an input");
                let from = random.random_range(0..=other.len());
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            _ => {
                let piece = PIECES.choose(random).expect("a piece");
                bytes.splice(at..end, piece.iter().copied());
            }
        }
        bytes.truncate(BYTES_MAX);
    }
    bytes
}

fn corpus_of(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(name);
    let entries =
        fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} is empty", folder.display());
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// A folder in memory, if the system has one.
fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir())
    } else {
        tempfile::tempdir()
    }
    .unwrap()
}

fn withstands(name: &str) {
    let found = PARSERS.iter().find(|(known, _)| *known == name);
    let parser: Parser = found.expect("a parser of this name").1;
    let corpus = corpus_of(name);
    let folder = scratch();
    let mut random = StdRng::seed_from_u64(20_261);
    let good = corpus.iter().cloned();
    let bad = (0..INPUTS).map(|_| changed(&corpus, &mut random));
    for (nth, input) in good.chain(bad).enumerate() {
        let began = SystemTime::now();
        let read = panic::catch_unwind(AssertUnwindSafe(|| parser(&input, folder.path())));
        let took = began.elapsed().unwrap_or_default();
        let shown = || input.escape_ascii().to_string();
        assert!(read.is_ok(), "{name} panicked at input {nth}: {}", shown());
        assert!(
            took < ONE_MAX,
            "{name} took {took:?} for input {nth}: {}",
            shown()
        );
    }
}

/// One test per parser: they run in parallel, and each has a name.
macro_rules! each_withstands {
    ($($name:ident),*) => {
        $(#[test] fn $name() { withstands(stringify!($name)); })*

        #[test]
        fn every_parser_has_its_test_and_its_fuzzer() {
            let tested = [$(stringify!($name)),*];
            let known: Vec<&str> = PARSERS.iter().map(|(name, _)| *name).collect();
            assert_eq!(tested[..], known[..]);
            let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/Cargo.toml");
            let manifest = fs::read_to_string(manifest).unwrap();
            for name in known {
                assert!(manifest.contains(&format!("fuzz_targets/{name}.rs")), "{name}");
            }
        }
    };
}

each_withstands!(
    body,
    outgoing,
    stream,
    safetensors,
    gguf,
    model_config,
    model_file,
    config,
    units,
    hub_listing,
    manifest,
    dialect,
    form,
    head,
    token,
    guardian
);
