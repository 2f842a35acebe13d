//! The official Python client of the Model Context Protocol with the real program. The checks are `tests/clients/mcp_python.py`;
//! `.ci/mcp` installs the client, and without it this test reports that it was skipped.

use support::external_programs::skipped;
use support::service::Pool;

use crate::clients::{root, run, user_key};

#[test]
fn the_python_client_lists_tools_and_applies_a_plan_once() {
    let program = root().join("target/mcp/venv/bin/python");
    if !program.exists() {
        let why = format!(
            "there is no {}. Install it with `bash .ci/mcp`, and run `cargo test --test outside mcp::`",
            program.display()
        );
        return skipped("mcp", &why);
    }
    let models = [support::stub::model("writer", &[], "memory_gib: 0.5")];
    let pool = Pool::with_models(&models, "auth: {inference: key}\n");
    let script = root().join("tests/clients/mcp_python.py");
    let url = format!("http://{}", pool.address());
    let text = run(
        &program,
        &[script.to_str().unwrap()],
        &[
            ("MODEL_POOL_URL", &url),
            ("MODEL_POOL_MODEL", "writer"),
            ("MODEL_POOL_KEY", &user_key(&pool)),
            ("MODEL_POOL_ADMIN_KEY", &pool.admin_key()),
        ],
    );
    assert!(text.trim_end().ends_with("2 passed, 0 failed"), "{text}");
    assert!(!pool.log().contains("panicked"), "{}", pool.log());
}
