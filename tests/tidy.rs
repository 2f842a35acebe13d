//! House rules that are tests: which module imports what, what the core never touches, how a file
//! begins and how long it may be, and words that do not belong into the repository. A new top-level
//! module fails until it has a row in the table of tidy/layers.rs.

#[path = "tidy/layers.rs"]
mod layers;
#[path = "tidy/source.rs"]
mod source;
#[path = "tidy/unsafe_blocks.rs"]
mod unsafe_blocks;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use layers::layer_breaches;

/// Text that stays out of every Rust file; cut in two, so that this file passes.
const BANNED_IN_RUST: &[(&str, &str)] = &[
    (concat!("todo", "!("), "finish it, or leave it out"),
    (concat!("unimplemented", "!("), "finish it, or leave it out"),
    (concat!("#[", "ignore"), "a test that is not run is no test"),
];
/// Text that stays out of every file.
const BANNED_EVERYWHERE: &[(&str, &str)] =
    &[(concat!("/wo", "rk/"), "a path of somebody's machine")];

const LINES_MAX: usize = 500;
const LONGER_BECAUSE: &str = "//! Longer than 500 lines because";

/// The dependencies in a `Cargo.toml`, by section, as they are named in code.
fn dependencies(manifest: &str, section: &str) -> BTreeSet<String> {
    let mut inside = false;
    let mut names = BTreeSet::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            inside = line.trim() == format!("[{section}]");
        } else if inside
            && let Some((name, _)) = line.split_once(['=', '.'])
            && !line.starts_with('#')
        {
            names.insert(name.trim().replace('-', "_"));
        }
    }
    names
}

/// What in the form of any Rust file is against the rules.
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

/// Files below `root`, by paths relative to it, without what is built, stored or hidden. `.ci` is
/// part of the repository, though hidden.
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

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
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
        rust.iter().any(|file| file == "tests/tidy.rs"),
        "the walk does not find this file"
    );
    rust
}

#[test]
fn every_module_imports_only_what_its_layer_may() {
    let externals = dependencies(&read(root(), "Cargo.toml"), "dependencies");
    assert!(
        externals.contains("tokio") && externals.contains("serde_saphyr"),
        "{externals:?}"
    );
    let breaches: Vec<String> = rust_files()
        .iter()
        .filter(|file| file.starts_with("src/"))
        .flat_map(|file| layer_breaches(file, &read(root(), file), &externals))
        .collect();
    assert_none(&breaches);
}

#[test]
fn every_file_has_a_head_and_a_bounded_length_and_nothing_unfinished() {
    let breaches: Vec<String> = rust_files()
        .iter()
        .flat_map(|file| form_breaches(file, &read(root(), file)))
        .collect();
    assert_none(&breaches);
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

const UNSAFE_BEGIN: &str = "<!-- unsafe blocks: written by `UPDATE=1 cargo test --test tidy` -->\n";
const UNSAFE_END: &str = "<!-- unsafe blocks: end -->";

#[test]
fn every_unsafe_block_has_a_reason_and_stands_in_the_documentation() {
    let mut table = "| file | blocks | why it is right |\n|---|---|---|\n".to_owned();
    let mut without = Vec::new();
    for file in rust_files() {
        match unsafe_blocks::reasons(&read(root(), &file)) {
            Err(lines) => {
                let told = |line| {
                    format!("{file}:{line}: write above it what makes it right, as `// SAFETY: …`")
                };
                without.extend(lines.into_iter().map(told));
            }
            Ok(reasons) => table.extend(reasons.into_iter().map(|(count, reason)| {
                let reason = reason.replace('|', "\\|");
                format!("| `{file}` | {count} | {reason} |\n")
            })),
        }
    }
    assert_none(&without);
    let page = read(root(), "docs/security.md");
    let (before, rest) = page
        .split_once(UNSAFE_BEGIN)
        .expect("where the table begins");
    let (written, after) = rest.split_once(UNSAFE_END).expect("where the table ends");
    if std::env::var_os("UPDATE").is_some() {
        let page = format!("{before}{UNSAFE_BEGIN}{table}{UNSAFE_END}{after}");
        return fs::write(root().join("docs/security.md"), page).unwrap();
    }
    assert_eq!(
        written, table,
        "the table of docs/security.md is not up to date; run UPDATE=1 cargo test --test tidy"
    );
}

#[test]
fn the_other_members_know_nothing_of_the_root_crate() {
    for member in ["admin-client", "candle-engine"] {
        let manifest = read(root(), &format!("{member}/Cargo.toml"));
        let names = dependencies(&manifest, "dependencies");
        assert!(!names.is_empty(), "{member} has dependencies");
        assert!(
            !names.contains("model_pool"),
            "{member} depends on the root crate"
        );
    }
}

#[test]
fn the_check_itself_sees_breaches_of_the_form() {
    let long = format!("//! Head.\n{}", "fn f() {}\n".repeat(LINES_MAX));
    let excused = format!(
        "//! Head.\n{LONGER_BECAUSE} it is one table.\n{}",
        "x\n".repeat(LINES_MAX)
    );
    let cases = [
        ("fn f() {}\n".to_owned(), 1, "//! head"),
        (long, 1, "has 501 lines"),
        (excused, 0, ""),
        (
            format!("//! Head.\nfn f() {{ {}) }}\n", BANNED_IN_RUST[0].0),
            1,
            ":2: contains",
        ),
        (
            format!("//! Head.\n{}] fn f() {{}}\n", BANNED_IN_RUST[2].0),
            1,
            "no test",
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

#[test]
fn dependencies_are_read_as_code_names_them() {
    let manifest = "[package]\nname = \"x\"\n[dependencies]\n# no = 1\naxum.workspace = true\narc-swap = \"1\"\n[dev-dependencies]\ntempfile = \"3\"\n";
    let names: Vec<String> = dependencies(manifest, "dependencies").into_iter().collect();
    assert_eq!(names, ["arc_swap", "axum"]);
}
