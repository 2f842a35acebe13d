//! LoRA adapters that are found by name in buckets: downloaded, checked, loaded, kept and replaced, with a real S3 server and a
//! server of Google's storage API on this machine.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use support::adapters::{config, tensors};
use support::buckets::{Gcs, KEY, S3, SECRET, Wire};
use support::service::{Pool, wait_for};

const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/demo/models/tiny-chat");

/// The files of an adapter for the demo's chat model.
fn files(base: &str, rank: usize, seed: u64) -> [(&'static str, Vec<u8>); 3] {
    [
        ("adapter_config.json", config(base, rank).into_bytes()),
        ("adapter_model.safetensors", tensors(rank, seed)),
        ("checkpoint-1/optimizer.pt", vec![7; 100]),
    ]
}

fn put(s3: &S3, folder: &str, base: &str, rank: usize, seed: u64) {
    for (name, content) in files(base, rank, seed) {
        s3.put("lab", &format!("{folder}/{name}"), &content);
    }
}

fn pool(path: &str, env: &Value, lora: &str, cache: &Path) -> Pool {
    let file = format!(
        "engine_config:\n  model_id: lab/tiny\n  type: CandleEngine\n  model_path: {TINY:?}\n  max_total_tokens: 128\n  runtime_env: {{env_vars: {env}}}\nlora_config: {{dynamic_lora_loading_path: {path:?}, max_num_adapters_per_replica: 2, max_lora_rank: 16, base_models: [tiny-chat]{lora}}}\n"
    );
    let config = format!("sources: {{cache_dir: {cache:?}, keep_free: 1MiB}}\n");
    Pool::with_env(&[("tiny.yaml".to_owned(), file)], &config, &[])
}

fn keys(address: &str) -> Value {
    json!({"AWS_ENDPOINT_URL": format!("http://{address}"), "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"})
}

fn send(pool: &Pool, model: &str) -> (u16, String) {
    let body = json!({"model": model, "max_tokens": 12, "temperature": 0,
        "messages": [{"role": "user", "content": "What is the capital of France?"}]});
    let (status, response) = pool.post("/v1/chat/completions", &body.to_string());
    let response: Value = serde_json::from_str(&response).expect("JSON");
    let text = match status {
        200 => &response["choices"][0]["message"]["content"],
        _ => &response["error"]["message"],
    };
    (status, text.as_str().unwrap_or_default().to_owned())
}

fn ask(pool: &Pool, model: &str) -> String {
    let (status, text) = send(pool, model);
    assert_eq!(status, 200, "{model}: {text}");
    text
}

/// Completely downloaded adapters on this machine.
fn here(cache: &Path) -> Vec<String> {
    let entries = fs::read_dir(cache.join("model-pool-adapters"));
    let names = entries
        .into_iter()
        .flatten()
        .map(|entry| entry.expect("an entry"));
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| !name.ends_with(".partial")).collect()
}

#[test]
fn three_bucket_adapters_share_two_slots_and_are_downloaded_once() {
    let Some(s3) = S3::start() else { return };
    put(&s3, "loras/polite:1", "org/tiny-chat", 4, 1);
    // By its complete name, as in RayLLM.
    put(&s3, "loras/lab/tiny:terse:1", "lab/tiny", 8, 2);
    put(&s3, "loras/odd", "/models/tiny-chat/", 4, 3);
    let cache = tempfile::tempdir().expect("a folder");
    let wire = Wire::to(&s3.address());
    let env = keys(&wire.address.to_string());
    let mut pool = pool("s3://lab/loras/", &env, "", cache.path());
    let names = [
        "lab/tiny",
        "lab/tiny:polite:1",
        "lab/tiny:terse:1",
        "lab/tiny:odd",
    ];
    let responses = names.map(|name| ask(&pool, name));
    for (nth, response) in responses.iter().enumerate() {
        assert!(
            !responses[..nth].contains(response),
            "{}: {responses:?}",
            names[nth]
        );
    }
    let came = wire.came();
    assert_eq!(
        names.map(|name| ask(&pool, name)),
        responses,
        "loaded again"
    );
    assert!(wire.came() - came < 20_000, "no weights came twice");
    assert_eq!(here(cache.path()).len(), 3);
    let (_, listed, _) = pool.request("GET", "/v1/models", "", None);
    assert!(names.iter().all(|name| listed.contains(name)), "{listed}");
    for id in ["nobody:1", "..", "../loras/odd", "a:b:c"] {
        let (status, text) = send(&pool, &format!("lab/tiny:{id}"));
        assert_eq!(status, 404, "{id}: {text}");
    }
    // A downloaded adapter works without the bucket, also in the next process.
    drop(s3);
    pool.kill_and_restart();
    assert_eq!(ask(&pool, names[1]), responses[1]);
    let log = pool.log();
    assert!(log.contains("as it was fetched before"), "{log}");
    assert!(!log.contains(SECRET), "{log}");
}

