//! LoRA adapters that are found by name: with the embedded engine, which computes them, and with vLLM's double.

mod lookups;
mod sglang;
mod vllm;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};
use support::adapters::{config, tensors, write};
use support::service::{Pool, wait_for};

const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/demo/models/tiny-chat");

/// The demo's chat model with a folder of adapters, and room for two.
fn model(adapters: &Path, more: &str) -> (String, String) {
    let file = format!(
        "engine_config:\n  model_id: lab/tiny\n  type: CandleEngine\n  model_path: {TINY:?}\n  max_total_tokens: 128\nlora_config: {{dynamic_lora_loading_path: {:?}, max_num_adapters_per_replica: 2, max_lora_rank: 16, base_models: [tiny-chat]}}\n{more}",
        adapters.display().to_string()
    );
    ("tiny.yaml".to_owned(), file)
}

fn body(model: &str) -> String {
    json!({"model": model, "max_tokens": 12, "temperature": 0, "messages": [{"role": "user", "content": "What is the capital of France?"}]})
        .to_string()
}

fn text_of(response: &str) -> String {
    let response: Value = serde_json::from_str(response).expect("JSON");
    let text = &response["choices"][0]["message"]["content"];
    text.as_str()
        .unwrap_or_else(|| panic!("{response}"))
        .to_owned()
}

fn ask(pool: &Pool, model: &str) -> String {
    let (status, response) = pool.post("/v1/chat/completions", &body(model));
    assert_eq!(status, 200, "{model}: {response}");
    text_of(&response)
}

fn refused(pool: &Pool, model: &str) -> (u16, String) {
    let (status, response) = pool.post("/v1/chat/completions", &body(model));
    let response: Value = serde_json::from_str(&response).expect("JSON");
    let message = response["error"]["message"].as_str().unwrap_or_default();
    (status, message.to_owned())
}

fn loads(pool: &Pool) -> u64 {
    let (_, text, _) = pool.request("GET", "/metrics", "", None);
    let line = text
        .lines()
        .find(|line| line.contains("adapter_loads_total{") && line.contains("lab/tiny"));
    let number = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    number.unwrap_or(0.0) as u64
}

fn listed(pool: &Pool) -> Vec<String> {
    let (status, text, _) = pool.request("GET", "/v1/models", "", None);
    assert_eq!(status, 200, "{text}");
    let listing: Value = serde_json::from_str(&text).expect("JSON");
    let models = listing["data"].as_array().expect("a list").iter();
    models
        .map(|model| model["id"].as_str().expect("a name").to_owned())
        .collect()
}

#[test]
fn three_adapters_take_turns_in_room_for_two_and_respond_like_configured_ones() {
    let folder = tempfile::tempdir().expect("a folder");
    // Both forms of an adapter's folder name.
    write(&folder.path().join("polite:1"), "org/tiny-chat", 4, 1);
    write(&folder.path().join("lab/tiny:terse:1"), "lab/tiny", 8, 2);
    write(&folder.path().join("odd:1"), "/models/tiny-chat/", 4, 3);
    let pool = Pool::with_models(&[model(folder.path(), "")], "");
    let names = [
        "lab/tiny",
        "lab/tiny:polite:1",
        "lab/tiny:terse:1",
        "lab/tiny:odd:1",
    ];
    let responses = names.map(|name| ask(&pool, name));
    for (nth, response) in responses.iter().enumerate() {
        assert!(
            !responses[..nth].contains(response),
            "{} does not differ: {responses:?}",
            names[nth]
        );
    }
    assert_eq!(loads(&pool), 3, "each was loaded once");
    assert_eq!(
        names.map(|name| ask(&pool, name)),
        responses,
        "the third time as the first"
    );
    assert!(loads(&pool) > 3, "the least recently used had left");
    let before = loads(&pool);
    assert_eq!(ask(&pool, names[3]), responses[3]);
    assert_eq!(loads(&pool), before, "it was there still");
    let known = listed(&pool);
    assert!(
        names
            .iter()
            .all(|name| known.iter().any(|known| known == name)),
        "{known:?}"
    );

    let (_, text, _) = pool.request(
        "GET",
        "/llm/admin/models?model=lab/tiny",
        "",
        Some(&pool.admin_key()),
    );
    assert!(names[1..].iter().all(|name| text.contains(name)), "{text}");

    let written = format!(
        "engine_config:\n  model_id: lab/tiny\n  type: CandleEngine\n  model_path: {TINY:?}\n  max_total_tokens: 128\n  lora_adapters:\n    - {{name: \"lab/tiny:polite:1\", path: {:?}}}\n    - {{name: \"lab/tiny:terse:1\", path: {:?}}}\n    - {{name: \"lab/tiny:odd:1\", path: {:?}}}\n",
        folder.path().join("polite:1"),
        folder.path().join("lab/tiny:terse:1"),
        folder.path().join("odd:1"),
    );
    let fixed = Pool::with_models(&[("tiny.yaml".to_owned(), written)], "");
    assert_eq!(names.map(|name| ask(&fixed, name)), responses);
}

