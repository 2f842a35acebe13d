//! Images to the embedded engine through the gateway, with a tiny model that sees and the real program.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use support::service::Pool;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("candle-engine/tests/vectors/library/qwen3-vl")
}

fn pool() -> Pool {
    let path = folder();
    assert!(path.is_dir(), "{} is there", path.display());
    let text = format!(
        "engine_config:\n  model_id: seer\n  type: CandleEngine\n  model_path: {path:?}\n  max_total_tokens: 256\n"
    );
    let config = "inventory: {provider: host, host_memory: 2GiB}\n";
    Pool::with_devices(&[("seer.yaml".to_owned(), text)], config)
}

#[test]
fn an_image_is_read_through_the_apis_of_openai_and_anthropic() {
    let pool = pool();
    let file = std::fs::read(folder().join("inside.png")).expect("is kept");
    let data = STANDARD.encode(file);
    let url = format!("data:image/png;base64,{data}");
    let ask = |url: &str| {
        let image = json!({"type": "image_url", "image_url": {"url": url}});
        let content = json!([{"type": "text", "text": "aa bb"}, image]);
        json!({"model": "seer", "messages": [{"role": "user", "content": content}], "max_tokens": 8, "temperature": 0})
    };
    let (status, text) = pool.post("/v1/chat/completions", &ask(&url).to_string());
    assert_eq!(status, 200, "{text}");
    let chat: Value = serde_json::from_str(&text).expect("JSON");
    // Two words, 15 tokens of the image, and two around it.
    assert_eq!(chat["usage"]["prompt_tokens"], 19, "{chat}");
    let source = json!({"type": "base64", "media_type": "image/png", "data": data});
    let content = json!([{"type": "text", "text": "aa bb"}, {"type": "image", "source": source}]);
    let body = json!({"model": "seer", "messages": [{"role": "user", "content": content}], "max_tokens": 8, "temperature": 0});
    let (status, text) = pool.post("/v1/messages", &body.to_string());
    assert_eq!(status, 200, "{text}");
    let message: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(message["usage"]["input_tokens"], 19, "{message}");
    assert_eq!(
        message["content"][0]["text"],
        chat["choices"][0]["message"]["content"]
    );
    for (wrong, words) in [
        ("https://example.com/cat.png", "fetches nothing"),
        ("data:image/svg+xml;base64,PHN2Zy8+", "image/svg+xml"),
        ("data:image/png;base64,AAAA", "is not a PNG"),
    ] {
        let (status, text) = pool.post("/v1/chat/completions", &ask(wrong).to_string());
        assert!(status == 400 && text.contains(words), "{status} {text}");
    }
}