#[test]
fn an_unusable_adapter_in_a_bucket_is_refused_before_its_weights_are_fetched() {
    let Some(s3) = S3::start() else { return };
    put(&s3, "loras/other:1", "org/another-model", 4, 1);
    put(&s3, "loras/wide:1", "lab/tiny", 4, 1);
    let wide = config("lab/tiny", 4096);
    s3.put("lab", "loras/wide:1/adapter_config.json", wide.as_bytes());
    put(&s3, "loras/liar:1", "lab/tiny", 4, 1);
    s3.put(
        "lab",
        "loras/liar:1/adapter_model.safetensors",
        &tensors(64, 1),
    );
    put(&s3, "loras/huge:1", "lab/tiny", 4, 1);
    s3.put("lab", "loras/huge:1/more.bin", &vec![1; 3 << 20]);
    s3.put("lab", "loras/bare:1/README.md", b"nothing else");
    s3.put("lab", "loras/broken:1/adapter_config.json", b"{\"r\": ");
    put(&s3, "loras/own:1", "lab/tiny", 4, 1);
    let cache = tempfile::tempdir().expect("a folder");
    let wire = Wire::to(&s3.address());
    let env = keys(&wire.address.to_string());
    let more = ", max_adapter_gib: 0.002, cache_gib: 0.002";
    let pool = pool("s3://lab/loras", &env, more, cache.path());
    for (id, words) in [
        (
            "other:1",
            "trained for org/another-model, and this model is",
        ),
        ("wide:1", "its rank is 4096, and the engine has room for 16"),
        ("huge:1", "its files take 3"),
        ("bare:1", "adapter_config.json"),
        ("broken:1", "adapter_config.json: it is not JSON"),
    ] {
        let (status, message) = send(&pool, &format!("lab/tiny:{id}"));
        assert_eq!(status, 400, "{id}: {message}");
        assert!(message.contains(words), "{id}: {message}");
        let place = cache.path().display().to_string();
        assert!(
            !message.contains(&place),
            "it names the pool's folders: {message}"
        );
    }
    assert!(wire.came() < 100_000, "weights came: {}", wire.came());
    assert!(here(cache.path()).is_empty(), "no part of them is kept");
    let (status, message) = send(&pool, "lab/tiny:liar:1");
    assert_eq!(
        (status, message.contains("its rank is 64")),
        (400, true),
        "{message}"
    );
    assert!(!ask(&pool, "lab/tiny:own:1").is_empty());
}

#[test]
fn other_files_in_the_bucket_take_effect_and_a_bucket_that_cannot_be_read_is_named() {
    let Some(s3) = S3::start() else { return };
    put(&s3, "loras/own:1", "lab/tiny", 4, 1);
    let cache = tempfile::tempdir().expect("a folder");
    let first = pool("s3://lab/loras", &keys(&s3.address()), "", cache.path());
    let before = ask(&first, "lab/tiny:own:1");
    put(&s3, "loras/own:1", "lab/tiny", 4, 2);
    wait_for("the new files", || ask(&first, "lab/tiny:own:1") != before);
    assert_eq!(
        here(cache.path()).len(),
        2,
        "the old ones leave when room is needed"
    );
    drop(first);
    for (path, change, words) in [
        ("s3://nowhere/loras", None, "NoSuchBucket"),
        (
            "s3://lab/loras",
            Some(("AWS_SECRET_ACCESS_KEY", "wrong-secret")),
            "SignatureDoesNotMatch",
        ),
        (
            "s3://lab/loras",
            Some(("AWS_ENDPOINT_URL", "http://127.0.0.1:9")),
            "cannot read s3://lab/loras",
        ),
    ] {
        let mut env = keys(&s3.address());
        if let Some((name, value)) = change {
            env[name] = json!(value);
        }
        let empty = tempfile::tempdir().expect("a folder");
        let pool = pool(path, &env, "", empty.path());
        let (status, message) = send(&pool, "lab/tiny:own:1");
        assert_eq!(status, 503, "{message}");
        pool.wait_for_log(words);
        assert!(!message.contains("s3://"), "users read no path: {message}");
        assert!(!(message + &pool.log()).contains("wrong-secret"), "{words}");
        assert!(!ask(&pool, "lab/tiny").is_empty(), "the model goes on");
    }
}

#[test]
fn a_fetch_continues_after_the_request_that_started_it_timed_out() {
    let Some(s3) = S3::start() else { return };
    put(&s3, "loras/own:1", "lab/tiny", 16, 1);
    let cache = tempfile::tempdir().expect("a folder");
    let wire = Wire::to(&s3.address());
    wire.hold_after(20_000);
    let env = keys(&wire.address.to_string());
    let pool = pool(
        "s3://lab/loras",
        &env,
        ", download_timeout_s: 1",
        cache.path(),
    );
    let (status, message) = send(&pool, "lab/tiny:own:1");
    assert_eq!(status, 429, "{message}");
    assert!(message.contains("is being fetched"), "{message}");
    wire.let_go();
    wait_for("the adapter to be here", || here(cache.path()).len() == 1);
    assert!(!ask(&pool, "lab/tiny:own:1").is_empty());
}

#[test]
fn an_adapter_is_fetched_from_google_cloud_storage() {
    let Some(gcs) = Gcs::start() else { return };
    gcs.make_bucket("lab-loras");
    for (name, content) in files("lab/tiny", 4, 1) {
        gcs.put("lab-loras", &format!("all/own:1/{name}"), &content);
    }
    let env = json!({"GOOGLE_BASE_URL": format!("http://{}", gcs.address()), "GOOGLE_SKIP_SIGNATURE": "true"});
    let cache = tempfile::tempdir().expect("a folder");
    let pool = pool("gs://lab-loras/all", &env, "", cache.path());
    assert_ne!(ask(&pool, "lab/tiny:own:1"), ask(&pool, "lab/tiny"));
    assert_eq!(send(&pool, "lab/tiny:nobody:1").0, 404);
    assert_eq!(here(cache.path()).len(), 1);
}
