//! House rules as tests: file headers and lengths, import cycles, reasons for `unsafe`, private words, and banned text. The crates'
//! manifests determine permitted dependencies.

mod circles;
mod core_layers;
mod plain_language;
mod private_words;
mod status_codes;
mod unsafe_blocks;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use circles::Crate;
use support::root;

/// Text that is banned in every Rust file; split to keep this file valid.
const BANNED_IN_RUST: &[(&str, &str)] = &[
    (concat!("todo", "!("), "finish it, or leave it out"),
    (concat!("unimplemented", "!("), "finish it, or leave it out"),
    (concat!("#[", "ignore"), "run the test, or remove it"),
];
/// Text that is banned in every file.
const BANNED_EVERYWHERE: &[(&str, &str)] =
    &[(concat!("/wo", "rk/"), "a path on a developer's machine")];

/// A file may be longer if its header gives the reason.
const LINES_MAX: usize = 400;
const LONGER_BECAUSE: &str = "//! One file because";

/// Violations of the formal rules for Rust files.
fn form_breaches(file: &str, text: &str) -> Vec<String> {
    let mut breaches = Vec::new();
    let head: Vec<&str> = text
        .lines()
        .take_while(|line| line.starts_with("//!"))
        .collect();
    if head.is_empty() {
        breaches.push(format!(
            "{file}: begins without a //! head that says what it owns and what it never does"
        ));
    }
    let lines = text.lines().count();
    if lines > LINES_MAX && !head.iter().any(|line| line.starts_with(LONGER_BECAUSE)) {
        breaches.push(format!(
            "{file}: has {lines} lines; split it, or say in its head \"{LONGER_BECAUSE} …\""
        ));
    }
    breaches.extend(banned(file, text, BANNED_IN_RUST));
    breaches
}

fn banned(file: &str, text: &str, words: &[(&str, &str)]) -> Vec<String> {
    let mut breaches = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for (word, why) in words.iter().filter(|(word, _)| line.contains(word)) {
            breaches.push(format!("{file}:{}: contains `{word}`: {why}", number + 1));
        }
    }
    breaches
}

/// Files below `root`, as relative paths, without build products, data and hidden files. `.ci` is part of the
/// repository, though hidden.
fn files(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder)).expect("a folder of the repository") {
            let entry = entry.expect("an entry");
            let name = entry.file_name().to_string_lossy().into_owned();
            let hidden = name.starts_with('.') && name != ".ci";
            let built = match folder.to_str() {
                Some("") => matches!(name.as_str(), "target" | "data"),
                Some("fuzz") => matches!(name.as_str(), "target" | "artifacts" | "coverage"),
                _ => false,
            };
            if hidden || built {
                continue;
            }
            let path = folder.join(&name);
            match entry.file_type().expect("a type") {
                kind if kind.is_dir() => folders.push(path),
                kind if kind.is_file() => found.push(path.to_string_lossy().into_owned()),
                _ => {}
            }
        }
    }
    found.sort();
    found
}

