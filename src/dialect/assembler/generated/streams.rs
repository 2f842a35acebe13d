//! Splits a response into a stream as its engine would: the fields of each event, the labels of calls, the position of the usage,
//! the event format, and the end of the stream.
//! One file because every function adds to the same chunks.

use serde_json::{Map, Value, json};

use super::engines::{Call, Choice, Engine, Generated, Random, logprobs, thinking};

/// The id or name in later deltas of a call.
#[derive(Clone, Copy)]
enum Later {
    Absent,
    Null,
    Empty,
    Repeated,
}

const LATER: [Later; 4] = [Later::Absent, Later::Null, Later::Empty, Later::Repeated];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Labels {
    Usual,
    FromOne,
    Gaps,
    /// All calls have index 0; their ids differ.
    Same,
    Absent,
}

/// Writes the stream as bytes.
pub(crate) fn written(generated: &Generated, random: &mut Random) -> Vec<u8> {
    if random.chance(2) {
        return generated.response.to_string().into_bytes();
    }
    let chunks = chunks(generated, random);
    let mut stream = String::new();
    let end = if random.chance(30) { "\r\n" } else { "\n" };
    let framing = random.below(7);
    if framing == 6 {
        stream.push('\u{feff}');
    }
    for (nth, chunk) in chunks.iter().enumerate() {
        let data = match framing {
            0 => format!("data:{chunk}"),
            1 => format!("event: message{end}id: {nth}{end}data: {chunk}"),
            2 => format!(": ping{end}{end}data: {chunk}"),
            3 => {
                let pretty = serde_json::to_string_pretty(chunk).unwrap();
                format!("data: {}", pretty.replace('\n', &format!("{end}data: ")))
            }
            4 => format!("data:  {chunk} "),
            _ => format!("data: {chunk}"),
        };
        stream.push_str(&data);
        stream.push_str(end);
        stream.push_str(end);
    }
    match random.below(4) {
        // The body ends properly without a final event.
        0 => {}
        1 => stream.truncate(stream.len() - 2 * end.len()),
        _ => stream.push_str(&format!("data: [DONE]{end}{end}")),
    }
    stream.into_bytes()
}

fn chunks(generated: &Generated, random: &mut Random) -> Vec<Value> {
    let engine = generated.engine;
    let as_message = engine != Engine::Completions && random.chance(3);
    let mut lines: Vec<std::collections::VecDeque<Value>> = Vec::new();
    for (index, choice) in generated.choices.iter().enumerate() {
        let deltas = match (engine, as_message) {
            (Engine::Completions, _) => texts(choice),
            (_, true) => vec![generated.response["choices"][index].clone()],
            _ => deltas(engine, choice, random),
        };
        let is_alone = generated.choices.len() == 1 && random.chance(10);
        let numbered = deltas.into_iter().map(|mut delta| {
            if !is_alone {
                delta["index"] = json!(index);
            } else if let Value::Object(delta) = &mut delta {
                delta.shift_remove("index");
            }
            delta
        });
        lines.push(numbered.collect());
    }
    let mut head = generated.response.as_object().unwrap().clone();
    for name in ["choices", "usage", "timings", "citations"] {
        head.shift_remove(name);
    }
    if engine != Engine::Completions {
        head.insert("object".to_owned(), json!("chat.completion.chunk"));
    }
    let chunk = |choices: Value| {
        let mut chunk = Value::Object(head.clone());
        chunk["choices"] = choices;
        chunk
    };
    let mut chunks = Vec::new();
    // Azure begins with a chunk without any data.
    if engine == Engine::OpenAi && random.chance(20) {
        chunks.push(json!({"id": "", "object": "", "created": 0, "model": "", "choices": []}));
    }
    while lines.iter().any(|line| !line.is_empty()) {
        let open: Vec<usize> = (0..lines.len())
            .filter(|nth| !lines[*nth].is_empty())
            .collect();
        let first = random.pick(&open);
        let mut choices = vec![lines[first].pop_front().unwrap()];
        if open.len() > 1 && random.chance(30) {
            let other = open[usize::from(open[0] == first)];
            choices.push(lines[other].pop_front().unwrap());
        }
        chunks.push(chunk(json!(choices)));
    }
    with_ends(generated, chunks, chunk, random)
}

