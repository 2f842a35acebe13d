//! Streams of text, of reasoning and of a tool call in every API, and the processor time that the pool needs per token. The client
//! reads without parsing to measure only the pool.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};
use support::service::Pool;
use support::stub::stub_engine;

/// Tokens of each stream.
const TOKENS: usize = 100;
/// Simultaneous streams.
const CONNECTIONS: usize = 4;
const PATIENCE: Duration = Duration::from_secs(60);

/// Output of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    Reasoning,
    Call,
}

pub const KINDS: [Kind; 3] = [Kind::Text, Kind::Reasoning, Kind::Call];

/// An API: its name, its route, and the text at the end of a stream.
pub struct Api {
    pub name: &'static str,
    path: &'static str,
    end: &'static str,
}

const fn api(name: &'static str, path: &'static str, end: &'static str) -> Api {
    Api { name, path, end }
}

/// The first is the baseline for the others.
pub const APIS: [Api; 5] = [
    api("OpenAI chat", "/v1/chat/completions", "[DONE]"),
    api("Anthropic messages", "/v1/messages", "message_stop"),
    api("Responses", "/v1/responses", "response.completed"),
    api(
        "Responses, `store: true`",
        "/v1/responses",
        "response.completed",
    ),
    api("Ollama chat", "/api/chat", "\"done\":true"),
];

impl Kind {
    fn model(self) -> &'static str {
        match self {
            Kind::Text => "speaks",
            Kind::Reasoning => "thinks",
            Kind::Call => "calls",
        }
    }

    fn flags(self) -> Vec<String> {
        let words = vec!["word"; TOKENS].join(" ");
        match self {
            Kind::Text => vec!["--tokens".to_owned(), TOKENS.to_string()],
            Kind::Reasoning => vec![
                "--tokens".to_owned(),
                "1".to_owned(),
                "--reasoning".to_owned(),
                words,
            ],
            Kind::Call => {
                let arguments = json!({ "words": words }).to_string();
                let pieces = TOKENS.to_string();
                vec![
                    "--arguments".to_owned(),
                    arguments,
                    "--argument-pieces".to_owned(),
                    pieces,
                ]
            }
        }
    }
}

/// A pool with a model for each kind of stream.
pub fn pool() -> Pool {
    let model = |kind: &Kind| {
        let flags: Vec<String> = kind
            .flags()
            .iter()
            .map(|flag| format!(", {flag:?}"))
            .collect();
        let text = format!(
            "engine_config:\n  model_id: {}\n  type: CommandEngine\n  listen: port\n  command: [{:?}, --port, \"{{{{ port }}}}\"{}]\npool_config: {{memory_gib: 0.5, keep_hot: 1h}}\n",
            kind.model(),
            stub_engine().display().to_string(),
            flags.concat()
        );
        (format!("{}.yaml", kind.model()), text)
    };
    let files: Vec<(String, String)> = KINDS.iter().map(model).collect();
    Pool::with_models(&files, "compat: {ollama: true}\n")
}

impl Api {
    fn body(&self, kind: Kind) -> Value {
        let schema = json!({"type": "object", "properties": {"words": {"type": "string"}}});
        let function = json!({"name": "note", "parameters": schema});
        let ask = json!([{"role": "user", "content": "Go on."}]);
        let mut body = json!({"model": kind.model(), "stream": true});
        let tool = match self.path {
            "/v1/messages" => {
                body["max_tokens"] = json!(4000);
                if kind == Kind::Reasoning {
                    body["thinking"] = json!({"type": "enabled", "budget_tokens": 2000});
                }
                json!({"name": "note", "input_schema": schema})
            }
            "/v1/responses" => {
                body["store"] = json!(self.name.contains("true"));
                json!({"type": "function", "name": "note", "parameters": schema})
            }
            _ => json!({"type": "function", "function": function}),
        };
        let field = if self.path == "/v1/responses" {
            "input"
        } else {
            "messages"
        };
        body[field] = ask;
        if kind == Kind::Call {
            body["tools"] = json!([tool]);
        }
        body
    }

    /// Runs this many streams on kept connections, and returns the pool's processor time per token.
    pub fn microseconds_per_token(&self, pool: &Pool, kind: Kind, streams: usize) -> f64 {
        let body = self.body(kind).to_string();
        let request = format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.path,
            pool.address(),
            body.len()
        );
        let before = processor_time(pool.pid());
        let each = streams.div_ceil(CONNECTIONS);
        std::thread::scope(|scope| {
            for _ in 0..CONNECTIONS {
                scope.spawn(|| {
                    let mut socket = TcpStream::connect(pool.address()).expect("connected");
                    socket.set_nodelay(true).expect("a socket");
                    socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
                    for _ in 0..each {
                        socket.write_all(request.as_bytes()).expect("sent");
                        self.read(&mut socket);
                    }
                });
            }
        });
        let spent = processor_time(pool.pid()) - before;
        spent.as_secs_f64() * 1e6 / (each * CONNECTIONS * TOKENS) as f64
    }

    /// Reads a stream to its last chunk.
    fn read(&self, socket: &mut TcpStream) {
        let (mut response, mut part) = (Vec::new(), [0; 16 << 10]);
        while !response.ends_with(b"\r\n0\r\n\r\n") {
            let length = socket.read(&mut part).expect("a response");
            response.extend_from_slice(&part[..length]);
            let is_well =
                length > 0 && response.starts_with(&b"HTTP/1.1 200"[..response.len().min(12)]);
            let so_far = || String::from_utf8_lossy(&response).into_owned();
            assert!(is_well, "{}: {}", self.name, so_far());
        }
        let text = String::from_utf8_lossy(&response);
        assert!(text.contains(self.end), "{}: {text}", self.name);
    }
}

/// User and system time of a process so far; proc(5) has them in ticks of 10 ms.
fn processor_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let (_, fields) = stat.rsplit_once(')').expect("a name in brackets");
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks = ticks.filter_map(|field| field.parse::<u64>().ok());
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

/// Microseconds per token by API and kind: medians over rounds that run every combination once.
pub fn table(pool: &Pool, rounds: usize, streams: usize) -> Vec<[f64; KINDS.len()]> {
    let mut all = vec![[const { Vec::new() }; KINDS.len()]; APIS.len()];
    for round in 0..=rounds {
        for (api, row) in APIS.iter().zip(&mut all) {
            for (kind, cell) in KINDS.iter().zip(row) {
                let found = api.microseconds_per_token(pool, *kind, streams);
                // The first round loads models and warms connections.
                if round > 0 {
                    cell.push(found);
                }
            }
        }
    }
    let median = |mut cell: Vec<f64>| {
        cell.sort_by(f64::total_cmp);
        cell[cell.len() / 2]
    };
    all.into_iter().map(|row| row.map(median)).collect()
}

/// The table in docs/internals/benchmarks.md: times, and their ratio to text in OpenAI's chat.
pub fn printed(table: &[[f64; KINDS.len()]]) -> String {
    let mut text = "| API | text | reasoning | tool call |\n|---|---|---|---|\n".to_owned();
    let plain = table[0][0];
    for (api, row) in APIS.iter().zip(table) {
        let cells: Vec<String> = row
            .iter()
            .map(|found| format!("{found:.1} ({:.2} ×)", found / plain))
            .collect();
        text.push_str(&format!("| {} | {} |\n", api.name, cells.join(" | ")));
    }
    text
}
