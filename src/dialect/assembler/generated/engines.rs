//! Generates complete responses in the format of each engine, with the pieces that their texts are made of.

use serde_json::{Map, Value, json};

/// SplitMix64: produces the same cases on every platform.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn below(&mut self, count: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % count.max(1)
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    /// Cuts a text at random character boundaries.
    pub fn cut(&mut self, text: &str) -> Vec<String> {
        let letters: Vec<char> = text.chars().collect();
        let mut rest = &letters[..];
        let mut pieces = Vec::new();
        while !rest.is_empty() {
            let length = (1 + self.below(9) as usize).min(rest.len());
            pieces.push(rest[..length].iter().collect());
            rest = &rest[length..];
        }
        pieces
    }

    fn pieces(&mut self, most: u64) -> Vec<String> {
        const WORDS: [&str; 12] = [
            "Hel",
            "lo",
            " world",
            "\n",
            "\"quoted\"",
            "\\",
            "\u{e9}",
            "\u{1f600}",
            " the",
            "",
            "data: x\n\n",
            "{\"a\":",
        ];
        let count = 1 + self.below(most);
        (0..count).map(|_| self.pick(&WORDS).to_owned()).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    OpenAi,
    Vllm,
    Sglang,
    Tgi,
    LlamaCpp,
    Mistral,
    OpenRouter,
    AnthropicProxy,
    Completions,
}

/// A complete response and the pieces for its stream.
pub(crate) struct Generated {
    pub engine: Engine,
    pub choices: Vec<Choice>,
    /// The response that the stream must produce.
    pub response: Value,
}

#[derive(Default)]
pub struct Choice {
    pub reasoning: Vec<String>,
    pub text: Vec<String>,
    pub refusal: Vec<String>,
    pub calls: Vec<Call>,
    /// Message fields that are never split.
    pub more: Map<String, Value>,
    pub(crate) has_logprobs: bool,
    pub finish: &'static str,
}

pub struct Call {
    pub id: Option<String>,
    pub name: String,
    pub arguments: String,
    pub extra: Option<Value>,
}

impl Generated {
    pub fn choices(&self) -> usize {
        self.choices.len()
    }

    pub(crate) fn has_one_chat(&self) -> bool {
        self.choices.len() == 1 && self.engine != Engine::Completions
    }
}

pub(crate) fn generate(engine: Engine, random: &mut Random) -> Generated {
    let count = if random.chance(20) {
        2 + random.below(2)
    } else {
        1
    };
    let choices: Vec<Choice> = (0..count).map(|_| choice(engine, random)).collect();
    let shown = choices.iter().enumerate();
    let shown: Vec<Value> = shown
        .map(|(index, choice)| complete(engine, index, choice))
        .collect();
    let object = match engine {
        Engine::Completions => "text_completion",
        _ => "chat.completion",
    };
    let mut response = json!({"id": format!("c-{}", random.below(1000)), "object": object,
        "created": 1_700_000_000 + random.below(1000), "model": "inner", "choices": shown});
    let prompt = random.below(500);
    let completion = 1 + random.below(500);
    response["usage"] = json!({"prompt_tokens": prompt, "completion_tokens": completion,
        "total_tokens": prompt + completion, "prompt_tokens_details": {"cached_tokens": prompt / 2}});
    match engine {
        Engine::OpenAi if random.chance(50) => {
            response["system_fingerprint"] = json!("fp_1");
            response["service_tier"] = json!("default");
        }
        Engine::OpenRouter => {
            response["provider"] = json!("p");
            if random.chance(30) {
                response["citations"] = json!(["http://a/", "http://b/"]);
            }
        }
        Engine::LlamaCpp => {
            response["timings"] =
                json!({"prompt_n": prompt, "prompt_ms": 1.5, "predicted_ms": 20.25});
        }
        _ => {}
    }
    Generated {
        engine,
        choices,
        response,
    }
}

fn choice(engine: Engine, random: &mut Random) -> Choice {
    let mut choice = Choice {
        finish: random.pick(&["stop", "stop", "length"]),
        ..Choice::default()
    };
    if engine == Engine::Completions {
        choice.text = random.pieces(12);
        choice.has_logprobs = random.chance(30);
        return choice;
    }
    let kind = random.below(10);
    let reasons = !matches!(engine, Engine::OpenAi | Engine::Tgi) && random.chance(40);
    if reasons {
        choice.reasoning = random.pieces(6);
    }
    if kind < 8 {
        choice.text = random.pieces(12);
        choice.has_logprobs = random.chance(15) && engine != Engine::Mistral;
    }
    if kind > 4 {
        let count = 1 + random.below(3);
        choice.calls = (0..count).map(|nth| call(engine, nth, random)).collect();
        choice.finish = "tool_calls";
    }
    if matches!(engine, Engine::OpenAi) && random.chance(10) {
        choice.refusal = random.pieces(3);
    }
    if matches!(engine, Engine::OpenAi | Engine::OpenRouter) && random.chance(10) {
        let citation = |nth: u64| json!({"type": "url_citation", "url_citation": {"url": "http://e/", "start_index": nth}});
        choice
            .more
            .insert("annotations".to_owned(), json!([citation(0), citation(1)]));
    }
    if matches!(engine, Engine::OpenRouter) && random.chance(10) {
        let image = json!([{"type": "image_url", "index": 0, "image_url": {"url": "data:image/png;base64,AA=="}}]);
        choice.more.insert("images".to_owned(), image);
    }
    if matches!(engine, Engine::OpenAi) && random.chance(10) {
        let audio = json!({"id": "audio_1", "transcript": "Hey, you", "data": "QUJDREVGRw==", "expires_at": 5});
        choice.more.insert("audio".to_owned(), audio);
    }
    choice
}

