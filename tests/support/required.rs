//! Third-party programs that only some machines have. A test without its program reports that it is skipped; where the
//! program is required, it fails instead, so that no test is left out silently.

/// Comma-separated names of what must not be missing: `redis,slurm,helm,postgres,clients,dashboard,llama-server,buckets,tmpfs,promtool,cuda`.
const REQUIRE: &str = "MODEL_POOL_TESTS_REQUIRE";

/// Reports what is missing and what to do.
///
/// # Panics
/// If `MODEL_POOL_TESTS_REQUIRE` names `program`.
pub fn skipped(program: &str, why: &str) {
    let required = std::env::var(REQUIRE).unwrap_or_default();
    let is_required = required.split(',').any(|name| name.trim() == program);
    assert!(!is_required, "{REQUIRE} names {program}, but {why}");
    eprintln!("skipped: {why}");
}
