//! Users: plain requests and streams with known text. A stream is complete, or ends with an error that names the order that ended
//! it, or its process was killed.

use std::sync::atomic::Ordering;

use rand::Rng;
use rand::rngs::StdRng;

use super::service::USER_MODELS;
use super::world::{World, add, call, tail};

/// Permitted reasons for the end of a stream: a model of higher priority, or an administrator.
const ORDERS: [&str; 5] = ["preempted", "unloaded", "cleanup", "cordoned", "its turn"];
const WORDS: [&str; 5] = [" hello", " from", "", " and", " goodbye"];

/// The error of an old process after a later one has stopped the engine: it does not know the reason.
const BROKE_OFF: &str = "closed the connection early";

/// Returns true if the history contains an order that ended an engine of the model during its streams.
fn was_ordered(world: &World, model: &str) -> bool {
    let is_it = |event: &serde_json::Value| {
        let reason = event["reason"].as_str().unwrap_or_default();
        let by_order = ORDERS.iter().any(|order| reason.contains(order));
        event["model"] == model && by_order && !reason.ends_with("; 0 in flight")
    };
    ["evict", "drain", "unload"].iter().any(|kind| {
        let path = format!("/llm/admin/events?kind={kind}&limit=30");
        let shown = world.admin("GET", &path, "").map(|(_, shown)| shown);
        let events = shown.unwrap_or_default()["events"].as_array().cloned();
        events.is_some_and(|events| events.iter().any(is_it))
    })
}

/// The stub's text of this many tokens.
fn expected_text(model: &str, tokens: usize) -> String {
    let word = |nth: usize| match (nth, nth % 5) {
        (0, _) => "Hello".to_owned(),
        (_, 2) => format!(" {model}"),
        (_, of_five) => WORDS[of_five].to_owned(),
    };
    (0..tokens).map(word).collect()
}

pub fn body(model: &str, tokens: usize, stream: bool) -> String {
    format!(
        r#"{{"model":"{model}","stream":{stream},"max_tokens":{tokens},"messages":[{{"role":"user","content":"What is a priority?"}}]}}"#
    )
}

fn ask(world: &World, random: &mut StdRng, tokens: usize, stream: bool) -> Option<String> {
    let model = USER_MODELS[random.random_range(0..USER_MODELS.len())];
    let span = world.begins();
    let response = call(
        world.address,
        "POST",
        "/v1/chat/completions",
        &body(model, tokens, stream),
        &world.lock_key(),
    );
    let fault = match response {
        Ok((200, text)) if stream => return judge_stream(world, span, model, tokens, &text),
        Ok((200, text)) => {
            if text.contains(&expected_text(model, tokens)) {
                add(&world.tally.requests);
                return None;
            } else {
                format!("another text: {}", tail(&text))
            }
        }
        // The response reports a lack of room, possibly only within the time limit.
        Ok((429 | 503, _)) => {
            add(&world.tally.refused);
            world.pause(100);
            return None;
        }
        Ok((status, text)) => format!("{status}: {}", tail(&text)),
        Err(error) => error,
    };
    if world.excuses(span) {
        if stream {
            add(&world.tally.streams_of_the_killed);
        }
        world.pause(50);
        return None;
    }
    Some(format!("a request of {model} (stream: {stream}): {fault}"))
}

fn judge_stream(
    world: &World,
    span: super::world::Span,
    model: &str,
    tokens: usize,
    text: &str,
) -> Option<String> {
    let mut content = String::new();
    for data in text.lines().filter_map(|line| line.strip_prefix("data: ")) {
        let Ok(chunk) = serde_json::from_str::<serde_json::Value>(data) else {
            continue;
        };
        if let Some(message) = chunk["error"]["message"].as_str() {
            let is_told = ORDERS.iter().any(|order| message.contains(order))
                || message.contains(BROKE_OFF) && world.is_older(span) && was_ordered(world, model);
            // It had waited longer than a takeover does; a client that does not stream gets 503.
            if message.contains("the pool is shutting down") && world.is_older(span) {
                add(&world.tally.refused);
                return None;
            }
            if is_told {
                add(&world.tally.streams_told);
            }
            let error = format!("a stream of {model} ended with: {message}");
            return (!is_told && !world.excuses(span)).then_some(error);
        }
        content += chunk["choices"][0]["delta"]["content"]
            .as_str()
            .unwrap_or_default();
    }
    if text.trim_end().ends_with("data: [DONE]") && content == expected_text(model, tokens) {
        add(&world.tally.streams);
        return None;
    }
    (!world.excuses(span)).then(|| format!("a stream of {model} is incomplete: {}", tail(text)))
}

pub fn ask_until_the_end(world: &World, mut random: StdRng) {
    while !world.is_over() {
        let error = ask(world, &mut random, 4, false);
        error.into_iter().for_each(|error| world.lost(error));
        world.pause(random.random_range(1..100));
    }
}

pub fn stream_until_the_end(world: &World, mut random: StdRng) {
    while !world.over.load(Ordering::SeqCst) {
        let tokens = random.random_range(20..150);
        let error = ask(world, &mut random, tokens, true);
        error.into_iter().for_each(|error| world.lost(error));
    }
}
