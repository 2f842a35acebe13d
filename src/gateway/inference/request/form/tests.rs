//! Tests of `form.rs`: fields that reach the engine, and fields that are refused or ignored.

use super::*;
use catalog::{Reference, Source};
use config::Config;
use serde_json::json;

fn body(parts: &[(&str, &str)]) -> Bytes {
    let mut text = String::new();
    for (name, value) in parts {
        let file = if *name == "file" {
            "; filename=\"../a\\\"b.wav\"\r\nContent-Type: audio/wav"
        } else {
            ""
        };
        text += &format!(
            "--x\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n{value}\r\n"
        );
    }
    (text + "--x--\r\n").into()
}

async fn read(parts: &[(&str, &str)]) -> Result<Form, Failure> {
    let kind = HeaderValue::from_static("multipart/form-data; boundary=x");
    Form::read(Some(&kind), body(parts)).await
}

#[tokio::test]
async fn a_form_is_forwarded_with_the_engines_model_name_and_all_known_fields() {
    let parts = [
        ("model", "m"),
        ("file", "RIFF"),
        ("language", "de"),
        ("timestamp_granularities[]", "word"),
        ("timestamp_granularities[]", "segment"),
        ("stream", "false"),
    ];
    let form = read(&parts).await.unwrap();
    let (kind, body) = form.written("theirs");
    let again = Form::read(Some(&kind), body.clone()).await.unwrap();
    assert_eq!(
        (again.model.as_str(), again.file.bytes.as_ref()),
        ("theirs", b"RIFF".as_slice())
    );
    assert_eq!(again.file.kind.as_deref(), Some("audio/wav"));
    assert_eq!(again.fields, form.fields);
    assert_eq!(again.fields.len(), 3);
    let text = String::from_utf8(body.to_vec()).unwrap();
    assert!(!text.contains(".."), "{text}");
}

/// A name with a path, quotes or control characters would reach the engine as a different name.
#[tokio::test]
async fn a_form_field_name_that_would_change_in_transit_is_refused() {
    for name in [
        "x/audio_url",
        "x\\\\file",
        "a=\\\"b",
        "caf\u{e9}",
        "a b",
        "",
        "a;b",
    ] {
        let parts = [("file", "RIFF"), ("model", "m"), (name, "1")];
        let failure = read(&parts).await.expect_err(name);
        let message = failure.body.error.message;
        assert!(
            message.contains("not a valid field name"),
            "{name}: {message}"
        );
    }
    let long = "a".repeat(101);
    assert!(
        read(&[("file", "RIFF"), ("model", "m"), (&long, "1")])
            .await
            .is_err()
    );
    assert!(
        read(&[("file", "RIFF"), ("model", "m"), (&long[1..], "1")])
            .await
            .is_ok()
    );
}

fn entry(engine: &str, policy: &str) -> Entry {
    let document = json!({
        "engine_config": {"model_id": "m", "type": engine, "model_path": "/m", "command": ["x", "{{ port }}"]},
        "pool_config": {"memory_gib": 1, "unknown_fields": policy},
    });
    let mut document = document;
    let engine_keys = document["engine_config"].as_object_mut().unwrap();
    engine_keys.shift_remove(match engine {
        "CommandEngine" => "model_path",
        _ => "command",
    });
    if policy.is_empty() {
        let pool_keys = document["pool_config"].as_object_mut().unwrap();
        pool_keys.shift_remove("unknown_fields");
    }
    let (config, reference) = (Config::default(), Reference::default());
    let read = Entry::from_document(&document, Source::Registered, &config, &reference);
    read.unwrap().0
}

