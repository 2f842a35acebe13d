//! Third-party programs that only some machines have. A test without its program reports that it is skipped; where the program is
//! required, the test fails instead.

/// Comma-separated names of the programs and features that this machine must have:
/// `redis,slurm,helm,postgres,clients,dashboard,llama-server,buckets,tmpfs,promtool,cuda,open-webui,network,generators`.
const REQUIRE: &str = "MODEL_POOL_TESTS_REQUIRE";

/// `later` makes the tests of `tests/outside` ignore installed programs. `.ci/run` runs these tests at its end.
const OUTSIDE: &str = "MODEL_POOL_TESTS_OUTSIDE";

/// Returns true if installed programs must be ignored. Checked by tests of single crates that can use such a program.
pub fn is_for_later() -> bool {
    let is_later = std::env::var(OUTSIDE).is_ok_and(|when| when == "later");
    let of_this = std::env::current_exe().unwrap_or_default();
    let name = of_this.file_name().unwrap_or_default().to_string_lossy();
    is_later && name.starts_with("outside-")
}

/// Reports the missing program and its remedy.
///
/// # Panics
/// If `MODEL_POOL_TESTS_REQUIRE` names `program`.
pub fn skipped(program: &str, why: &str) {
    let required = std::env::var(REQUIRE).unwrap_or_default();
    let is_required = required.split(',').any(|name| name.trim() == program);
    assert!(!is_required, "{REQUIRE} names {program}, but {why}");
    if is_for_later() {
        eprintln!("skipped: {OUTSIDE} says that the tests with {program} run later")
    } else {
        eprintln!("skipped: {why}")
    }
}
