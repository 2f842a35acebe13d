//! The requests of a storm, all generated from one seed.

use serde_json::{Value, json};

/// A request, without the choice of streaming.
pub struct TestRequest {
    pub route: &'static str,
    pub body: Value,
    /// The same request always gets the same response, because it is greedy or seeded.
    pub repeats: bool,
}

/// The client's behavior.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Reads a complete, non-streaming response.
    Plain,
    /// Reads the events of a stream to its end.
    Stream,
    /// Disconnects after this many events of a stream.
    Leaves(usize),
}

/// A seeded random generator (SplitMix64), the same on every machine.
pub struct Draw(u64);

impl Draw {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let state = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let state = (state ^ (state >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((state ^ (state >> 31)) % end as u64) as usize
    }

    fn between(&mut self, first: usize, last: usize) -> usize {
        first + self.below(last + 1 - first)
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    /// One client in five disconnects, usually early.
    pub fn patience(&mut self) -> Patience {
        match self.below(10) {
            0..4 => Patience::Plain,
            4..8 => Patience::Stream,
            8 => Patience::Leaves(self.below(3)),
            _ => Patience::Leaves(self.below(40)),
        }
    }
}

const WORDS: [&str; 16] = [
    "pool",
    "model",
    "the ",
    "Where is ",
    "GPU ",
    "memory",
    "\n",
    "loads ",
    "a",
    "Größe ",
    "語",
    "🙂 ",
    "42 ",
    ", and ",
    "?",
    "evening ",
];
const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";

/// Generates `count` different requests.
pub fn catalogue(draw: &mut Draw, count: usize) -> Vec<TestRequest> {
    (0..count).map(|index| asked(draw, index)).collect()
}

fn asked(draw: &mut Draw, index: usize) -> TestRequest {
    // Lengths differ by two orders of magnitude, as in real use.
    let words = [1, 8, 40, 100][draw.below(4)];
    let text: String = (0..draw.between(1, words))
        .map(|_| draw.one(&WORDS))
        .collect();
    let tokens = [4, 30, 120][draw.below(3)];
    let tokens = draw.between(1, tokens);
    let chats = draw.below(3) == 0;
    let mut body = if chats {
        json!({"messages": [{"role": "system", "content": "You help people with the pool."}, {"role": "user", "content": text}]})
    } else {
        json!({"prompt": text})
    };
    body["max_tokens"] = json!(tokens);
    let repeats = dress(draw, &mut body, chats, index);
    TestRequest {
        route: if chats { CHAT } else { TEXT },
        body,
        repeats,
    }
}

/// Adds parameters; expensive kinds are less frequent.
fn dress(draw: &mut Draw, body: &mut Value, chats: bool, index: usize) -> bool {
    let mut set = |name: &str, value: Value| body[name] = value;
    let kind = draw.below(20);
    match kind {
        0..5 => set("temperature", json!(0)),
        5 => {
            set("temperature", json!(0));
            set("ignore_eos", json!(true));
        }
        6 => {
            set("temperature", json!(0));
            set(
                "stop",
                json!([draw.one(&["the", " a", "\n", "is", "ool"]), "never said"]),
            );
        }
        7 => {
            set("temperature", json!(0));
            set("logprobs", if chats { json!(true) } else { json!(3) });
        }
        8 => {
            set("decoding_strategy", json!("beam_search"));
            set("num_beams", json!(draw.between(2, 4)));
            set("max_tokens", json!(draw.between(1, 24)));
        }
        9 => {
            set("decoding_strategy", json!("contrastive_search"));
            set("max_tokens", json!(draw.between(1, 16)));
        }
        10 => {
            set("temperature", json!(0.8));
            set(
                "guided_choice",
                json!(["yes", "no", "not before the evening"]),
            );
        }
        11 => {
            set("temperature", json!(1.0));
            set("guided_regex", json!("[a-z]{1,12}( [0-9]{1,4})?"));
        }
        12 => {
            set("temperature", json!(0.5));
            let schema = json!({"type": "object", "properties": {"name": {"enum": ["pool", "model"]}, "size": {"type": "integer"}}, "required": ["name"], "additionalProperties": false});
            set(
                "response_format",
                json!({"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}),
            );
        }
        13 => {
            set("temperature", json!(1.3));
            set("n", json!(draw.between(2, 4)));
        }
        14 if !chats => {
            set("temperature", json!(1.0));
            set("best_of", json!(3));
            set("max_tokens", json!(draw.between(1, 20)));
        }
        15 => {
            set("temperature", json!(1.5));
            set("repetition_penalty", json!(1.2));
            set("frequency_penalty", json!(0.4));
        }
        16 => {
            set("temperature", json!(1.1));
            set("min_p", json!(0.05));
            set("typical_p", json!(0.9));
        }
        _ => {
            set("temperature", json!(0.9));
            set("top_p", json!(0.9));
            set("top_k", json!(40));
        }
    }
    if kind >= 10 && kind != 19 {
        set("seed", json!(index));
    }
    kind != 19
}
