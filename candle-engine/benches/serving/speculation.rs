//! The gain and cost of speculative decoding: sends the same requests to an engine without and with it, whose completions must be
//! equal.

use crate::measures::{Measure, Prompts, SHORT_PROMPT, Samples, decoded};
use crate::servers::{Engine, Model, Server};
use serde_json::{Map, Value, json};
use tokio::runtime::Runtime;

/// A kind of text, by how much it repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Text {
    /// Greedy decoding of random weights, which soon loops.
    Repeating,
    /// Sampled from the complete vocabulary: lookups find nothing.
    New,
    /// Sampled from a few tokens: lookups find matches that mostly continue differently.
    Misleading,
}

impl Text {
    const ALL: [Self; 3] = [Self::Repeating, Self::New, Self::Misleading];

    pub fn name(self) -> &'static str {
        match self {
            Self::Repeating => "text that repeats",
            Self::New => "text without repeats",
            Self::Misleading => "text whose repeats mislead",
        }
    }

    /// Changes a request to produce this kind of text.
    fn dress(self, body: &mut Value) {
        if self == Self::Repeating {
            return;
        }
        body["temperature"] = json!(1);
        body["seed"] = json!(7);
        if self == Self::Misleading {
            let tokens = (0..FEW_TOKENS).map(|nth| ((2000 + nth).to_string(), json!(100)));
            body["logit_bias"] = Value::Object(tokens.collect::<Map<_, _>>());
        }
    }
}

/// Number of different tokens in a misleading text; pairs of them recur often.
const FEW_TOKENS: u32 = 6;

const AT_ONCE: [usize; 2] = [1, 4];

/// Factor on the length of completions compared with other measurements; loops begin late.
const LONGER: usize = 4;

/// Tokens per second, with and without proposals.
pub fn samples(
    runtime: &Runtime,
    model: &Model,
    threads: usize,
    tokens: usize,
    prompts: &mut Prompts,
) -> Result<Samples, String> {
    let tokens = tokens * LONGER;
    let mut asks = Vec::new();
    for text in Text::ALL {
        for at_once in AT_ONCE {
            asks.push((text, at_once, prompts.many(at_once, SHORT_PROMPT)));
        }
    }
    let mut samples = Vec::new();
    let mut responses: Vec<Vec<String>> = Vec::new();
    for speculates in [false, true] {
        let mut server = Server::start(Engine::Ours, model, threads, speculates)?;
        server.wait()?;
        let first = [server.request(&prompts.many(1, SHORT_PROMPT)[0], 8)];
        runtime.block_on(decoded(&server, &first, 8))?;
        for (nth, (text, at_once, prompts)) in asks.iter().enumerate() {
            let bodies: Vec<Value> = prompts
                .iter()
                .map(|prompt| {
                    let mut body = server.request(prompt, tokens);
                    text.dress(&mut body);
                    body
                })
                .collect();
            let (rate, texts) = runtime.block_on(decoded(&server, &bodies, tokens))?;
            let measure = Measure::Speculation(*text, *at_once, speculates);
            samples.push((measure, rate));
            match responses.get(nth) {
                None => responses.push(texts),
                Some(plain) if *plain == texts => {}
                Some(_) => {
                    return Err(format!(
                        "the answer of a {} was changed by proposals",
                        text.name()
                    ));
                }
            }
        }
    }
    Ok(samples)
}
