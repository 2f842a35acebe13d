//! Transcripts by the embedded engine with a tiny Whisper model and the real program.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};

use support::service::Pool;

fn pool() -> Pool {
    pool_with("")
}

/// A pool whose model file has these lines in `engine_config`.
fn pool_with(more: &str) -> Pool {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("candle-engine/tests/vectors/speech/whisper");
    assert!(path.is_dir(), "{} is there", path.display());
    let text = format!(
        "engine_config:\n  model_id: hearer\n  type: CandleEngine\n  model_path: {path:?}\n{more}"
    );
    let config = "inventory: {provider: host, host_memory: 1GiB}\n";
    Pool::with_devices(&[("hearer.yaml".to_owned(), text)], config)
}

/// A WAV file of two seconds. Its bytes are ASCII, as bodies of these tests are texts: samples of eight bits, and a rate and
/// lengths without high bits.
fn wav() -> String {
    let parts: [&[u8]; 7] = [
        b"RIFF\x24\x7d\0\0WAVEfmt \x10\0\0\0",
        b"\x01\0\x01\0",
        b"\0\x3f\0\0",
        b"\0\x3f\0\0",
        b"\x01\0\x08\0",
        b"data\0\x7d\0\0",
        &(0..32_000u32)
            .map(|n| (n * n / 7 % 120) as u8)
            .collect::<Vec<u8>>(),
    ];
    String::from_utf8(parts.concat()).expect("ASCII")
}

fn form(pool: &Pool, path: &str, fields: &[(&str, &str)]) -> (u16, String, String) {
    let mut body =
        "--xyz\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n"
            .to_owned();
    body += &wav();
    for (name, value) in fields {
        body +=
            &format!("\r\n--xyz\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}");
    }
    body += "\r\n--xyz--\r\n";
    pool.request_as("multipart/form-data; boundary=xyz", path, &body)
}

#[test]
fn speech_is_transcribed_and_translated_and_streamed() {
    let pool = pool();
    let path = "/v1/audio/transcriptions";
    let (status, text, _) = form(&pool, path, &[("model", "hearer")]);
    assert_eq!(status, 200, "{text}");
    let response: Value = serde_json::from_str(&text).expect("JSON");
    assert!(response["text"].is_string(), "{response}");
    assert_eq!(response["usage"]["seconds"], 2, "{response}");
    let fields = [("model", "hearer"), ("response_format", "vtt")];
    let (status, text, head) = form(&pool, "/v1/audio/translations", &fields);
    assert_eq!(status, 200, "{text}");
    assert!(
        text.starts_with("WEBVTT") && head.contains("text/plain"),
        "{head}"
    );
    let (status, text, head) = form(&pool, path, &[("model", "hearer"), ("stream", "true")]);
    assert_eq!(status, 200, "{text}");
    assert!(head.contains("text/event-stream"), "{head}");
    assert!(text.contains("transcript.text.done"), "{text}");
    let (status, text, _) = form(&pool, path, &[("model", "hearer"), ("language", "klingon")]);
    assert!(
        status == 400 && text.contains("8 languages"),
        "{status} {text}"
    );
}

#[test]
fn recordings_are_kept_in_a_private_folder_and_that_of_a_killed_engine_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let left = folder.path().join("model-pool-recordings-left");
    fs::create_dir(&left).unwrap();
    fs::write(left.join("recording"), "RIFF").unwrap();
    let variable = format!(
        "  runtime_env: {{env_vars: {{TMPDIR: {:?}}}}}\n",
        folder.path()
    );
    let pool = pool_with(&variable);
    let fields = [("model", "hearer")];
    let (status, text, _) = form(&pool, "/v1/audio/transcriptions", &fields);
    assert_eq!(status, 200, "{text}");
    assert!(!left.exists());
    let entries = fs::read_dir(folder.path()).unwrap();
    let entries: Vec<fs::DirEntry> = entries.map(Result::unwrap).collect();
    let [own] = entries.as_slice() else {
        panic!("{entries:?}");
    };
    let name = own.file_name().into_string().unwrap();
    assert!(name.starts_with("model-pool-recordings-"), "{name}");
    let mode = own.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o700);
    assert_eq!(fs::read_dir(own.path()).unwrap().count(), 0);
}

#[test]
fn a_speech_model_is_listed_as_audio_and_refuses_chats_before_it_is_loaded() {
    let pool = pool();
    let chat = json!({"model": "hearer", "messages": [{"role": "user", "content": "Hi"}]});
    let (status, text) = pool.post("/v1/chat/completions", &chat.to_string());
    assert!(
        status == 501 && text.contains("for speech"),
        "{status} {text}"
    );
    let (status, text, _) = pool.request("GET", "/v1/models", "", None);
    assert_eq!(status, 200, "{text}");
    let models: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(models["data"][0]["kind"], "audio", "{models}");
}
