//! The request bodies: a fixed prompt, prompts from a file in turn, or random ones of a given length.

use std::path::Path;

use bytes::Bytes;
use rand::Rng;
use rand::seq::IndexedRandom;
use serde_json::{Map, Value, json};

use crate::args::{BenchArgs, BenchRoute};

const PROMPT: &str = "Say hello.";
const RESPONSE_TOKENS: u32 = 64;
/// Common words, usually one token each in any tokenizer.
const WORDS: [&str; 32] = [
    "time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world",
    "school", "state", "family", "student", "group", "country", "problem", "hand", "part", "place",
    "case", "week", "company", "system", "program", "question", "work", "number", "night", "point",
    "home",
];
const DRAWN_TOKENS_MAX: usize = 1_000_000;

#[derive(Debug)]
pub struct Prompts {
    /// The fields that all bodies share.
    common: Map<String, Value>,
    route: BenchRoute,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Written(Vec<Bytes>),
    Drawn { tokens: usize, seed: u64 },
}

impl Prompts {
    /// Reads the file, if there is one.
    pub fn from_args(args: &BenchArgs, model: &str, stream: bool) -> Result<Prompts, String> {
        let mut common = Map::new();
        common.insert("model".to_owned(), json!(model));
        if args.route != BenchRoute::Embeddings {
            let most = args.max_tokens.unwrap_or(RESPONSE_TOKENS);
            common.insert("max_tokens".to_owned(), json!(most));
        }
        if stream {
            common.insert("stream".to_owned(), json!(true));
            let usage = json!({"include_usage": true});
            common.insert("stream_options".to_owned(), usage);
        }
        let mut prompts = Prompts {
            common,
            route: args.route,
            source: Source::Written(Vec::new()),
        };
        prompts.source = match (&args.prompts, args.prompt_tokens) {
            (Some(file), _) => Source::Written(prompts.of_file(file)?),
            (None, Some(tokens @ 1..=DRAWN_TOKENS_MAX)) => Source::Drawn {
                tokens,
                seed: args.seed,
            },
            (None, Some(tokens)) => {
                return Err(format!(
                    "--prompt-tokens {tokens} is not between 1 and {DRAWN_TOKENS_MAX}"
                ));
            }
            (None, None) => {
                let text = args.prompt.as_deref().unwrap_or(PROMPT);
                Source::Written(vec![prompts.asking(text)])
            }
        };
        Ok(prompts)
    }

    /// The body of one request.
    pub fn body(&self, nth: u64) -> Bytes {
        match &self.source {
            Source::Written(bodies) => bodies[(nth % bodies.len() as u64) as usize].clone(),
            Source::Drawn { tokens, seed } => {
                let mut random =
                    crate::random::seeded(seed ^ nth.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                let start = random.random_range(0..WORDS.len());
                let mut text = WORDS[start].to_owned();
                for _ in 1..*tokens {
                    text.push(' ');
                    text.push_str(WORDS.choose(&mut random).copied().unwrap_or_default());
                }
                self.asking(&text)
            }
        }
    }

    fn asking(&self, text: &str) -> Bytes {
        let field = match self.route {
            BenchRoute::Chat => ("messages", json!([{"role": "user", "content": text}])),
            BenchRoute::Completions => ("prompt", json!(text)),
            BenchRoute::Embeddings => ("input", json!(text)),
        };
        self.with(Map::from_iter([(field.0.to_owned(), field.1)]))
    }

    /// Merges these fields over the common ones.
    fn with(&self, own: Map<String, Value>) -> Bytes {
        let mut body = self.common.clone();
        body.extend(own);
        Value::Object(body).to_string().into()
    }

    fn of_file(&self, file: &Path) -> Result<Vec<Bytes>, String> {
        let named = |why: String| format!("--prompts {}: {why}", file.display());
        let text = std::fs::read_to_string(file).map_err(|error| named(error.to_string()))?;
        let mut bodies = Vec::new();
        for (nth, line) in text.lines().enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            let wrong = |why: String| named(format!("line {}: {why}", nth + 1));
            let value = serde_json::from_str(line).map_err(|error| wrong(error.to_string()))?;
            bodies.push(self.of_line(value).map_err(wrong)?);
        }
        if bodies.is_empty() {
            Err(named("it has no line with a prompt".to_owned()))
        } else {
            Ok(bodies)
        }
    }

