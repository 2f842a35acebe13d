//! A Whisper model over HTTP, compared with the transcripts of `transformers` on the same files (`vectors/speech.py`).
//!
//! One file because all tests send the recordings of the same cases.

mod support;

use candle_engine::Listen;
use hyper::StatusCode;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use support::{Engine, MODEL, demo_model, options, whole};

const TRANSCRIPTIONS: &str = "/v1/audio/transcriptions";
const TRANSLATIONS: &str = "/v1/audio/translations";
const RATE: usize = 16_000;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/speech/whisper")
}

async fn start_model(model: &Path) -> Engine {
    let folder = tempfile::tempdir().expect("a folder");
    let listen = Listen::Unix(folder.path().join("socket"));
    Engine::start_with(options(model, listen), folder).await
}

/// The transcripts of the reference.
fn cases() -> Vec<Value> {
    let text = std::fs::read_to_string(folder().join("expected.json")).expect("it is kept");
    let all: Value = serde_json::from_str(&text).expect("it is JSON");
    all["transcripts"].as_array().expect("cases").clone()
}

/// The recording of a case as a WAV file: two triangle waves and noise, in integers, as in `vectors/speech.py`.
fn recording(case: &Value) -> Vec<u8> {
    let count = case["seconds"].as_u64().expect("seconds") as usize * RATE;
    let seed = case["seed"].as_i64().expect("a seed");
    let mut state = seed;
    let sample = |n: i64| {
        state = (state * 1_103_515_245 + 12_345) % (1 << 31);
        let wave = |period: i64, height: i64| {
            ((n % period) * 2 - period).abs() * height / period - height / 2
        };
        let loud = 1 + (n / 4000 + seed) % 5;
        let pitch = 40 + (n / 8000) * 7 % 50;
        let tone = (wave(pitch, 3000) + wave(3 * pitch + 11, 2000)) * loud;
        (tone.div_euclid(5) + (state >> 16) % 257 - 128) as i16
    };
    let data: Vec<u8> = (0..count as i64)
        .map(sample)
        .flat_map(i16::to_le_bytes)
        .collect();
    wav(RATE as u32, &data)
}

fn wav(rate: u32, data: &[u8]) -> Vec<u8> {
    let length = data.len() as u32;
    let parts: [&[u8]; 12] = [
        b"RIFF",
        &(36 + length).to_le_bytes(),
        b"WAVEfmt ",
        &16u32.to_le_bytes(),
        &1u16.to_le_bytes(),
        &1u16.to_le_bytes(),
        &rate.to_le_bytes(),
        &(rate * 2).to_le_bytes(),
        &[2, 0, 16, 0],
        b"data",
        &length.to_le_bytes(),
        data,
    ];
    parts.concat()
}

fn segments(case: &Value) -> &Vec<Value> {
    case["segments"].as_array().expect("segments")
}

fn text_of(case: &Value) -> String {
    let texts = segments(case)
        .iter()
        .map(|part| part["text"].as_str().expect("a text"));
    texts.collect::<String>().trim().to_owned()
}

/// The path and the fields of a case.
fn request(case: &Value) -> (&'static str, Vec<(&'static str, String)>) {
    let text = |name: &str| case[name].as_str().expect("a text").to_owned();
    let mut fields = vec![("model", MODEL.to_owned())];
    if case["prompt"] != "" {
        fields.push(("prompt", text("prompt")));
    }
    if case["task"] == "translate" {
        return (TRANSLATIONS, fields);
    }
    if case["prompt"] != "" {
        fields.push(("language", text("language")));
    }
    (TRANSCRIPTIONS, fields)
}

async fn send(engine: &Engine, case: &Value, more: &[(&str, &str)]) -> (StatusCode, Value) {
    let (path, fields) = request(case);
    let own = fields.iter().map(|(name, value)| (*name, value.as_str()));
    let fields: Vec<(&str, &str)> = own.chain(more.iter().copied()).collect();
    whole(engine.form(path, &fields, &recording(case)).await).await
}