/// Adds response fields that appear late or repeatedly.
fn with_ends(
    generated: &Generated,
    mut chunks: Vec<Value>,
    chunk: impl Fn(Value) -> Value,
    random: &mut Random,
) -> Vec<Value> {
    let response = &generated.response;
    let last = chunks.len() - 1;
    let usage = &response["usage"];
    if random.chance(40) {
        for chunk in &mut chunks {
            chunk["usage"] = json!(null);
        }
    }
    match random.below(if generated.engine == Engine::AnthropicProxy {
        5
    } else {
        4
    }) {
        0 => chunks[last]["usage"] = usage.clone(),
        1 => {
            for (nth, chunk) in chunks.iter_mut().enumerate() {
                chunk["usage"] = json!({"prompt_tokens": usage["prompt_tokens"], "completion_tokens": nth, "total_tokens": nth});
            }
            chunks[last]["usage"] = usage.clone();
        }
        2 => {
            let mut alone = chunk(json!([]));
            if let Value::Object(alone) = &mut alone {
                alone.shift_remove("choices");
            }
            alone["usage"] = usage.clone();
            chunks.push(alone);
        }
        3 => {
            let mut alone = chunk(json!([]));
            alone["usage"] = usage.clone();
            chunks.push(alone);
        }
        // Prompt tokens are counted in the first chunk, the rest in the last.
        _ => {
            chunks[0]["usage"] = json!({"prompt_tokens": usage["prompt_tokens"]});
            let mut rest = usage.clone();
            if let Value::Object(rest) = &mut rest {
                rest.shift_remove("prompt_tokens");
            }
            let mut alone = chunk(json!([]));
            alone["usage"] = rest;
            chunks.push(alone);
        }
    }
    let last = chunks.len() - 1;
    if let Some(citations) = response.get("citations").and_then(Value::as_array) {
        match random.below(3) {
            0 => chunks[last]["citations"] = json!(citations),
            1 => chunks
                .iter_mut()
                .for_each(|chunk| chunk["citations"] = json!(citations)),
            _ => {
                for (nth, chunk) in chunks.iter_mut().enumerate() {
                    chunk["citations"] = json!(citations[..nth.min(citations.len())]);
                }
                chunks[last]["citations"] = json!(citations);
            }
        }
    }
    if let Some(timings) = response.get("timings") {
        if random.chance(50) {
            chunks[0]["timings"] = json!({"prompt_n": timings["prompt_n"], "predicted_ms": 1.0});
        }
        chunks[last]["timings"] = timings.clone();
    }
    chunks
}

fn texts(choice: &Choice) -> Vec<Value> {
    let mut deltas = Vec::new();
    for (nth, text) in choice.text.iter().enumerate() {
        let mut delta = json!({"text": text, "logprobs": null, "finish_reason": null});
        if choice.has_logprobs {
            delta["logprobs"] = logprobs(Engine::Completions, std::slice::from_ref(text), nth);
        }
        deltas.push(delta);
    }
    deltas.last_mut().unwrap()["finish_reason"] = json!(choice.finish);
    deltas
}

fn deltas(engine: Engine, choice: &Choice, random: &mut Random) -> Vec<Value> {
    let delta = |fields: Value| json!({"delta": fields, "finish_reason": null});
    let mut deltas = Vec::new();
    let has_text = !choice.text.is_empty();
    deltas.push(delta(match random.below(3) {
        0 if has_text => json!({"role": "assistant", "content": ""}),
        1 => json!({"role": "assistant", "content": null}),
        _ => json!({"role": "assistant"}),
    }));
    let parts_of_texts = engine == Engine::Mistral && !choice.reasoning.concat().is_empty();
    for (nth, piece) in choice.reasoning.iter().enumerate() {
        let is_last = nth + 1 == choice.reasoning.len();
        let signature = if is_last { json!("sig") } else { json!(null) };
        deltas.push(delta(match engine {
            Engine::Mistral if parts_of_texts => json!({"content": [thinking(piece)]}),
            Engine::Mistral => json!({}),
            Engine::OpenRouter if choice.reasoning.concat().is_empty() => json!({"reasoning": piece}),
            Engine::OpenRouter => json!({"reasoning": piece, "reasoning_details": [
                {"type": "reasoning.text", "text": piece, "format": "f", "index": 0, "signature": signature}]}),
            Engine::Vllm => json!({"reasoning": piece, "reasoning_content": piece}),
            _ => json!({"reasoning_content": piece}),
        }));
    }
    for piece in &choice.text {
        let mut written = delta(
            if parts_of_texts && random.chance(50) && !piece.is_empty() {
                json!({"content": [{"type": "text", "text": piece}]})
            } else {
                json!({"content": piece})
            },
        );
        if choice.has_logprobs {
            written["logprobs"] = logprobs(engine, std::slice::from_ref(piece), 0);
        }
        deltas.push(written);
    }
    deltas.extend(
        choice
            .refusal
            .iter()
            .map(|piece| delta(json!({"refusal": piece}))),
    );
    for (name, value) in &choice.more {
        let mut pieces = Vec::new();
        match (name.as_str(), value) {
            ("audio", audio) => {
                pieces.push(json!({"id": audio["id"], "transcript": ""}));
                pieces.extend(["Hey", ", you"].map(|text| json!({"transcript": text})));
                // Each piece is padded separately.
                pieces.extend(
                    ["QQ==", "QkNERQ==", "Rkc="]
                        .map(|data| json!({"id": audio["id"], "data": data})),
                );
                pieces.push(json!({"expires_at": audio["expires_at"]}));
            }
            (_, Value::Array(list)) => pieces.extend(list.iter().map(|item| json!([item]))),
            _ => pieces.push(value.clone()),
        }
        deltas.extend(pieces.into_iter().map(|piece| delta(json!({name: piece}))));
    }
    let calls = calls(engine, &choice.calls, random);
    deltas.extend(
        calls
            .into_iter()
            .map(|calls| delta(json!({"tool_calls": calls}))),
    );
    let mut end = delta(match random.below(3) {
        0 => json!({}),
        1 => json!(null),
        _ => json!({"role": "assistant"}),
    });
    end["finish_reason"] = json!(choice.finish);
    match engine {
        Engine::Vllm => end["stop_reason"] = json!(null),
        Engine::Sglang => end["matched_stop"] = json!(2),
        Engine::OpenRouter => end["native_finish_reason"] = json!("end_turn"),
        _ => {}
    }
    deltas.push(end);
    let (empty_finish, repeats_role) = (random.chance(10), random.chance(10));
    let has_nulls = engine == Engine::Sglang || random.chance(10);
    for delta in &mut deltas {
        if empty_finish && delta["finish_reason"].is_null() {
            delta["finish_reason"] = json!("");
        }
        let Value::Object(fields) = &mut delta["delta"] else {
            continue;
        };
        if repeats_role {
            fields.insert("role".to_owned(), json!("assistant"));
        }
        if has_nulls {
            for name in ["role", "content", "reasoning_content", "tool_calls"] {
                fields.entry(name).or_insert(json!(null));
            }
        }
    }
    // MiniMax sends the complete message after its pieces.
    if random.chance(3) {
        let text = choice.text.concat();
        deltas.push(json!({"message": {"role": "assistant", "content": text}, "finish_reason": choice.finish}));
        if !has_text {
            deltas.pop();
        }
    }
    deltas
}

