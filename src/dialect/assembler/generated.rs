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
    ($($name:ident: $engine:ident,)*) => {$(
        #[test]
        fn $name() {
            run(Engine::$engine);
        }
    )*};
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