#[tokio::test]
async fn a_form_field_unknown_to_openai_follows_the_models_policy() {
    let settled = async |engine: &str, policy: &str, name: &str, value: &str| {
        let parts = [("file", "RIFF"), ("model", "m"), (name, value)];
        let mut form = read(&parts).await.unwrap();
        let ignored = form.settle(&entry(engine, policy), ExtraRoute::Transcriptions);
        let ignored = ignored.map_err(|failure| failure.body.error.param.unwrap())?;
        Ok::<_, String>((form.fields.len(), ignored.join(", ")))
    };
    let none = String::new();
    for (engine, policy, name, value, expected) in [
        (
            "CommandEngine",
            "",
            "vad_filter",
            "true",
            Ok((1, none.clone())),
        ),
        (
            "CommandEngine",
            "",
            "include[]",
            "logprobs",
            Ok((1, none.clone())),
        ),
        (
            "CommandEngine",
            "",
            "audio_url",
            "http://x/",
            Err("audio_url".to_owned()),
        ),
        (
            "CommandEngine",
            "",
            "prompt",
            "see http://x/",
            Ok((1, none.clone())),
        ),
        (
            "CommandEngine",
            "",
            "lora_path",
            "x",
            Err("lora_path".to_owned()),
        ),
        (
            "CommandEngine",
            "refuse",
            "vad_filter",
            "true",
            Err("vad_filter".to_owned()),
        ),
        (
            "VLLMEngine",
            "",
            "vad_filter",
            "true",
            Err("vad_filter".to_owned()),
        ),
        ("VLLMEngine", "", "vad_filter", "", Ok((0, none.clone()))),
        (
            "VLLMEngine",
            "",
            "include[]",
            "logprobs",
            Ok((0, "include[]".to_owned())),
        ),
        ("VLLMEngine", "", "language", "de", Ok((1, none.clone()))),
        (
            "VLLMEngine",
            "drop",
            "vad_filter",
            "true",
            Ok((0, "vad_filter".to_owned())),
        ),
        ("VLLMEngine", "pass", "vad_filter", "true", Ok((1, none))),
    ] {
        let got = settled(engine, policy, name, value).await;
        assert_eq!(got, expected, "{engine} {policy} {name}: {value}");
    }
    let parts = [("file", "RIFF"), ("model", "m"), ("language", "de")];
    let mut form = read(&parts).await.unwrap();
    assert!(
        form.settle(&entry("VLLMEngine", ""), ExtraRoute::Translations)
            .is_err()
    );
}

#[tokio::test]
async fn a_stream_is_forwarded_to_the_embedded_engine_and_refused_for_others() {
    let parts = [("file", "RIFF"), ("model", "m"), ("stream", "true")];
    for (engine, extra, expected) in [
        ("CandleEngine", ExtraRoute::Transcriptions, true),
        ("CandleEngine", ExtraRoute::Translations, false),
        ("VLLMEngine", ExtraRoute::Transcriptions, false),
    ] {
        let mut form = read(&parts).await.unwrap();
        let settled = form.settle(&entry(engine, ""), extra);
        assert_eq!(settled.is_ok(), expected, "{engine}");
        let (_, body) = form.written("theirs");
        assert!(String::from_utf8_lossy(&body).contains("name=\"stream\""));
    }
}

#[tokio::test]
async fn a_missing_duplicate_or_unsupported_form_field_is_refused_by_name() {
    let file = ("file", "RIFF");
    for (parts, param) in [
        (vec![("model", "m")], "file"),
        (vec![("model", "m"), ("file", "")], "file"),
        (vec![file], "model"),
        (vec![file, ("model", "m"), file], "file"),
        (vec![file, ("model", "m"), ("stream", "maybe")], "stream"),
    ] {
        let failure = read(&parts).await.unwrap_err();
        assert_eq!(
            failure.body.error.param.as_deref(),
            Some(param),
            "{parts:?}"
        );
    }
    let json = HeaderValue::from_static("application/json");
    for kind in [None, Some(&json)] {
        let failure = Form::read(kind, body(&[file])).await.unwrap_err();
        assert!(failure.body.error.message.contains("multipart/form-data"));
    }
    let kind = HeaderValue::from_static("multipart/form-data; boundary=x");
    let cut =
        Bytes::from_static(b"--x\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nRIF");
    assert!(Form::read(Some(&kind), cut).await.is_err());
}
