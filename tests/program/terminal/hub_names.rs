//! Hub names with a quantization suffix, with the real program: registered by `run` with an admin key, by an administrator's load,
//! and by a model file.

use serde_json::{Value, json};
use support::hub::Hub;
use support::service::Pool;
use support::terminal::piped;
use support::tiny_gguf;

use super::{err, out};

struct Lab {
    hub: Hub,
    cache: tempfile::TempDir,
    folder: tempfile::TempDir,
}

impl Lab {
    fn new() -> Lab {
        let hub = Hub::start();
        hub.add(
            "lab/tiny-GGUF",
            &[
                ("README.md", b"text".to_vec()),
                ("tiny-Q4_K_M.gguf", tiny_gguf::bytes_for_chat(1)),
                ("tiny-Q8_0.gguf", tiny_gguf::bytes_for_chat(2)),
            ],
        );
        Lab {
            hub,
            cache: tempfile::tempdir().expect("a folder"),
            folder: tempfile::tempdir().expect("a folder"),
        }
    }

    fn pool(&self, files: &[(String, String)], catalog: &[(&str, &str)]) -> Pool {
        self.hub.pool(self.cache.path(), files, "", catalog)
    }

    fn run(&self, pool: &Pool, words: &[&str], key: Option<&str>) -> std::process::Output {
        let mut env = vec![("MODEL_POOL_SERVER", pool.address())];
        env.extend(key.map(|key| ("MODEL_POOL_ADMIN_KEY", key)));
        let mut all = vec!["run"];
        all.extend(words);
        piped(self.folder.path(), &all, &env, b"")
    }

    /// The downloaded GGUF files.
    fn fetched(&self) -> Vec<String> {
        let asked = self.hub.asked().into_iter().map(|request| request.path);
        asked.filter(|path| path.ends_with(".gguf")).collect()
    }
}

fn admin(pool: &Pool, method: &str, path: &str, body: &str) -> (u16, Value) {
    let key = pool.admin_key();
    let (status, text, _) = pool.request(method, &format!("/llm/admin{path}"), body, Some(&key));
    (
        status,
        serde_json::from_str(&text).unwrap_or(Value::String(text)),
    )
}

#[test]
fn run_with_an_admin_key_registers_a_hub_model_and_prints_its_response() {
    let lab = Lab::new();
    let pool = lab.pool(&[], &[]);
    let words = ["lab/tiny-GGUF:Q8_0", "Hello", "--max-tokens", "4"];
    let output = lab.run(&pool, &words, None);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        err(&output).contains("MODEL_POOL_ADMIN_KEY"),
        "{}",
        err(&output)
    );
    assert!(lab.fetched().is_empty());
    let output = lab.run(&pool, &words, Some(&pool.admin_key()));
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(
        err(&output).contains("Registered lab/tiny-GGUF:Q8_0"),
        "{}",
        err(&output)
    );
    assert!(!out(&output).trim().is_empty());
    assert_eq!(lab.fetched(), ["tiny-Q8_0.gguf"]);
    // Every caller may use it by this name from now on.
    let output = lab.run(&pool, &words, None);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
}

#[test]
fn an_unknown_quantization_is_refused_with_the_existing_ones() {
    let lab = Lab::new();
    let pool = lab.pool(&[], &[]);
    for name in ["lab/tiny-GGUF:Q2_K", "lab/tiny-GGUF"] {
        let output = lab.run(&pool, &[name, "Hello"], Some(&pool.admin_key()));
        assert_eq!(output.status.code(), Some(1), "{name}");
        let text = err(&output);
        assert!(text.contains("Q4_K_M, Q8_0"), "{text}");
    }
    let (_, models) = admin(&pool, "GET", "/models", "");
    assert_eq!(models["models"], json!([]), "nothing is registered");
    let (status, refusal) = admin(&pool, "PUT", "/models?model=lab/tiny-GGUF:", "");
    assert_eq!(status, 404, "{refusal}");
}

#[test]
fn an_administrator_and_a_model_file_can_load_the_same_hub_names() {
    let lab = Lab::new();
    let file = "engine_config: {model_id: small, type: CandleEngine, hf_model_id: \"lab/tiny-GGUF:q4_k_m\", max_total_tokens: 64}\n";
    let pool = lab.pool(&[("small.yaml".to_owned(), file.to_owned())], &[]);
    let body = json!({"model": "lab/tiny-GGUF:Q8_0"}).to_string();
    let (status, response) = admin(&pool, "POST", "/load", &body);
    assert_eq!(
        (status, &response["status"]),
        (200, &json!("ready")),
        "{response}"
    );
    let output = lab.run(&pool, &["small", "Hello", "--max-tokens", "4"], None);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(lab.fetched(), ["tiny-Q8_0.gguf", "tiny-Q4_K_M.gguf"]);
}

#[test]
fn any_user_may_register_a_hub_model_if_configured() {
    let lab = Lab::new();
    let pool = lab.pool(&[], &[("MODEL_POOL__CATALOG__ON_UNKNOWN", "anyone")]);
    let words = ["hf.co/lab/tiny-GGUF:Q4_K_M", "Hello", "--max-tokens", "4"];
    let output = lab.run(&pool, &words, None);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(lab.fetched(), ["tiny-Q4_K_M.gguf"]);
}

#[test]
fn with_refuse_no_hub_model_is_registered() {
    let lab = Lab::new();
    let pool = lab.pool(&[], &[("MODEL_POOL__CATALOG__ON_UNKNOWN", "refuse")]);
    let key = pool.admin_key();
    let output = lab.run(&pool, &["lab/tiny-GGUF:Q4_K_M", "Hello"], Some(&key));
    assert_eq!(output.status.code(), Some(1), "{}", out(&output));
    assert!(
        err(&output).contains("models are loaded from files only"),
        "{}",
        err(&output)
    );
    assert_eq!(lab.hub.listed(), 0);
}
