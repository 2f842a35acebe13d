//! Tests the assembler and all translations against generated streams: complete responses, split into events in every way that
//! engines are known to use. `MODEL_POOL_STREAM_CASES` sets the number of cases per engine.

mod engines;
mod folded;
mod streams;

use std::ops::Range;
use std::sync::Arc;

use axum::body::Bytes;
use serde_json::{Value, json};

use self::engines::{Engine, Generated, Random};
use super::Assembler;
use crate::as_chat::AsChat;
use crate::events::event_end;
use crate::{Dialect, Reading, Seal, Sealer, Teller, Telling, ollama};
use controller::Clock;
use pool::KeyId;

/// Default number of cases per engine.
const CASES: u64 = 300;

fn cases() -> Range<u64> {
    let count = std::env::var("MODEL_POOL_STREAM_CASES");
    0..count.map_or(CASES, |count| count.parse().expect("a number of cases"))
}

/// Runs all cases of an engine. Failure messages name the case.
fn run(engine: Engine) {
    let tellers = tellers();
    for case in cases() {
        let mut random = Random::new(case * 16 + engine as u64);
        let generated = engines::generate(engine, &mut random);
        let stream = streams::written(&generated, &mut random);
        let shown = || {
            format!(
                "{engine:?}, case {case}: {}",
                String::from_utf8_lossy(&stream)
            )
        };
        let response = assembled(&stream, &generated, &mut random);
        let response = response.unwrap_or_else(|error| panic!("{error}: {}", shown()));
        assert_eq!(response, generated.response, "{}", shown());
        if generated.has_one_chat() {
            for (name, teller) in &tellers {
                let complete = teller.clone().respond(response.clone());
                let complete =
                    complete.unwrap_or_else(|error| panic!("{name}: {error:?}: {}", shown()));
                let events = translated(&stream, teller.clone());
                let of_response = folded::of_response(name, &complete);
                let of_stream = folded::of_stream(name, &events);
                assert_eq!(of_stream, of_response, "{name}, {}", shown());
            }
        }
    }
}

/// Assembles a body that arrives in pieces of random length.
fn assembled(stream: &[u8], generated: &Generated, random: &mut Random) -> Result<Value, String> {
    let mut assembler = Assembler::new(None, generated.choices());
    let longest = random.pick(&[1, 7, 100, 10_000]);
    let mut rest = stream;
    while !rest.is_empty() && !assembler.done {
        let length = (1 + random.below(longest) as usize).min(rest.len());
        let (piece, later) = rest.split_at(length);
        rest = later;
        assembler
            .push(piece)
            .map_err(|damaged| damaged.to_string())?;
    }
    assembler.end().map_err(|damaged| damaged.to_string())?;
    if !assembler.done {
        return Err("not complete".to_owned());
    }
    assembler.finish().ok_or_else(|| "nothing".to_owned())
}

/// Assembles a body in two ways: with the paths for common chunks, and with every chunk merged as an object.
fn in_both_ways(
    stream: &[u8],
    choices: usize,
    as_chat: bool,
) -> [Result<Option<String>, String>; 2] {
    [false, true].map(|merges_objects| {
        let mut assembler = Assembler::new(as_chat.then(AsChat::default), choices);
        assembler.merges_objects = merges_objects;
        let pushed = assembler.push(stream).and_then(|_| assembler.end());
        pushed.map_err(|damaged| damaged.to_string())?;
        let state = (assembler.done, assembler.error.take(), assembler.usage());
        let response = assembler.into_bytes().map(String::from_utf8);
        Ok(response.map(|text| format!("{state:?} {}", text.expect("JSON is text"))))
    })
}

/// Changes a few bytes of a stream, which usually stays valid JSON.
fn mutated(stream: &[u8], random: &mut Random) -> Vec<u8> {
    let mut stream = stream.to_vec();
    for _ in 0..random.below(4) {
        let at = random.below(stream.len() as u64) as usize;
        match random.below(4) {
            0 => stream[at] = random.pick(b"\"{}[]:,0519-.nul\\ a\n"),
            1 => drop(stream.remove(at)),
            2 => stream.insert(at, random.pick(b"\"{}[]0e-. \n")),
            // Repeats a part, often a field or an event.
            _ => {
                let end = (at + random.below(200) as usize).min(stream.len());
                let part = stream[at..end].to_vec();
                stream.splice(at..at, part);
            }
        }
        if stream.is_empty() {
            break;
        }
    }
    stream
}

