//! The stub's routes and its fixed answers. It owns what is said and how fast; it understands of a
//! request only `stream`, `stream_options.include_usage` and `max_tokens`.

use std::io::{self, Write};
use std::thread;

use serde_json::{Value, json};

use crate::flags::Flags;
use crate::http::{Events, Request, send_json};

const WORDS: [&str; 5] = ["Hello", " from", " the", " stub", " engine"];
/// A moment long past: answers are the same always.
const CREATED: u64 = 1_700_000_000;

pub fn answer(request: &Request, flags: &Flags, stream: &mut impl Write) -> io::Result<()> {
    let is_health = request.path == "/health";
    if is_health && flags.hang_health {
        loop {
            thread::park();
        }
    }
    let percent = flags.load_percent();
    if percent < 100 {
        let body = json!({"status": "loading", "stage": "weights", "percent": percent});
        return send_json(stream, 503, &body);
    }
    match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/health") => send_json(stream, 200, &json!({"status": "ok"})),
        ("GET", "/v1/models") => {
            let model = json!({"id": flags.model, "object": "model", "created": CREATED, "owned_by": "stub"});
            send_json(stream, 200, &json!({"object": "list", "data": [model]}))
        }
        ("POST", "/v1/chat/completions") => complete(request, flags, stream, Form::Chat),
        ("POST", "/v1/completions") => complete(request, flags, stream, Form::Text),
        (method, path) => send_json(stream, 404, &error(&format!("no route {method} {path}"))),
    }
}

#[derive(Clone, Copy)]
enum Form {
    Chat,
    Text,
}

fn complete(
    request: &Request,
    flags: &Flags,
    stream: &mut impl Write,
    form: Form,
) -> io::Result<()> {
    let Ok(body) = serde_json::from_slice::<Value>(&request.body) else {
        return send_json(stream, 400, &error("the body is not JSON"));
    };
    let wanted = body["max_tokens"].as_u64();
    let count = wanted.map_or(flags.tokens, |most| flags.tokens.min(most as usize));
    let words = || WORDS.iter().cycle().take(count);
    let finish = match count < flags.tokens {
        true => "length",
        false => "stop",
    };
    let usage = json!({"prompt_tokens": 3, "completion_tokens": count, "total_tokens": count + 3});
    if body["stream"] != json!(true) {
        thread::sleep(flags.token_pause * count as u32);
        let text: String = words().copied().collect();
        let mut whole = frame(
            flags,
            form,
            json!([choice(form, &text, Some(finish), false)]),
            false,
        );
        whole["usage"] = usage;
        return send_json(stream, 200, &whole);
    }
    let mut events = Events::begin(stream)?;
    for word in words() {
        thread::sleep(flags.token_pause);
        let choices = json!([choice(form, word, None, true)]);
        events.send(&frame(flags, form, choices, true).to_string())?;
    }
    let choices = json!([choice(form, "", Some(finish), true)]);
    events.send(&frame(flags, form, choices, true).to_string())?;
    if body["stream_options"]["include_usage"] == json!(true) {
        let mut last = frame(flags, form, json!([]), true);
        last["usage"] = usage;
        events.send(&last.to_string())?;
    }
    events.send("[DONE]")?;
    events.end()
}

fn frame(flags: &Flags, form: Form, choices: Value, is_chunk: bool) -> Value {
    let object = match (form, is_chunk) {
        (Form::Chat, true) => "chat.completion.chunk",
        (Form::Chat, false) => "chat.completion",
        (Form::Text, _) => "text_completion",
    };
    json!({"id": "stub-1", "object": object, "created": CREATED, "model": flags.model, "choices": choices})
}

fn choice(form: Form, text: &str, finish: Option<&str>, is_chunk: bool) -> Value {
    match (form, is_chunk) {
        (Form::Text, _) => {
            json!({"index": 0, "text": text, "logprobs": null, "finish_reason": finish})
        }
        (Form::Chat, false) => {
            let message = json!({"role": "assistant", "content": text});
            json!({"index": 0, "message": message, "finish_reason": finish})
        }
        (Form::Chat, true) if text.is_empty() => {
            json!({"index": 0, "delta": {}, "finish_reason": finish})
        }
        (Form::Chat, true) => {
            let delta = json!({"role": "assistant", "content": text});
            json!({"index": 0, "delta": delta, "finish_reason": finish})
        }
    }
}

fn error(message: &str) -> Value {
    json!({"error": {"message": message, "type": "invalid_request_error", "param": null, "code": null}})
}