    fn of_line(&self, line: Value) -> Result<Bytes, String> {
        let mut fields = match line {
            Value::String(text) => return Ok(self.asking(&text)),
            Value::Object(fields) => fields,
            _ => return Err("neither a string nor an object".to_owned()),
        };
        let (name, takes_prompt) = match self.route {
            BenchRoute::Chat => ("messages", true),
            BenchRoute::Completions => ("prompt", false),
            BenchRoute::Embeddings => ("input", true),
        };
        if takes_prompt
            && !fields.contains_key(name)
            && let Some(prompt) = fields.remove("prompt")
        {
            let value = match self.route {
                BenchRoute::Chat => json!([{"role": "user", "content": prompt}]),
                _ => prompt,
            };
            fields.insert(name.to_owned(), value);
        }
        if fields.contains_key(name) {
            Ok(self.with(fields))
        } else {
            Err(format!("an object without `{name}`"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: BenchArgs,
    }

    fn prompts(words: &[&str]) -> Result<Prompts, String> {
        let Line { args } = Line::parse_from(["bench"].iter().chain(words));
        Prompts::from_args(&args, "m", args.stream)
    }

    fn body(prompts: &Prompts, nth: u64) -> Value {
        serde_json::from_slice(&prompts.body(nth)).unwrap()
    }

    #[test]
    fn each_route_sends_the_prompt_in_its_own_field() {
        let chat = body(&prompts(&["--prompt", "hi", "--stream"]).unwrap(), 0);
        assert_eq!(chat["messages"][0]["content"], "hi");
        assert_eq!(chat["stream_options"]["include_usage"], true);
        let text = body(&prompts(&["--route", "completions"]).unwrap(), 0);
        assert_eq!(
            (&text["prompt"], &text["max_tokens"]),
            (&json!(PROMPT), &json!(64))
        );
        let vectors = body(&prompts(&["--route", "embeddings"]).unwrap(), 0);
        assert_eq!(vectors["input"], PROMPT);
        assert!(vectors.get("max_tokens").is_none());
    }

    #[test]
    fn generated_prompts_have_the_requested_length_and_are_reproducible() {
        let drawn = |seed: &str, nth| {
            let prompts = prompts(&["--prompt-tokens", "50", "--seed", seed]).unwrap();
            body(&prompts, nth)["messages"][0]["content"].clone()
        };
        let text = drawn("1", 0);
        assert_eq!(text.as_str().unwrap().split(' ').count(), 50);
        assert_eq!(text, drawn("1", 0));
        assert_ne!(text, drawn("1", 1));
        assert_ne!(text, drawn("2", 0));
    }

    #[test]
    fn lines_of_a_prompt_file_are_used_in_turn_and_may_set_further_fields() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        std::fs::write(path, "\"one\"\n\n{\"prompt\":\"two\",\"max_tokens\":3}\n").unwrap();
        let read = prompts(&["--prompts", path]).unwrap();
        assert_eq!(body(&read, 0)["messages"][0]["content"], "one");
        let second = body(&read, 1);
        assert_eq!(second["messages"][0]["content"], "two");
        assert_eq!(second["max_tokens"], 3);
        assert_eq!(body(&read, 2), body(&read, 0));
        std::fs::write(path, "\"one\"\n{\"text\": 1}\n").unwrap();
        let error = prompts(&["--prompts", path]).unwrap_err();
        assert!(
            error.contains("line 2: an object without `messages`"),
            "{error}"
        );
    }
}