/// Streams of tokens only, with the labels, nulls and ends that engines send.
fn tokens(random: &mut Random) -> Vec<u8> {
    let mut stream = String::new();
    let choices = 1 + random.below(3);
    let field = |random: &mut Random, values: &[&str]| random.pick(values).to_owned();
    for _ in 0..random.below(12) {
        let mut fields = Vec::new();
        let labels = [
            ("id", ["\"c\"", "\"\"", "null", "\"\\u00e9\""]),
            (
                "object",
                [
                    "\"chat.completion.chunk\"",
                    "\"text_completion\"",
                    "\"error\"",
                    "\"\"",
                ],
            ),
            ("created", ["1700000000", "0", "1.0", "-0"]),
            ("model", ["\"m\"", "\"m\"", "null", "7"]),
            ("system_fingerprint", ["null", "\"fp\"", "\"\"", "true"]),
            (
                "usage",
                [
                    "null",
                    "{\"prompt_tokens\":3,\"completion_tokens\":2}",
                    "{}",
                    "5",
                ],
            ),
            (
                "timings",
                [
                    "null",
                    "{\"prompt_ms\":1.50}",
                    "{\"prompt_ms\":2}",
                    "{\"a\":{\"b\":[1]}}",
                ],
            ),
            ("provider", ["\"p\"", "[]", "{}", "null"]),
        ];
        for (name, values) in labels {
            // The first value is the usual one.
            match random.below(10) {
                0..6 if !matches!(name, "usage" | "timings" | "provider") => {
                    fields.push(format!("\"{name}\":{}", values[0]));
                }
                6 => fields.push(format!("\"{name}\":{}", field(random, &values))),
                _ => {}
            }
        }
        let choice = |random: &mut Random| {
            let mut fields = Vec::new();
            if random.chance(90) {
                fields.push(format!("\"index\":{}", random.below(choices)));
            }
            let text = field(
                random,
                &[
                    "\"a\"",
                    "\" b\"",
                    "\"\"",
                    "\"\\n\"",
                    "\"\\ud83d\\ude00\"",
                    "null",
                    "\"\u{e9}\"",
                ],
            );
            let delta = match random.below(8) {
                0 => format!("{{\"role\":\"assistant\",\"content\":{text}}}"),
                1 => "{\"role\":\"assistant\"}".to_owned(),
                2 => format!("{{\"reasoning_content\":{text}}}"),
                3 => format!("{{\"content\":{text},\"reasoning\":{text},\"tool_calls\":null}}"),
                4 => field(
                    random,
                    &["{}", "null", "{\"refusal\":\"no\"}", "[\"assistant\"]"],
                ),
                _ => format!("{{\"content\":{text}}}"),
            };
            if random.chance(85) {
                fields.push(format!("\"delta\":{delta}"));
            } else {
                fields.push(format!("\"text\":{text}"));
            }
            let ends = [
                ("finish_reason", ["null", "\"stop\"", "\"\"", "\"\\u0061\""]),
                ("stop_reason", ["null", "7", "\"x\"", "\"\""]),
                ("matched_stop", ["null", "2", "\"y\"", "1.5"]),
                ("token_ids", ["null", "[1]", "[]", "3"]),
                ("logprobs", ["null", "null", "{\"content\":[1]}", "[]"]),
            ];
            for (name, values) in ends {
                match random.below(12) {
                    0 => fields.push(format!("\"{name}\":{}", field(random, &values))),
                    1..4 => fields.push(format!("\"{name}\":null")),
                    _ => {}
                }
            }
            format!("{{{}}}", fields.join(","))
        };
        let list: Vec<String> = (0..random.pick(&[1, 1, 1, 1, 1, 0, 2]))
            .map(|_| choice(random))
            .collect();
        let at = random.below(fields.len() as u64 + 1) as usize;
        fields.insert(at, format!("\"choices\":[{}]", list.join(",")));
        stream.push_str(&format!("data: {{{}}}\n\n", fields.join(",")));
    }
    stream.push_str("data: [DONE]\n\n");
    stream.into_bytes()
}