/// The cases whose language the engine finds as the reference did.
fn comparable() -> Vec<Value> {
    let mut cases = cases();
    cases.retain(|case| case["task"] == "transcribe");
    assert_eq!(cases.len(), 2);
    cases
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transcript_has_every_format_of_openai() {
    let engine = start_model(&folder()).await;
    for case in comparable() {
        let text = text_of(&case);
        let seconds = case["seconds"].clone();
        let (status, response) = send(&engine, &case, &[]).await;
        assert_eq!(status, StatusCode::OK, "{response}");
        let usage = json!({"type": "duration", "seconds": seconds});
        assert_eq!(response, json!({"text": text, "usage": usage}));
        let (_, response) = send(&engine, &case, &[("response_format", "text")]).await;
        assert_eq!(response, Value::from(text.clone() + "\n"));
        let more = [
            ("response_format", "verbose_json"),
            ("timestamp_granularities[]", "segment"),
        ];
        let (_, response) = send(&engine, &case, &more).await;
        assert_eq!(response["text"], text.as_str());
        assert_eq!(response["task"], "transcribe");
        assert_eq!(response["duration"].as_f64(), seconds.as_f64());
        let ours = response["segments"].as_array().expect("segments");
        assert_eq!(ours.len(), segments(&case).len());
        for (ours, theirs) in ours.iter().zip(segments(&case)) {
            for name in ["seek", "start", "end", "text", "tokens"] {
                assert_eq!(ours[name], theirs[name], "{name}");
            }
        }
        for (format, point, first) in [("srt", ',', "1\n00:00:0"), ("vtt", '.', "WEBVTT\n\n00:0")] {
            let (_, response) = send(&engine, &case, &[("response_format", format)]).await;
            let response = response.as_str().expect("subtitles");
            assert!(response.starts_with(first), "{response}");
            assert_eq!(response.matches(" --> ").count(), segments(&case).len());
            let hundredths =
                (segments(&case)[0]["end"].as_f64().expect("a time") * 100.0).round() as u64;
            let end = format!("{:02}{point}{:02}0\n", hundredths / 100, hundredths % 100);
            assert!(response.contains(&end), "{end}: {response}");
        }
    }
    engine.stop().await.expect("stops");
}

/// The words of a case as a response has them, by `vectors/words.py`.
fn words(case: &Value) -> Vec<Value> {
    let file = folder().with_file_name("words.json");
    let text = std::fs::read_to_string(file).expect("it is kept");
    let all: Value = serde_json::from_str(&text).expect("it is JSON");
    let mut all = all.as_array().expect("cases").iter();
    let is_same = |other: &&Value| {
        let names = ["seconds", "seed", "language", "task"];
        other["alignment_heads"].is_null() && names.iter().all(|name| other[name] == case[name])
    };
    let found = all.find(is_same).expect("the case has words");
    let words = found["words"].as_array().expect("segments").iter();
    let words = words.flat_map(|words| words.as_array().expect("words"));
    let words = words.filter(|word| !word[0].as_str().expect("a word").trim().is_empty());
    words.cloned().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transcript_has_the_times_of_words_on_request() {
    let engine = start_model(&folder()).await;
    for case in comparable() {
        let wanted = [
            ("response_format", "verbose_json"),
            ("timestamp_granularities[]", "word"),
        ];
        let (status, alone) = send(&engine, &case, &wanted).await;
        assert_eq!(status, StatusCode::OK, "{alone}");
        assert_eq!(alone.get("segments"), None);
        let theirs = words(&case);
        let ours = alone["words"].as_array().expect("words");
        assert_eq!(ours.len(), theirs.len());
        for (ours, theirs) in ours.iter().zip(&theirs) {
            let text = theirs[0].as_str().expect("a word").trim();
            assert_eq!(ours["word"], text);
            for (name, theirs) in [("start", &theirs[1]), ("end", &theirs[2])] {
                let ours = ours[name].as_f64().expect("a time");
                let difference = (ours - theirs.as_f64().expect("a time")).abs();
                assert!(difference < 6e-3, "{name}: {ours} {theirs}");
            }
        }
        let both = [&wanted[..], &[("timestamp_granularities[]", "segment")]].concat();
        let (_, both) = send(&engine, &case, &both).await;
        assert_eq!(both["words"], alone["words"]);
        assert_eq!(both["text"], text_of(&case).as_str());
        let parts = both["segments"].as_array().expect("segments");
        assert_eq!(parts.len(), segments(&case).len());
        let (_, plain) = send(&engine, &case, &wanted[..1]).await;
        assert_eq!(plain.get("words"), None);
        assert_eq!(plain["segments"], both["segments"]);
    }
    engine.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread")]
async fn recordings_of_browsers_are_transcribed() {
    let engine = start_model(&folder()).await;
    let recordings = folder().join("../../opus");
    for (name, seconds) in [
        ("stream.webm", 1),
        ("silk-20-stereo.ogg", 1),
        ("celt-20.mp4", 1),
    ] {
        let file = std::fs::read(recordings.join(name)).expect("it is kept");
        let (status, response) = whole(engine.form(TRANSCRIPTIONS, &[], &file).await).await;
        assert_eq!(status, StatusCode::OK, "{name}: {response}");
        assert_eq!(response["usage"]["seconds"], seconds, "{name}");
    }
    engine.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_has_the_text_of_each_segment_and_the_complete_text_at_its_end() {
    let engine = start_model(&folder()).await;
    for case in comparable() {
        let (path, fields) = request(&case);
        let own = fields.iter().map(|(name, value)| (*name, value.as_str()));
        let fields: Vec<(&str, &str)> = own.chain([("stream", "true")]).collect();
        let response = engine.form(path, &fields, &recording(&case)).await;
        let mut events = Engine::events(response);
        let (mut deltas, mut done) = (Vec::new(), None);
        while let Some(data) = events.next().await {
            let event: Value = serde_json::from_str(&data).expect("JSON");
            assert!(done.is_none(), "nothing comes after the end");
            match event["type"].as_str() {
                Some("transcript.text.delta") => {
                    deltas.push(event["delta"].as_str().expect("a text").to_owned());
                }
                Some("transcript.text.done") => done = Some(event),
                _ => panic!("{event}"),
            }
        }
        let done = done.expect("an end");
        assert_eq!(deltas.len(), segments(&case).len());
        assert_eq!(deltas.concat().trim(), text_of(&case));
        assert_eq!(done["text"], text_of(&case).as_str());
        assert_eq!(done["usage"]["seconds"], case["seconds"]);
    }
    engine.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_take_turns_get_the_same_text_as_alone() {
    let engine = start_model(&folder()).await;
    let cases = comparable();
    let (long, short) = (&cases[1], &cases[0]);
    let sent = tokio::join!(
        send(&engine, long, &[]),
        send(&engine, short, &[]),
        send(&engine, short, &[]),
        send(&engine, long, &[]),
    );
    for (response, case) in [
        (sent.0, long),
        (sent.1, short),
        (sent.2, short),
        (sent.3, long),
    ] {
        assert_eq!(response.1["text"], text_of(case).as_str());
    }
    engine.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_frees_its_turn() {
    let engine = start_model(&folder()).await;
    let cases = comparable();
    let hours = wav(RATE as u32, &recording(&cases[1])[44..].repeat(8));
    for _ in 0..4 {
        let fields = [("model", MODEL), ("stream", "true")];
        let mut events = Engine::events(engine.form(TRANSCRIPTIONS, &fields, &hours).await);
        let first = events.next().await.expect("an event");
        assert!(first.contains("transcript.text.delta"), "{first}");
    }
    let (status, _) = send(&engine, &cases[0], &[]).await;
    assert_eq!(status, StatusCode::OK);
    engine.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_request_is_refused_by_field() {
    let engine = start_model(&folder()).await;
    let case = &cases()[0];
    let file = recording(case);
    for (path, field, value, word) in [
        (
            TRANSCRIPTIONS,
            "language",
            "klingon",
            "one of the 8 languages",
        ),
        (TRANSCRIPTIONS, "temperature", "-1", "a number from 0 to 1"),
        (TRANSCRIPTIONS, "temperature", "9", "a number from 0 to 1"),
        (TRANSCRIPTIONS, "temperature", "NaN", "a number from 0 to 1"),
        (
            TRANSCRIPTIONS,
            "response_format",
            "diarized_json",
            "json, text, srt",
        ),
        (
            TRANSCRIPTIONS,
            "timestamp_granularities[]",
            "syllable",
            "segment or word",
        ),
        (
            TRANSCRIPTIONS,
            "timestamp_granularities[]",
            "segment",
            "verbose_json",
        ),
        (
            TRANSCRIPTIONS,
            "timestamp_granularities[]",
            "word",
            "verbose_json",
        ),
        (TRANSCRIPTIONS, "stream", "perhaps", "true or false"),
        (TRANSCRIPTIONS, "temprature", "0", "unknown field"),
        (TRANSLATIONS, "language", "de", "unknown field"),
        (TRANSLATIONS, "stream", "true", "unknown field"),
    ] {
        let (status, response) = whole(engine.form(path, &[(field, value)], &file).await).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{field}: {response}");
        assert_eq!(response["error"]["param"], field, "{response}");
        let message = response["error"]["message"].as_str().expect("a message");
        assert!(message.contains(word), "{field}: {message}");
    }
    let streamed_subtitles = [("stream", "true"), ("response_format", "srt")];
    let (status, _) = whole(
        engine
            .form(TRANSCRIPTIONS, &streamed_subtitles, &file)
            .await,
    )
    .await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let (status, _) = whole(
        engine
            .form(TRANSCRIPTIONS, &[("model", "other")], &file)
            .await,
    )
    .await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let (status, response) = engine.post(TRANSCRIPTIONS, &json!({"model": MODEL})).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(
        response["error"]["message"]
            .as_str()
            .expect("a message")
            .contains("multipart/form-data")
    );
    engine.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_no_recording_is_refused_with_the_reason() {
    let engine = start_model(&folder()).await;
    let noise: Vec<u8> = (0..9000u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    for (name, file, word) in [
        ("nothing", Vec::new(), "is empty"),
        ("noise", noise, "known are wav"),
        ("no samples", wav(16_000, &[]), "no samples"),
        ("1 Hz", wav(1, &[0; 400]), "sample rate is 1 Hz"),
    ] {
        let (status, response) = whole(engine.form(TRANSCRIPTIONS, &[], &file).await).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{name}: {response}");
        assert_eq!(response["error"]["param"], "file", "{name}");
        let message = response["error"]["message"].as_str().expect("a message");
        assert!(message.contains(word), "{name}: {message}");
    }
    // Less than a frame is a recording without speech.
    let (status, response) = whole(
        engine
            .form(TRANSCRIPTIONS, &[], &wav(16_000, &[0; 40]))
            .await,
    )
    .await;
    assert_eq!((status, &response["text"]), (StatusCode::OK, &json!("")));
    engine.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_speech_model_and_a_text_model_refuse_the_requests_of_the_other() {
    let engine = start_model(&folder()).await;
    for path in [
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/embeddings",
        "/tokenize",
    ] {
        let body = json!({"model": MODEL, "prompt": "Hi", "input": "Hi", "messages": [{"role": "user", "content": "Hi"}]});
        let (status, response) = engine.post(path, &body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path}: {response}");
        assert_eq!(response["error"]["code"], "unsupported_operation", "{path}");
    }
    let (_, models) = engine.get("/v1/models").await;
    assert_eq!(models["data"][0]["max_model_len"], 64);
    let (_, memory) = engine.get("/memory").await;
    assert!(memory["weights_bytes"].as_u64().expect("bytes") > 0);
    engine.stop().await.expect("stops");
    let engine = start_model(&demo_model("tiny-chat")).await;
    let response = engine
        .form(TRANSCRIPTIONS, &[("model", MODEL)], &recording(&cases()[0]))
        .await;
    let (status, response) = whole(response).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{response}");
    assert_eq!(response["error"]["code"], "unsupported_operation");
    engine.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sleeping_speech_model_refuses_recordings_until_it_is_woken() {
    let engine = start_model(&folder()).await;
    let case = &comparable()[0];
    let (status, _) = engine.post("/sleep", &json!({})).await;
    assert_eq!(status, StatusCode::OK);
    let (status, _) = send(&engine, case, &[]).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    let (status, _) = engine.post("/wake_up", &json!({})).await;
    assert_eq!(status, StatusCode::OK);
    let (status, response) = send(&engine, case, &[]).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(response["text"], text_of(case).as_str());
    engine.stop().await.expect("stops");
}
