//! Images in chat requests to a real engine: responses of the reference, the count of tokens, and refusals.

mod support;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use candle_engine::{EngineOptions, Listen};
use hyper::StatusCode;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use support::{CHAT, Engine, MODEL, demo_model, options, text};

const CONTEXT_TOKENS: usize = 176;

const QWEN: &str = "qwen3-vl";
const PADDLE: &str = "paddleocr-vl";

fn folder_of(model: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/library");
    folder.join(model)
}

async fn engine(model: &str) -> Engine {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = Listen::Unix(folder.path().join("socket"));
    let options = EngineOptions {
        context_tokens: CONTEXT_TOKENS,
        ..options(&folder_of(model), socket)
    };
    Engine::start_with(options, folder).await
}

fn url(file: &str) -> String {
    let bytes = std::fs::read(folder_of(QWEN).join(file)).expect("is kept");
    format!("data:image/png;base64,{}", STANDARD.encode(bytes))
}

fn image(url: &str) -> Value {
    json!({"type": "image_url", "image_url": {"url": url}})
}

/// The text of tokens: each is a word of two letters. The last tokens are special ones, without text.
fn words(tokens: &[u64]) -> String {
    let words = tokens.iter().filter(|token| **token < 60).map(|token| {
        let letter = |nth: u64| (b'a' + nth as u8) as char;
        format!(" {}{}", letter(token / 16), letter(token % 16))
    });
    words.collect()
}

fn text_part(tokens: &[u64]) -> Value {
    json!({"type": "text", "text": words(tokens).trim_start()})
}

fn ask(content: &Value) -> Value {
    json!({"model": MODEL, "messages": [{"role": "user", "content": content}], "max_tokens": 24,
        "temperature": 0, "ignore_eos": true})
}

/// The prompts with images of the reference: the request, its number of tokens, and the text of the response.
fn expected(model: &str) -> Vec<(Value, usize, String)> {
    let bytes = std::fs::read(folder_of(model).join("seen.json")).expect("is kept");
    let seen: Value = serde_json::from_slice(&bytes).expect("JSON");
    let prompts = seen["prompts"].as_array().expect("prompts");
    let tokens =
        |value: &Value| -> Vec<u64> { serde_json::from_value(value.clone()).expect("tokens") };
    let request = |prompt: &Value| {
        let mut files = prompt["images"].as_array().expect("files").iter();
        let all = tokens(&prompt["prompt"]);
        let mut parts = Vec::new();
        // 61 begins an image, and 62 ends it.
        for (nth, part) in all.split(|token| *token == 61).enumerate() {
            let after = part
                .split(|token| *token == 62)
                .next_back()
                .expect("a part");
            if nth > 0 {
                let file = files.next().and_then(Value::as_str).expect("a file");
                parts.push(image(&url(file)));
            }
            if !after.is_empty() {
                parts.push(text_part(after));
            }
        }
        let response = words(&tokens(&prompt["greedy"]));
        (ask(&json!(parts)), all.len(), response)
    };
    prompts.iter().map(request).collect()
}

#[tokio::test]
async fn simultaneous_requests_with_images_get_the_responses_of_the_reference() {
    for model in [QWEN, PADDLE] {
        let engine = engine(model).await;
        let cases = expected(model);
        assert!(cases.len() >= 4);
        let responses = cases.iter().map(|(body, _, _)| engine.post(CHAT, body));
        let responses = futures_util::future::join_all(responses).await;
        for ((_, count, expected), (status, response)) in cases.iter().zip(&responses) {
            assert_eq!(*status, StatusCode::OK, "{model}: {response}");
            assert_eq!(
                text(response).trim(),
                expected.trim(),
                "{model}: {response}"
            );
            assert_eq!(
                response["usage"]["prompt_tokens"], *count,
                "{model}: {response}"
            );
            assert_eq!(response["usage"]["completion_tokens"], 24);
        }
        // The prompt of tokens is that of the tokenize route.
        let (body, count, _) = &cases[1];
        let messages = json!({"model": MODEL, "messages": body["messages"]});
        let (status, tokenized) = engine.post("/tokenize", &messages).await;
        assert_eq!(status, StatusCode::OK, "{tokenized}");
        assert_eq!(tokenized["count"], *count, "{tokenized}");
        // Text alone, as a string and as a part.
        let plain = engine.post(CHAT, &ask(&json!("aa bb"))).await;
        let parts = ask(&json!([{"type": "text", "text": "aa bb"}]));
        let listed = engine.post(CHAT, &parts).await;
        assert_eq!(plain.0, StatusCode::OK, "{model}: {}", plain.1);
        assert_eq!(plain.1["usage"]["prompt_tokens"], 2, "{model}");
        assert_eq!(text(&plain.1), text(&listed.1), "{model}");
    }
}