#[test]
fn the_fast_path_for_common_chunks_matches_full_parsing() {
    let mut kept_drafts = 0;
    for case in 0..cases().end * 40 {
        let mut random = Random::new(case * 16 + 15);
        let stream = if random.chance(70) {
            tokens(&mut random)
        } else {
            let engine = random.pick(ENGINES);
            let generated = engines::generate(engine, &mut random);
            streams::written(&generated, &mut random)
        };
        let stream = if random.chance(50) {
            mutated(&stream, &mut random)
        } else {
            stream
        };
        let choices = 1 + random.below(3) as usize;
        let [short, long] = in_both_ways(&stream, choices, random.chance(10));
        assert_eq!(
            short,
            long,
            "case {case}: {}",
            String::from_utf8_lossy(&stream)
        );
        let mut assembler = Assembler::new(None, choices);
        kept_drafts += u64::from(assembler.push(&stream).is_ok() && assembler.draft.has_begun());
    }
    assert!(
        kept_drafts > cases().end,
        "only {kept_drafts} streams were drafts to their end"
    );
}

#[test]
fn recorded_streams_are_assembled_equally_with_and_without_the_fast_path() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/stream");
    let files = std::fs::read_dir(&folder).expect("the corpus of the fuzzer");
    let mut count = 0;
    for file in files {
        let path = file.expect("an entry").path();
        let stream = std::fs::read(&path).expect("a file");
        for as_chat in [false, true] {
            let [short, long] = in_both_ways(&stream, 4, as_chat);
            assert_eq!(short, long, "{}", path.display());
        }
        count += 1;
    }
    assert!(count > 0);
}

/// Translates the stream into another API as the gateway does.
fn translated(stream: &[u8], teller: Teller) -> String {
    let mut telling = Telling::new(None, teller);
    // The gateway terminates an event or stream that the engine has left open.
    let mut bytes = stream.to_vec();
    if bytes.first() == Some(&b'{') {
        bytes = crate::as_stream::events(&bytes, 9).unwrap();
    }
    bytes.extend_from_slice(b"\n\ndata: [DONE]\n\n");
    let (mut rest, mut written) = (&bytes[..], String::new());
    while let Some(length) = event_end(rest) {
        let (event, later) = rest.split_at(length);
        rest = later;
        written.push_str(&String::from_utf8(telling.event(event.to_vec())).unwrap());
    }
    written
}

/// The APIs that the pool translates into, for a request with a custom tool `w`.
fn tellers() -> Vec<(&'static str, Teller)> {
    let reading = Reading {
        now_seconds: 1_790_000_000,
        sealer: Sealer::new(Arc::new(Seal::new(&[7; 32])), KeyId(1)),
        desk: None,
        background: None,
    };
    let user = json!([{"role": "user", "content": "Hi"}]);
    let read = |dialect: Dialect, body: Value| {
        let read = dialect.read(Bytes::from(body.to_string()), &reading);
        read.expect("a request").teller
    };
    let messages = json!({"model": "m", "max_tokens": 9000, "messages": user,
        "thinking": {"type": "enabled", "budget_tokens": 1024}});
    let responses = json!({"model": "m", "input": "Hi", "store": false});
    let custom = json!({"model": "m", "messages": user, "tools": [{"type": "custom", "custom": {"name": "w"}}]});
    let marks = Arc::new(ollama::Marks::begin(Clock::start()));
    let chat = ollama::Answer::new(ollama::Ask::Chat, "m".to_owned(), marks);
    vec![
        ("messages", read(Dialect::Anthropic, messages)),
        ("responses", read(Dialect::Responses, responses)),
        ("custom", read(Dialect::OpenAi, custom)),
        ("ollama", Teller::Ollama(Box::new(chat))),
    ]
}

macro_rules! engines {
    ($($name:ident: $engine:ident,)*) => {
        const ENGINES: &[Engine] = &[$(Engine::$engine),*];
        $(
        #[test]
        fn $name() {
            run(Engine::$engine);
        }
        )*
    };
}

engines! {
    streams_of_openai_become_their_responses: OpenAi,
    streams_of_vllm_become_their_responses: Vllm,
    streams_of_sglang_become_their_responses: Sglang,
    streams_of_tgi_become_their_responses: Tgi,
    streams_of_llama_cpp_become_their_responses: LlamaCpp,
    streams_of_mistral_become_their_responses: Mistral,
    streams_of_openrouter_become_their_responses: OpenRouter,
    streams_of_proxies_of_anthropic_become_their_responses: AnthropicProxy,
    streams_of_completions_become_their_responses: Completions,
}
