//! The repository's Rust files, and their code without the tests.

use std::fs;
use std::path::{Path, PathBuf};

/// Rust files below a folder, without links and build products.
pub fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("an entry");
        let path = entry.path();
        let kind = entry.file_type().expect("a type");
        if kind.is_dir() && entry.file_name() != "target" {
            found.extend(rust_files(&path));
        } else if kind.is_file() && path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// Returns true if the complete file is compiled for tests only.
pub fn is_test_file(path: &Path) -> bool {
    let name = path.to_string_lossy();
    name.ends_with("tests.rs") || name.contains("/tests/")
}

/// The code of a formatted file without the items that only tests compile.
pub fn without_tests(text: &str) -> String {
    let mut code = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(indent) = line.strip_suffix("#[cfg(test)]") else {
            code.push_str(line);
            code.push('\n');
            continue;
        };
        // An item ends in the column in which it begins.
        let ends = |line: &str| {
            let rest = line.strip_prefix(indent).unwrap_or_default();
            !rest.starts_with([' ', '#', '/']) && rest.ends_with(['}', ';', ','])
        };
        lines.find(|line| ends(line));
    }
    code
}

#[test]
fn code_between_and_after_tests_is_kept() {
    let text = "use a;\n#[cfg(test)]\nuse b::{\n    c,\n};\n    #[cfg(test)]\n    /// D.\n    fn d(\n        e: F,\n    ) {\n        g;\n    }\nh;\n#[cfg(test)]\nmod tests;\ni;\n";
    assert_eq!(without_tests(text), "use a;\nh;\ni;\n");
}