#[tokio::test]
async fn images_of_the_same_size_are_not_confused() {
    let engine = engine(QWEN).await;
    let file = |red: u8| {
        let mut file = std::io::Cursor::new(Vec::new());
        image::RgbImage::from_fn(24, 24, |x, y| {
            image::Rgb([red, (x * 9) as u8, (y * 9) as u8])
        })
        .write_to(&mut file, image::ImageFormat::Png)
        .expect("is written");
        format!(
            "data:image/png;base64,{}",
            STANDARD.encode(file.into_inner())
        )
    };
    let (one, other) = (file(0), file(255));
    let asked = |url: &str| ask(&json!([image(url), text_part(&[5, 9, 33])]));
    let first = engine.post(CHAT, &asked(&one)).await.1;
    let second = engine.post(CHAT, &asked(&other)).await.1;
    let again = engine.post(CHAT, &asked(&one)).await.1;
    assert_ne!(text(&first), text(&second));
    assert_eq!(text(&first), text(&again));
    assert_eq!(
        first["usage"]["prompt_tokens"],
        second["usage"]["prompt_tokens"]
    );
    let mut streaming = asked(&one);
    streaming["stream"] = json!(true);
    let mut streamed = String::new();
    for chunk in engine.stream(CHAT, &streaming).await.collect().await {
        let delta = &chunk["choices"][0]["delta"]["content"];
        streamed += delta.as_str().unwrap_or_default();
    }
    assert_eq!(streamed, text(&first));
    let mut several = asked(&one);
    several["n"] = json!(2);
    let several = engine.post(CHAT, &several).await.1;
    let choices = several["choices"].as_array().expect("choices");
    for choice in choices {
        assert_eq!(choice["message"]["content"], text(&first), "{several}");
    }
}

#[tokio::test]
async fn images_that_cannot_be_read_are_refused_with_their_field() {
    let engine = engine(QWEN).await;
    let good = url("inside.png");
    let bytes = std::fs::read(folder_of(QWEN).join("inside.png")).expect("is kept");
    let data = |media_type: &str, bytes: &[u8]| {
        format!("data:{media_type};base64,{}", STANDARD.encode(bytes))
    };
    // The header of 60,000 × 60,000 pixels with its checksum.
    let mut giant = bytes.clone();
    giant[16..24].copy_from_slice(&[0, 0, 0xEA, 0x60, 0, 0, 0xEA, 0x60]);
    let checksum = crc(&giant[12..29]).to_be_bytes();
    giant[29..33].copy_from_slice(&checksum);
    for (wrong, words) in [
        (data("image/png", &giant), "60000 × 60000"),
        (data("image/png", &bytes[..bytes.len() / 2]), "damaged PNG"),
        (data("image/png", b"hello"), "is not a PNG"),
        (data("image/png", b""), "0 bytes"),
        (data("image/tiff", &bytes), "image/tiff"),
        (data("image/svg+xml", b"<svg/>"), "image/svg+xml"),
        (data("video/mp4", &bytes), "video/mp4"),
        ("https://example.com/a.png".to_owned(), "fetches nothing"),
        ("data:image/png;base64,?".to_owned(), "base64"),
    ] {
        let body = ask(&json!([{"type": "text", "text": "aa"}, image(&good), image(&wrong)]));
        let (status, refused) = engine.post(CHAT, &body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{words}: {refused}");
        let error = &refused["error"];
        assert_eq!(
            error["param"], "messages[0].content[2].image_url",
            "{refused}"
        );
        assert!(
            error["message"].as_str().expect("words").contains(words),
            "{refused}"
        );
    }
    for (content, words) in [
        (json!(vec![image(&good); 17]), "17 images; at most 16"),
        (json!([{"type": "image_url"}]), "`url`"),
        (
            json!([{"type": "video_url", "video_url": {"url": good}}]),
            "text and image_url",
        ),
        (
            json!([image(&good), {"type": "text", "text": "<|image_pad|>"}]),
            "placeholders",
        ),
        (json!("<|image_pad|>"), "placeholders"),
        // 37 × 23 pixels are 15 tokens, between two others.
        (
            json!(vec![image(&good); 16]),
            "maximum context length is 176 tokens",
        ),
    ] {
        let (status, refused) = engine.post(CHAT, &ask(&content)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{words}: {refused}");
        let message = refused["error"]["message"].as_str().expect("words");
        assert!(message.contains(words), "{words}: {message}");
    }
    let dot = engine
        .post(CHAT, &ask(&json!([image(&url("dot.png"))])))
        .await;
    assert_eq!(dot.0, StatusCode::OK, "{}", dot.1);
}

/// The checksum of PNG's chunks.
fn crc(bytes: &[u8]) -> u32 {
    let mut sum = u32::MAX;
    for byte in bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = (sum >> 1) ^ (0xEDB8_8320 & (sum & 1).wrapping_neg());
        }
    }
    !sum
}

#[tokio::test]
async fn a_model_without_vision_refuses_images_as_before() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = Listen::Unix(folder.path().join("socket"));
    let engine = Engine::start_with(options(&demo_model("tiny-chat"), socket), folder).await;
    let (status, refused) = engine
        .post(CHAT, &ask(&json!([image(&url("dot.png"))])))
        .await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{refused}");
    assert_eq!(
        refused["error"]["param"], "messages[0].content[0]",
        "{refused}"
    );
    let message = refused["error"]["message"].as_str().expect("words");
    assert!(message.contains("it accepts only text"), "{message}");
}