#[test]
fn concurrent_requests_for_more_adapters_than_fit_all_get_correct_responses() {
    let folder = tempfile::tempdir().expect("a folder");
    for nth in 0..4 {
        write(
            &folder.path().join(format!("own:{nth}")),
            "lab/tiny",
            4,
            nth,
        );
    }
    let pool = Pool::with_models(&[model(folder.path(), "")], "");
    let name = |nth: usize| format!("lab/tiny:own:{nth}");
    let alone: Vec<String> = (0..4).map(|nth| ask(&pool, &name(nth))).collect();
    std::thread::scope(|scope| {
        for worker in 0..8_usize {
            let (pool, alone) = (&pool, &alone);
            scope.spawn(move || {
                for turn in 0..5 {
                    let nth = (worker * 3 + turn) % 4;
                    assert_eq!(ask(pool, &name(nth)), alone[nth], "worker {worker}");
                }
            });
        }
    });
}

#[test]
fn replaced_adapter_files_take_effect_and_deleted_ones_are_not_served() {
    let folder = tempfile::tempdir().expect("a folder");
    let own = folder.path().join("own:1");
    write(&own, "lab/tiny", 4, 1);
    let pool = Pool::with_models(&[model(folder.path(), "")], "");
    let before = ask(&pool, "lab/tiny:own:1");
    write(&own, "lab/tiny", 4, 2);
    wait_for("the new files", || ask(&pool, "lab/tiny:own:1") != before);
    fs::remove_dir_all(&own).expect("removed");
    wait_for("the adapter to be gone", || {
        refused(&pool, "lab/tiny:own:1").0 == 404
    });
    assert!(!ask(&pool, "lab/tiny").is_empty());
}

