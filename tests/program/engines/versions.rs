//! A vLLM of another version than the pool's flag table: a start that fails because of an unknown flag reports the installed
//! version and the remedy.

use super::assert_has;
use serde_json::json;
use support::environment::{installed_package, vllm_script};
use support::service::Pool;

#[test]
fn an_argument_unknown_to_an_older_vllm_is_reported_with_its_version() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = |name: &str, error: &str| {
        let root = folder.path().join(name);
        let text = format!("echo 'usage: vllm [-h]' >&2\necho '{error}' >&2\nexit 2\n");
        (vllm_script(&root, &text), root)
    };
    let unknown = "vllm: error: unrecognized arguments: --monokernel";
    let (older, root) = script("older", unknown);
    installed_package(&root, "vllm", "0.28.1");
    let (same, root) = script("same", unknown);
    installed_package(&root, "vllm", "0.33.0");
    let (value, root) = script(
        "value",
        "Value error, User-specified max_model_len (8192) is greater than the derived max_model_len",
    );
    installed_package(&root, "vllm", "0.28.1");
    let demo = support::root().join("demo/models/tiny-guide");
    let file = |name: &str, program: &std::path::Path| {
        let text = format!(
            "engine_config:\n  model_id: {name}\n  type: VLLMEngine\n  model_path: {demo:?}\n  program: {program:?}\n  engine_kwargs: {{monokernel: true}}\npool_config: {{memory_gib: 4}}\n"
        );
        (format!("{name}.yaml"), text)
    };
    let files = [
        file("older", &older),
        file("same", &same),
        file("value", &value),
    ];
    let config = "inventory: {provider: host, host_memory: 9GiB, headroom: 0%}\n";
    let pool = Pool::with_devices(&files, config);
    let failure = |model: &str| {
        let body = json!({"model": model, "messages": [{"role": "user", "content": "Hi"}]});
        let (status, text) = pool.post("/v1/chat/completions", &body.to_string());
        assert!(status >= 500, "{status} {text}");
        text
    };
    let text = failure("older");
    assert_has(
        &text,
        &[
            "wrong arguments: ",
            "--monokernel",
            "remove the key from engine_config.engine_kwargs; vLLM 0.28.1 is installed in ",
            "the pool knows the flags of vLLM 0.33",
            "pip install -U vllm",
        ],
    );
    // The version is not blamed for other failures.
    for model in ["same", "value"] {
        let text = failure(model);
        assert!(!text.contains("is installed in"), "{text}");
    }
}
