//! The table of shared limits in docs/guides/security.md, compared with the code.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use support::code::{is_test_file, rust_files, without_tests};
use support::root;

const BEGIN: &str =
    "<!-- shared limits: written by `UPDATE=1 cargo test --test program shared_limits::` -->\n";
const END: &str = "<!-- shared limits: end -->";
/// Crates without callers that share anything: a load generator, and a rate of a load over time.
const WITHOUT_CALLERS: [&str; 2] = ["bench", "schedule"];
/// The constructs of shared limits.
const CONSTRUCTS: [&str; 6] = [
    "Semaphore::new(",
    "Semaphore::const_new(",
    "Shares::new(",
    "Failures::new(",
    "Rate::new(",
    ": Counts,",
];

/// Counts the constructs of each file outside of its tests.
fn constructs() -> BTreeMap<String, usize> {
    let mut files = rust_files(&root().join("src"));
    let without = WITHOUT_CALLERS.map(|room| root().join("src").join(room));
    files.retain(|path| !is_test_file(path) && !without.iter().any(|room| path.starts_with(room)));
    let counted = files.into_iter().filter_map(|path| {
        let code = without_tests(&fs::read_to_string(&path).unwrap());
        let lines = code
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        let count = lines
            .map(|line| {
                CONSTRUCTS
                    .iter()
                    .filter(|mark| line.contains(*mark))
                    .count()
            })
            .sum();
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        (count > 0).then_some((name, count))
    });
    counted.collect()
}

#[test]
fn every_construct_of_a_shared_limit_has_a_row_and_each_row_its_code() {
    let mut rows: BTreeMap<String, usize> = BTreeMap::new();
    for file in http::shared_limits().iter().flat_map(|row| row.code) {
        assert!(root().join(file).exists(), "{file} is gone");
        *rows.entry((*file).to_owned()).or_default() += 1;
    }
    for (file, count) in constructs() {
        let listed = rows.get(&file).copied().unwrap_or_default();
        assert_eq!(
            listed, count,
            "{file} has {count} constructs that callers share, of which {listed} have a row; add rows to src/http/shared_limits.rs, with the share of each caller and a test"
        );
    }
}

#[test]
fn every_shared_limit_is_filled_by_a_test() {
    let mut files = rust_files(&root().join("src"));
    files.extend(rust_files(&root().join("tests")));
    let texts: Vec<String> = files
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .collect();
    for row in http::shared_limits() {
        let has_no_caller = row.share.starts_with("none: ");
        assert!(
            !row.tests.is_empty() || has_no_caller,
            "{}: no test fills it",
            row.bounds
        );
        for test in row.tests {
            let definition = format!("fn {test}()");
            let exists = texts.iter().any(|text| text.contains(&definition));
            assert!(exists, "{}: the test {test} does not exist", row.bounds);
        }
    }
}

#[test]
fn the_table_of_shared_limits_is_up_to_date() {
    let mut table = "| what | size | one caller's share | loses it first | effect on others |\n|---|---|---|---|---|\n".to_owned();
    for row in http::shared_limits() {
        let (bounds, size, share) = (row.bounds, row.size, row.share);
        let (eviction, others) = (row.eviction, row.others);
        writeln!(
            table,
            "| {bounds} | {size} | {share} | {eviction} | {others} |"
        )
        .unwrap();
    }
    let path = root().join("docs/guides/security.md");
    let page = fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the mark before the table");
    let (written, after) = rest.split_once(END).expect("the mark after the table");
    if std::env::var_os("UPDATE").is_some() {
        return fs::write(path, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
    }
    assert_eq!(
        written, table,
        "docs/guides/security.md is not up to date: run UPDATE=1 cargo test --test program shared_limits::"
    );
}
