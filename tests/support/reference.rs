//! The pages of `docs/reference`, which tests generate from the code and the programs. `UPDATE=1` writes them.
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
