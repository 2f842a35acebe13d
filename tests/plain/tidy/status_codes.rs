//! Status codes of errors are named in tables only: code that serves requests uses the kinds of `api_types::error`.

use std::path::Path;

use super::{assert_none, read, root, rust_files};
use support::code::{is_test_file, without_tests};

/// Files that name status codes of errors: the table of the pool's own errors, and the table of engines' errors in streams.
const ERROR_TABLES: [&str; 2] = ["src/api_types/error/kind.rs", "src/dialect/overflow.rs"];
/// Status codes that are not errors.
const NO_ERRORS: [&str; 7] = [
    "ACCEPTED",
    "NOT_MODIFIED",
    "NO_CONTENT",
    "OK",
    "PERMANENT_REDIRECT",
    "SEE_OTHER",
    "SWITCHING_PROTOCOLS",
];

/// The status codes of errors that a text names.
fn error_statuses(text: &str) -> Vec<&str> {
    let named = text.split("StatusCode::").skip(1).map(|rest| {
        let end = rest.find(|letter: char| !letter.is_ascii_uppercase() && letter != '_');
        &rest[..end.unwrap_or(rest.len())]
    });
    named
        .filter(|name| !name.is_empty() && !NO_ERRORS.contains(name))
        .collect()
}

#[test]
fn one_table_maps_errors_to_status_codes() {
    let mut files = rust_files();
    files.retain(|file| {
        let is_serving = [
            "admin",
            "api_types",
            "dialect",
            "edge",
            "gateway",
            "http",
            "serve",
        ]
        .iter()
        .any(|name| file.starts_with(&format!("src/{name}/")));
        is_serving && !is_test_file(Path::new(file))
    });
    for table in ERROR_TABLES {
        assert!(files.iter().any(|file| file == table), "{table} is gone");
        assert!(
            !error_statuses(&without_tests(&read(root(), table))).is_empty(),
            "{table}"
        );
    }
    files.retain(|file| !ERROR_TABLES.contains(&file.as_str()));
    let breaches: Vec<String> = files
        .iter()
        .flat_map(|file| {
            let text = without_tests(&read(root(), file));
            let named = error_statuses(&text);
            named
                .iter()
                .map(|name| format!("{file}: StatusCode::{name}: use a kind of api_types::error"))
                .collect::<Vec<_>>()
        })
        .collect();
    assert_none(&breaches);
    let sample = "(StatusCode::OK, StatusCode::GONE)";
    assert_eq!(error_statuses(sample), ["GONE"]);
}