/// Returns one `tool_calls` value per delta.
fn calls(engine: Engine, calls: &[Call], random: &mut Random) -> Vec<Value> {
    let has_ids = calls.iter().all(|call| call.id.is_some());
    let ids: std::collections::BTreeSet<_> = calls.iter().map(|call| &call.id).collect();
    let labels = if has_ids && ids.len() == calls.len() {
        random.pick(&[
            Labels::Usual,
            Labels::Usual,
            Labels::FromOne,
            Labels::Gaps,
            Labels::Same,
            Labels::Absent,
        ])
    } else {
        random.pick(&[Labels::Usual, Labels::FromOne, Labels::Gaps])
    };
    let (later_id, later_name) = (random.pick(&LATER), random.pick(&LATER));
    let is_whole = engine == Engine::AnthropicProxy || random.chance(30);
    let (as_json, has_types) = (is_whole && random.chance(20), random.chance(50));
    let mut written: Vec<Vec<Value>> = Vec::new();
    for (nth, call) in calls.iter().enumerate() {
        let pieces = if is_whole {
            vec![call.arguments.clone()]
        } else {
            let mut pieces = random.cut(&call.arguments);
            if random.chance(60) {
                pieces.insert(0, String::new());
            }
            pieces
        };
        let deltas = pieces.into_iter().enumerate().map(|(at, arguments)| {
            let mut delta = Map::new();
            let index = match labels {
                Labels::Usual => Some(nth),
                Labels::FromOne => Some(nth + 1),
                Labels::Gaps => Some(nth * 3 + 2),
                Labels::Same => Some(0),
                Labels::Absent => None,
            };
            delta.extend(index.map(|index| ("index".to_owned(), json!(index))));
            let field = |value: Value, later: Later| match later {
                _ if at == 0 => Some(value),
                Later::Absent => None,
                Later::Null => Some(json!(null)),
                Later::Empty => Some(json!("")),
                Later::Repeated => Some(value),
            };
            let id = call.id.clone().unwrap_or_default();
            delta.extend(field(json!(id), later_id).map(|id| ("id".to_owned(), id)));
            if at == 0 || has_types {
                delta.insert("type".to_owned(), json!("function"));
            }
            let mut function = Map::new();
            function
                .extend(field(json!(call.name), later_name).map(|name| ("name".to_owned(), name)));
            let arguments = if as_json {
                serde_json::from_str(&arguments).unwrap()
            } else {
                json!(arguments)
            };
            function.insert("arguments".to_owned(), arguments);
            delta.insert("function".to_owned(), Value::Object(function));
            if let Some(extra) = call.extra.as_ref().filter(|_| at == 0) {
                delta.insert("extra_content".to_owned(), extra.clone());
            }
            Value::Object(delta)
        });
        written.push(deltas.collect());
    }
    let has_labels = !matches!(labels, Labels::Same | Labels::Absent);
    // Unsplit calls may arrive in one list; labelled calls may be interleaved.
    if is_whole && calls.len() > 1 && random.chance(30) {
        return vec![json!(written.concat())];
    }
    if has_labels && random.chance(20) {
        let mut all = Vec::new();
        // The calls begin in order.
        all.extend(written.iter_mut().map(|deltas| json!([deltas.remove(0)])));
        while written.iter().any(|deltas| !deltas.is_empty()) {
            let nth = random.below(written.len() as u64) as usize;
            if !written[nth].is_empty() {
                all.push(json!([written[nth].remove(0)]));
            }
        }
        return all;
    }
    let as_object = engine == Engine::Tgi && random.chance(50);
    let all = written.into_iter().flatten();
    all.map(|delta| if as_object { delta } else { json!([delta]) })
        .collect()
}