fn call(engine: Engine, nth: u64, random: &mut Random) -> Call {
    let arguments = match random.below(5) {
        0 => json!({}),
        1 => json!({"a": "b \"}{\" \\", "n": [1, {"x": null}]}),
        2 => json!({"input": "text\n\u{e9}"}),
        _ => json!({"city": "Rome", "days": random.below(9)}),
    };
    Call {
        // TGI has no ids.
        id: (engine != Engine::Tgi).then(|| format!("call_{}_{nth}", random.below(100))),
        name: random.pick(&["w", "v", "get_weather"]).to_owned(),
        arguments: arguments.to_string(),
        extra: (engine == Engine::AnthropicProxy && random.chance(30))
            .then(|| json!({"google": {"thought_signature": "SIG"}})),
    }
}

/// The choice as it appears in a complete response.
fn complete(engine: Engine, index: usize, choice: &Choice) -> Value {
    let mut shown = json!({"index": index, "logprobs": null, "finish_reason": choice.finish});
    if choice.has_logprobs {
        shown["logprobs"] = logprobs(engine, &choice.text, 0);
    }
    match engine {
        Engine::Completions => {
            shown["text"] = json!(choice.text.concat());
            return shown;
        }
        Engine::Vllm => shown["stop_reason"] = json!(null),
        Engine::Sglang => shown["matched_stop"] = json!(2),
        Engine::OpenRouter => shown["native_finish_reason"] = json!("end_turn"),
        _ => {}
    }
    let mut message = json!({"role": "assistant", "content": null, "refusal": null});
    let reasoning = choice.reasoning.concat();
    let text = choice.text.concat();
    if !choice.text.is_empty() {
        message["content"] = json!(text);
    }
    match engine {
        Engine::Mistral if !reasoning.is_empty() => {
            let mut parts = vec![thinking(&reasoning)];
            if !text.is_empty() {
                parts.push(json!({"type": "text", "text": text}));
            }
            message["content"] = json!(parts);
        }
        _ if choice.reasoning.is_empty() => {}
        Engine::Mistral => {}
        Engine::OpenRouter => {
            message["reasoning"] = json!(reasoning);
            if !reasoning.is_empty() {
                message["reasoning_details"] = json!([{"type": "reasoning.text", "text": reasoning, "format": "f",
                    "index": 0, "signature": "sig"}]);
            }
        }
        Engine::Vllm => {
            message["reasoning"] = json!(reasoning);
            message["reasoning_content"] = json!(reasoning);
        }
        _ => message["reasoning_content"] = json!(reasoning),
    }
    if !choice.refusal.is_empty() {
        message["refusal"] = json!(choice.refusal.concat());
    }
    if !choice.calls.is_empty() {
        let calls = choice.calls.iter().map(Call::complete);
        message["tool_calls"] = calls.collect();
    }
    for (name, value) in &choice.more {
        message[name] = value.clone();
    }
    shown["message"] = message;
    shown
}

impl Call {
    fn complete(&self) -> Value {
        let mut call = json!({"type": "function", "function": {"name": self.name, "arguments": self.arguments}});
        if let Some(id) = &self.id {
            call["id"] = json!(id);
        }
        if let Some(extra) = &self.extra {
            call["extra_content"] = extra.clone();
        }
        call
    }
}

pub(crate) fn thinking(text: &str) -> Value {
    json!({"type": "thinking", "thinking": [{"type": "text", "text": text}]})
}

/// The log probabilities of pieces of a text. `before`: the number of earlier pieces.
pub(crate) fn logprobs(engine: Engine, pieces: &[String], before: usize) -> Value {
    let of_piece = |token: &String| match engine {
        Engine::Completions => json!(-0.5),
        _ => {
            json!({"token": token, "logprob": -0.5, "bytes": token.as_bytes(), "top_logprobs": []})
        }
    };
    let each: Vec<Value> = pieces.iter().map(of_piece).collect();
    match engine {
        Engine::Completions => {
            let offsets: Vec<usize> = (before..before + pieces.len()).collect();
            json!({"tokens": pieces, "token_logprobs": each, "text_offset": offsets})
        }
        _ => json!({"content": each, "refusal": null}),
    }
}
