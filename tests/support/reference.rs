//! The pages of `docs/reference` that tests generate from the code and the programs, completely or below a heading. `UPDATE=1`
//! writes them.
use std::fs;

/// Compares a page with its generated text, or writes it. `tests` is the test program that generates it.
pub fn check(name: &str, made: &str, tests: &str) {
    let path = crate::root().join("docs/reference").join(name);
    if std::env::var_os("UPDATE").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, made).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == made,
        "docs/reference/{name} is not up to date; run UPDATE=1 cargo test --test {tests} reference::"
    );
}

/// Does the same for the end of a page: `made` is the text below `heading`, the last one of its level.
pub fn check_below(name: &str, heading: &str, made: &str, tests: &str) {
    let path = crate::root().join("docs/reference").join(name);
    let page = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
    let start = format!("\n## {heading}\n");
    let (above, _) = page
        .split_once(&start)
        .unwrap_or_else(|| panic!("docs/reference/{name} has no heading {heading}"));
    check(name, &format!("{above}{start}{made}"), tests);
}
