//! Programs that other people wrote and that only some machines have. A test without its program says that it is
//! skipped; where the program is required, it fails instead, so that nothing is left out without a word.

/// Names with commas between, of what must not be missing: `redis,clients,llama-server,buckets,tmpfs`.
const REQUIRE: &str = "MODEL_POOL_TESTS_REQUIRE";

/// Says what is missing and what to do.
///
/// # Panics
/// Where `MODEL_POOL_TESTS_REQUIRE` names `program`.
pub fn skipped(program: &str, why: &str) {
    let required = std::env::var(REQUIRE).unwrap_or_default();
    let is_required = required.split(',').any(|name| name.trim() == program);
    assert!(!is_required, "{REQUIRE} names {program}, but {why}");
    eprintln!("skipped: {why}");
}