fn read(root: &Path, file: &str) -> String {
    fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn assert_none(breaches: &[String]) {
    assert!(
        breaches.is_empty(),
        "{} breaches:\n{}",
        breaches.len(),
        breaches.join("\n")
    );
}

fn rust_files() -> Vec<String> {
    let mut rust = files(root());
    rust.retain(|file| file.ends_with(".rs"));
    assert!(
        rust.iter().any(|file| file == "tests/plain/tidy.rs"),
        "the walk does not find this file"
    );
    rust
}

const CIRCLE_MAX: usize = 3;
/// A folder in a cycle with files of the crate's root counts as one.
const FOLDER_CIRCLE_MAX: usize = 1;

#[test]
fn import_cycles_are_bounded_in_size() {
    let files = files(root());
    let manifests = files
        .iter()
        .filter_map(|file| file.strip_suffix("Cargo.toml"));
    let folders = manifests.filter(|folder| folder.starts_with("src/"));
    let mut breaches = Vec::new();
    for folder in folders.chain(["src/", "admin-client/src/", "candle-engine/src/"]) {
        let mut sources = Crate::default();
        let own = |file: &&String| file.starts_with(folder) && is_of(file, folder);
        for file in rust_files().iter().filter(own) {
            sources.add(&file[folder.len()..], &read(root(), file));
        }
        let circle = sources.largest_circle();
        // `-- --nocapture` prints the figures of docs/internals/development.md.
        println!("{folder}: {}", circle.len());
        if circle.len() > CIRCLE_MAX {
            let circle = format!("{} files: {}", circle.len(), circle.join(" "));
            breaches.push(format!("{folder}: {circle}"));
        }
        let circle = sources.largest_folder_circle();
        println!("{folder}: {} folders: {}", circle.len(), circle.join(" "));
        if circle.len() > FOLDER_CIRCLE_MAX {
            let circle = format!("{} folders: {}", circle.len(), circle.join(" "));
            breaches.push(format!("{folder}: {circle}"));
        }
    }
    assert_none(&breaches);
}

#[test]
fn the_table_of_crates_matches_the_manifests() {
    let files = files(root());
    let manifest = |file: &str| {
        let name = file.strip_prefix("src/")?.strip_suffix("/Cargo.toml")?;
        Some(name.to_owned())
    };
    let crates: BTreeSet<String> = files.iter().filter_map(|file| manifest(file)).collect();
    assert!(crates.contains("pool"), "{crates:?}");
    let page = read(root(), "docs/internals/architecture.md");
    let mut breaches = Vec::new();
    for name in &crates {
        let text = read(root(), &format!("src/{name}/Cargo.toml"));
        let (_, rest) = text.split_once("[dependencies]").expect("dependencies");
        let section = rest.split("\n[").next().unwrap_or_default();
        let used = section
            .lines()
            .filter_map(|line| line.strip_suffix(".workspace = true"));
        let used: BTreeSet<&str> = used.filter(|name| crates.contains(*name)).collect();
        let row = page
            .lines()
            .find(|line| line.starts_with(&format!("| `{name}` |")));
        let last = row.and_then(|row| row.trim_end_matches(['|', ' ']).rsplit('|').next());
        let written = last.unwrap_or_default().split('`').skip(1).step_by(2);
        let written: BTreeSet<&str> = written.collect();
        if row.is_none() || written != used {
            breaches.push(format!(
                "docs/internals/architecture.md: {name} depends on {used:?}"
            ));
        }
    }
    assert_none(&breaches);
}

#[test]
fn functions_named_in_the_architecture_page_exist() {
    let page = read(root(), "docs/internals/architecture.md");
    let mut breaches = Vec::new();
    let mut cited = 0;
    for (file, rest) in page
        .split("`src/")
        .skip(1)
        .filter_map(|rest| rest.split_once('`'))
    {
        let file = format!("src/{file}");
        // `src/X` stands for any crate.
        if file == "src/X" {
            continue;
        }
        if !root().join(&file).exists() {
            breaches.push(format!("{file} is not there"));
            continue;
        }
        let Some(name) = rest
            .strip_prefix(": `")
            .and_then(|rest| rest.split('`').next())
        else {
            continue;
        };
        cited += 1;
        let item = name.rsplit("::").next().unwrap_or_default();
        let text = read(root(), &file);
        let is_there = |kind: &&str| text.contains(&format!("{kind} {item}"));
        if !["fn", "struct", "enum"].iter().any(is_there) {
            breaches.push(format!("{file} has no {item}"));
        }
    }
    assert!(cited > 40, "{cited}");
    assert_none(&breaches);
}

/// Returns true if a file belongs to the crate of this folder, and not to a nested crate.
fn is_of(file: &str, folder: &str) -> bool {
    let below = file[folder.len()..].split_once('/');
    let Some((first, _)) = below.filter(|_| !file.ends_with("tests.rs")) else {
        return !file.ends_with("tests.rs");
    };
    !root().join(folder).join(first).join("Cargo.toml").exists()
}

#[test]
fn every_file_has_a_header_a_bounded_length_and_no_unfinished_code() {
    let breaches: Vec<String> = rust_files()
        .iter()
        .flat_map(|file| form_breaches(file, &read(root(), file)))
        .collect();
    assert_none(&breaches);
}

#[test]
fn names_and_comments_contain_no_private_words() {
    let mut files = rust_files();
    let is_held = |file: &String| {
        ["src/", "candle-engine/src/"]
            .iter()
            .any(|folder| file.starts_with(folder))
    };
    files.retain(is_held);
    let breaches: Vec<String> = files
        .iter()
        .flat_map(|file| {
            let found = private_words::found(&read(root(), file));
            found.into_iter().map(move |(line, word)| {
                format!("{file}:{line}: `{word}`: use the standard term, with the subject first")
            })
        })
        .collect();
    assert_none(&breaches);
}

#[test]
fn comments_and_code_use_plain_technical_language() {
    let mut files = rust_files();
    // Holds the patterns and an example of each.
    files.retain(|file| !file.ends_with("plain_language.rs"));
    let texts: Vec<String> = files.iter().map(|file| read(root(), file)).collect();
    assert_none(&plain_language::breaches(texts.iter().map(String::as_str)));
}

#[test]
fn no_file_names_a_path_of_one_machine() {
    let breaches: Vec<String> = files(root())
        .iter()
        .filter_map(|file| Some((file, fs::read_to_string(root().join(file)).ok()?)))
        .flat_map(|(file, text)| banned(file, &text, BANNED_EVERYWHERE))
        .collect();
    assert_none(&breaches);
}

const UNSAFE_BEGIN: &str =
    "<!-- unsafe blocks: written by `UPDATE=1 cargo test --test plain tidy::` -->\n";
const UNSAFE_END: &str = "<!-- unsafe blocks: end -->";

#[test]
fn every_unsafe_block_has_a_reason_and_is_listed_in_the_documentation() {
    let mut table = "| file | blocks | why it is right |\n|---|---|---|\n".to_owned();
    let mut without = Vec::new();
    for file in rust_files() {
        match unsafe_blocks::reasons(&read(root(), &file)) {
            Err(lines) => {
                let breach = |line| {
                    format!("{file}:{line}: write above it what makes it right, as `// SAFETY: …`")
                };
                without.extend(lines.into_iter().map(breach));
            }
            Ok(reasons) => table.extend(reasons.into_iter().map(|(count, reason)| {
                let reason = reason.replace('|', "\\|");
                format!("| `{file}` | {count} | {reason} |\n")
            })),
        }
    }
    assert_none(&without);
    let page = read(root(), "docs/guides/security.md");
    let (before, rest) = page
        .split_once(UNSAFE_BEGIN)
        .expect("where the table begins");
    let (written, after) = rest.split_once(UNSAFE_END).expect("where the table ends");
    if std::env::var_os("UPDATE").is_some() {
        let page = format!("{before}{UNSAFE_BEGIN}{table}{UNSAFE_END}{after}");
        return fs::write(root().join("docs/guides/security.md"), page).unwrap();
    }
    assert_eq!(
        written, table,
        "the table of docs/guides/security.md is not up to date; run UPDATE=1 cargo test --test plain tidy::"
    );
}

#[test]
fn the_form_check_detects_breaches() {
    let long = format!("//! Head.\n{}", "fn f() {}\n".repeat(LINES_MAX));
    let excused = format!(
        "//! Head.\n{LONGER_BECAUSE} it is one table.\n{}",
        "x\n".repeat(LINES_MAX)
    );
    let cases = [
        ("fn f() {}\n".to_owned(), 1, "//! head"),
        (long, 1, "has 401 lines"),
        (excused, 0, ""),
        (
            format!("//! Head.\nfn f() {{ {}) }}\n", BANNED_IN_RUST[0].0),
            1,
            ":2: contains",
        ),
        (
            format!("//! Head.\n{}] fn f() {{}}\n", BANNED_IN_RUST[2].0),
            1,
            "run the test",
        ),
    ];
    for (text, count, expected) in cases {
        let breaches = form_breaches("a.rs", &text);
        assert_eq!(breaches.len(), count, "{breaches:?}");
        assert!(
            breaches.iter().all(|breach| breach.contains(expected)),
            "{breaches:?}"
        );
    }
    let path = format!("see {}x", BANNED_EVERYWHERE[0].0);
    assert_eq!(banned("README.md", &path, BANNED_EVERYWHERE).len(), 1);
}