#[test]
fn an_unusable_adapter_is_refused_with_the_reason_and_its_model_keeps_serving() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    write(&at("other:1"), "org/another-model", 4, 1);
    write(&at("wide:1"), "lab/tiny", 4, 1);
    fs::write(
        at("wide:1").join("adapter_config.json"),
        config("lab/tiny", 4096),
    )
    .expect("written");
    write(&at("liar:1"), "lab/tiny", 4, 1);
    fs::write(
        at("liar:1").join("adapter_model.safetensors"),
        tensors(64, 1),
    )
    .expect("written");
    write(&at("huge:1"), "lab/tiny", 4, 1);
    let sparse = fs::File::create(at("huge:1").join("optimizer.pt")).expect("a file");
    sparse.set_len(50 << 30).expect("as long as that");
    write(&at("broken:1"), "lab/tiny", 4, 1);
    fs::write(at("broken:1").join("adapter_config.json"), "{\"r\": ").expect("written");
    write(&at("empty:1"), "lab/tiny", 4, 1);
    fs::remove_file(at("empty:1").join("adapter_model.safetensors")).expect("removed");
    write(&at("cut:1"), "lab/tiny", 4, 1);
    let whole = tensors(4, 1);
    fs::write(
        at("cut:1").join("adapter_model.safetensors"),
        &whole[..whole.len() / 2],
    )
    .expect("written");
    // Well formed, with matrices that the model does not have.
    write(&at("foreign:1"), "lab/tiny", 4, 1);
    let text = String::from_utf8_lossy(&whole[8..8 + 4096]).into_owned();
    assert!(text.contains("layers.2."));
    let foreign: Vec<u8> = replaced(&whole, b"layers.2.", b"layers.9.");
    fs::write(at("foreign:1").join("adapter_model.safetensors"), foreign).expect("written");
    symlink("/", at("root:1")).expect("a link");

    let pool = Pool::with_models(&[model(folder.path(), "")], "");
    for (id, words) in [
        (
            "other:1",
            "trained for org/another-model, and this model is tiny or tiny-chat",
        ),
        ("wide:1", "its rank is 4096, and the engine has room for 16"),
        ("liar:1", "its rank is 64"),
        ("huge:1", "its files take 50"),
        ("broken:1", "adapter_config.json: it is not JSON"),
        ("empty:1", "there is no adapter_model.safetensors"),
        ("cut:1", "adapter_model.safetensors"),
        ("root:1", "adapter_config.json"),
    ] {
        let (status, message) = refused(&pool, &format!("lab/tiny:{id}"));
        assert_eq!(status, 400, "{id}: {message}");
        assert!(message.contains(words), "{id}: {message}");
        let place = folder.path().display().to_string();
        assert!(
            !message.contains(&place),
            "it names the pool's folders: {message}"
        );
    }
    assert_eq!(loads(&pool), 0, "no engine received a request");
    let (status, message) = refused(&pool, "lab/tiny:foreign:1");
    assert_eq!(status, 400, "{message}");
    assert!(
        message.contains("the engine refused to load the adapter") && message.contains("layers.9"),
        "{message}"
    );
    for id in [
        "nobody:1",
        "..",
        "../..",
        "..:1",
        "a:b:c",
        ".hidden:1",
        "%2e%2e:1",
    ] {
        let (status, message) = refused(&pool, &format!("lab/tiny:{id}"));
        assert_eq!(status, 404, "{id}: {message}");
    }
    assert!(!ask(&pool, "lab/tiny").is_empty());
}

fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let mut at = 0;
    while at + from.len() <= bytes.len() {
        if bytes[at..].starts_with(from) {
            bytes[at..at + from.len()].copy_from_slice(to);
        }
        at += 1;
    }
    bytes
}

#[test]
fn a_key_reaches_the_adapters_that_it_names_and_no_others() {
    let folder = tempfile::tempdir().expect("a folder");
    write(&folder.path().join("own:1"), "lab/tiny", 4, 1);
    write(&folder.path().join("other:1"), "lab/tiny", 4, 2);
    let pool = Pool::with_models(&[model(folder.path(), "")], "auth: {inference: key}\n");
    let key = |models: &str| {
        let name = models.replace([':', '/', '*'], " ");
        let body = format!("{{\"name\": {name:?}, \"role\": \"user\", \"models\": [{models:?}]}}");
        let (status, text, _) =
            pool.request("POST", "/llm/admin/keys", &body, Some(&pool.admin_key()));
        assert!(status < 300, "{text}");
        let response: Value = serde_json::from_str(&text).expect("JSON");
        response["key"]
            .as_str()
            .unwrap_or_else(|| panic!("{response}"))
            .to_owned()
    };
    for (models, reached) in [
        ("lab/tiny", [200, 404, 404]),
        ("lab/tiny:own:1", [404, 200, 404]),
        ("lab/tiny:*", [404, 200, 200]),
        ("lab/tiny*", [200, 200, 200]),
    ] {
        let key = key(models);
        let names = ["lab/tiny", "lab/tiny:own:1", "lab/tiny:other:1"];
        let statuses = names.map(|name| {
            pool.request("POST", "/v1/chat/completions", &body(name), Some(&key))
                .0
        });
        assert_eq!(statuses, reached, "{models}");
    }
}
