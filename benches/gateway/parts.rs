//! The parts of the gateway bench: plain responses, streams, the cost of a token, idle streams, APIs. Each part except the last
//! runs `model-pool bench` against every place in turn and reports medians over the rounds, as text and as JSON.
//! One file because the parts share the rounds and the form of their results.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::dialects::{APIS, pool, printed, table};
use crate::servers::{Engine, MODEL, Server, cpu_of, machine_cpu, own_cpu};

/// The amount of work.
pub struct Scale {
    pub rounds: usize,
    seconds: f64,
    idle_streams: u64,
    /// The number of tokens of each paced stream.
    pub paced_tokens: u64,
}

impl Scale {
    pub const QUICK: Scale = Scale {
        rounds: 3,
        seconds: 0.8,
        idle_streams: 10_000,
        paced_tokens: 200,
    };
    pub const FULL: Scale = Scale {
        rounds: 7,
        seconds: 3.0,
        idle_streams: 10_000,
        paced_tokens: 500,
    };
}

/// A server that can be measured.
pub struct MeasuredServer {
    name: String,
    url: String,
    /// `None` for the engine itself.
    pub server: Option<Server>,
    engine: Engine,
}

/// The processor time used so far.
struct CpuTime {
    server: Duration,
    /// The load generator and the engine.
    ends: Duration,
    machine: Option<Duration>,
}

impl MeasuredServer {
    pub fn direct(engine: &Engine) -> MeasuredServer {
        MeasuredServer {
            name: "direct".to_owned(),
            url: format!("http://{}/v1", engine.address),
            server: None,
            engine: engine.clone(),
        }
    }

    pub fn new(server: Server, engine: &Engine) -> MeasuredServer {
        MeasuredServer {
            name: server.name.clone(),
            url: server.url(),
            server: Some(server),
            engine: engine.clone(),
        }
    }

    pub fn address(&self) -> &str {
        match &self.server {
            Some(server) => &server.address,
            None => &self.engine.address,
        }
    }

    fn spent(&self) -> CpuTime {
        CpuTime {
            server: self.server.as_ref().map_or(Duration::ZERO, Server::cpu),
            ends: own_cpu() + cpu_of(self.engine.pid),
            machine: machine_cpu(),
        }
    }

    /// Adds the processor time used to a result with its `requests` and `tokens`: of the server, and of the entire machine minus
    /// the generator and the engine.
    pub fn measured(&self, run: impl FnOnce() -> Value) -> Value {
        let before = self.spent();
        let mut result = run();
        let after = self.spent();
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        let ends = us(after.ends.saturating_sub(before.ends));
        let mut each = |name: &str, spent: f64| {
            for (of, count) in [("request", "requests"), ("token", "tokens")] {
                let count = result[count].as_f64().unwrap_or(1.0).max(1.0);
                result[format!("{name}_us_per_{of}")] = json!(spent / count);
            }
        };
        each("cpu", us(after.server.saturating_sub(before.server)));
        if let (Some(before), Some(after)) = (before.machine, after.machine) {
            each("machine", us(after.saturating_sub(before)) - ends);
        }
        result
    }

    /// A run of `model-pool bench`.
    fn bench(&self, words: &[&str]) -> Value {
        self.measured(|| {
            let output = Command::new(env!("CARGO_BIN_EXE_model-pool"))
                .args(["bench", "--url", &self.url, "--model", MODEL, "--json"])
                .args(words)
                .env_remove("MODEL_POOL_KEY")
                .output()
                .expect("model-pool bench runs");
            assert!(
                output.status.success(),
                "{}: {}{}",
                self.name,
                String::from_utf8_lossy(&output.stderr),
                String::from_utf8_lossy(&output.stdout)
            );
            serde_json::from_slice(&output.stdout).expect("it writes JSON")
        })
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

/// A number of a result, by JSON pointer such as `/latency_us/p50`.
pub fn number(told: &Value, pointer: &str) -> f64 {
    told.pointer(pointer)
        .and_then(Value::as_f64)
        .unwrap_or(f64::NAN)
}

/// A name, its pointer in a result, and whether the engine's own share is subtracted.
pub type Column = (&'static str, &'static str, bool);

/// Results by place and round.
pub struct Rounds(Vec<Vec<Value>>);

impl Rounds {
    fn new(places: &[MeasuredServer], rounds: usize, words: &[&str]) -> Rounds {
        // The first run on each place warms connections, caches and page tables.
        for place in places {
            let mut short = words.to_vec();
            if let Some(at) = short.iter().position(|word| *word == "--duration") {
                short[at + 1] = "200ms";
                place.bench(&short);
            }
        }
        Rounds::by(places, rounds, |place| place.bench(words))
    }

    /// Runs each place once per round.
    pub fn by(
        places: &[MeasuredServer],
        rounds: usize,
        mut once: impl FnMut(&MeasuredServer) -> Value,
    ) -> Rounds {
        let mut results = vec![Vec::new(); places.len()];
        for round in 0..rounds {
            for nth in 0..places.len() {
                // The places take turns to go first, so none always follows the busiest.
                let nth = (nth + round) % places.len();
                results[nth].push(once(&places[nth]));
            }
        }
        Rounds(results)
    }

    fn median(&self, place: usize, pointer: &str) -> f64 {
        median(
            self.0[place]
                .iter()
                .map(|result| number(result, pointer))
                .collect(),
        )
    }

    /// The excess over a direct request to the engine in the same round.
    fn added(&self, place: usize, pointer: &str) -> f64 {
        let pairs = self.0[place].iter().zip(&self.0[0]);
        median(
            pairs
                .map(|(own, direct)| number(own, pointer) - number(direct, pointer))
                .collect(),
        )
    }

    /// One line per place, and the same numbers by name.
    pub fn told(&self, places: &[MeasuredServer], columns: &[Column]) -> Value {
        let mut all = Map::new();
        for (nth, place) in places.iter().enumerate() {
            let mut line = format!("  {:<9}", place.name);
            let mut numbers = Map::new();
            for (name, pointer, added) in columns {
                let is_cpu = pointer.starts_with("/cpu");
                if nth == 0 && (*added || is_cpu) {
                    continue;
                }
                let value = if *added {
                    self.added(nth, pointer)
                } else {
                    self.median(nth, pointer)
                };
                // A value that this machine does not report, or this part does not have.
                if value.is_nan() {
                    continue;
                }
                line.push_str(&format!("  {name} {value:.1}"));
                let key = name.replace([' ', '.'], "_").replace('/', "_per_");
                numbers.insert(key, json!(value));
            }
            println!("{line}");
            all.insert(place.name.clone(), Value::Object(numbers));
        }
        Value::Object(all)
    }
}

/// Writes a file for `--prompts`.
fn prompts(line: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("prompts.jsonl");
    std::fs::write(&file, line).expect("a new file");
    let file = file.display().to_string();
    (folder, file)
}

/// The columns of non-streaming responses.
const COMPLETE: [Column; 7] = [
    ("requests/s", "/requests_per_second", false),
    ("p50", "/latency_us/p50", false),
    ("p99", "/latency_us/p99", false),
    ("added p50", "/latency_us/p50", true),
    ("added p99", "/latency_us/p99", true),
    ("cpu/request", "/cpu_us_per_request", false),
    ("machine/request", "/machine_us_per_request", true),
];

/// Non-streaming responses: short and long ones in a closed loop, and short ones at fixed due times.
pub fn plain(places: &[MeasuredServer], scale: &Scale) -> Value {
    let mut all = Map::new();
    let time = format!("{}ms", (scale.seconds * 1000.0) as u64);
    for tokens in PLAIN_TOKENS {
        for connections in PLAIN_CONNECTIONS {
            println!("plain answers of {tokens} tokens, {connections} connections (times in us):");
            let words = ["--connections", connections, "--duration", &time];
            let words = [&words[..], &["--max-tokens", tokens]].concat();
            let rounds = Rounds::new(places, scale.rounds, &words);
            let name = format!("{tokens}x{connections}");
            all.insert(name, rounds.told(places, &COMPLETE));
        }
    }
    println!("plain answers of 16 tokens, {OPEN_RATE} a second in an open loop (times in us):");
    let words = ["--rate", OPEN_RATE, "--duration", &time];
    let words = [&words[..], &["--max-tokens", "16"]].concat();
    let rounds = Rounds::new(places, scale.rounds, &words);
    let late = ("sent late p99", "/late_us/p99", false);
    let columns = [&COMPLETE[..], &[late]].concat();
    all.insert("open".to_owned(), rounds.told(places, &columns));
    Value::Object(all)
}

pub const PLAIN_TOKENS: [&str; 2] = ["16", "500"];
pub const PLAIN_CONNECTIONS: [&str; 3] = ["1", "16", "256"];
/// The number of requests per second that every place answers in time.
pub const OPEN_RATE: &str = "1000";

/// Streams of 16 tokens on one kept connection and on 64: the wait for the first token.
pub fn streams(places: &[MeasuredServer], scale: &Scale) -> Value {
    let time = format!("{}ms", (scale.seconds * 2000.0) as u64);
    let mut all = Map::new();
    for connections in STREAM_CONNECTIONS {
        println!("streams of 16 tokens, {connections} connections (times in us):");
        let words = ["--connections", connections, "--duration", &time];
        let words = [&words[..], &["--stream", "--max-tokens", "16"]].concat();
        let told = Rounds::new(places, scale.rounds, &words).told(
            places,
            &[
                ("requests/s", "/requests_per_second", false),
                ("first token p50", "/first_token_us/p50", false),
                ("added first token p50", "/first_token_us/p50", true),
                ("added first token p99", "/first_token_us/p99", true),
                ("p99", "/latency_us/p99", false),
                ("p99.9", "/latency_us/p99.9", false),
                ("longest", "/latency_us/max", false),
                ("cpu/request", "/cpu_us_per_request", false),
                ("machine/request", "/machine_us_per_request", true),
            ],
        );
        all.insert(connections.to_owned(), told);
    }
    Value::Object(all)
}

pub const STREAM_CONNECTIONS: [&str; 2] = ["1", "64"];

/// 64 streams with a token every 5 ms, and 16 streams as fast as their tokens are read.
pub fn tokens(places: &[MeasuredServer], scale: &Scale) -> Value {
    let columns = [
        ("tokens/s", "/tokens_per_second", false),
        ("between tokens p50", "/between_tokens_us/p50", false),
        ("p99", "/between_tokens_us/p99", false),
        ("p99.9", "/between_tokens_us/p99.9", false),
        ("cpu/token", "/cpu_us_per_token", false),
        ("machine/token", "/machine_us_per_token", true),
    ];
    println!("64 streams, a token every 5 ms (times in us):");
    let (_folder, file) = prompts("{\"prompt\":\"hello\",\"seed\":5,\"max_tokens\":100}\n");
    let requests = ((scale.seconds * 128.0) as u64).max(64).to_string();
    let words = ["--connections", "64", "--requests", &requests];
    let words = [&words[..], &["--stream", "--prompts", &file]].concat();
    let paced = Rounds::new(places, scale.rounds.min(3), &words).told(places, &columns);
    println!("16 streams of 500 tokens, as fast as they are taken (times in us):");
    let time = format!("{}ms", (scale.seconds * 1000.0) as u64);
    let words = ["--connections", "16", "--duration", &time];
    let words = [&words[..], &["--stream", "--max-tokens", "500"]].concat();
    let flood = Rounds::new(places, scale.rounds, &words).told(places, &columns);
    json!({"paced": paced, "flood": flood})
}

/// The cost of a token in each API: of a text, of reasoning, of a tool call.
pub fn dialects(scale: &Scale) -> Value {
    println!("processor time of a token, us, compared with a text in OpenAI's chat:");
    let streams = (scale.seconds * 200.0) as usize;
    let found = table(&pool(), scale.rounds, streams);
    println!("{}", printed(&found));
    let rows = APIS.iter().zip(&found);
    let rows = rows.map(|(api, row)| (api.name.to_owned(), json!(row)));
    Value::Object(rows.collect())
}

/// Measures the memory of open streams without events.
pub fn idle(places: &[MeasuredServer], scale: &Scale, files: u64) -> Value {
    // A stream takes two connections of a proxy.
    let most = files.saturating_sub(200) / 2;
    let streams = scale.idle_streams.min(most);
    if streams < scale.idle_streams {
        println!(
            "{} idle streams need {} open files of the gateway, and {files} are allowed (`ulimit -Hn`): {streams} are held",
            scale.idle_streams,
            scale.idle_streams * 2 + 200
        );
    }
    let (_folder, file) = prompts("{\"prompt\":\"hello\",\"seed\":3600000,\"max_tokens\":2}\n");
    let mut all = Map::new();
    for (place, server) in places
        .iter()
        .filter_map(|place| Some((place, place.server.as_ref()?)))
    {
        let before = server.resident_bytes();
        let mut holder = Command::new(env!("CARGO_BIN_EXE_model-pool"))
            .args([
                "bench",
                "--url",
                &place.url,
                "--model",
                MODEL,
                "--timeout",
                "60s",
            ])
            .args(["--idle-streams", &streams.to_string(), "--prompts"])
            .arg(&file)
            .stdout(Stdio::piped())
            .stdin(Stdio::null())
            .spawn()
            .expect("model-pool bench runs");
        let mut said = BufReader::new(holder.stdout.take().expect("piped"));
        let mut line = String::new();
        let _ = said.read_line(&mut line);
        let open: u64 = line
            .split(' ')
            .next()
            .and_then(|word| word.parse().ok())
            .unwrap_or(0);
        let resident = server.resident_bytes();
        let cpu = server.cpu();
        std::thread::sleep(Duration::from_secs(2));
        let spent = (server.cpu() - cpu).as_secs_f64() / 2.0 * 100.0;
        let _ = holder.kill();
        let _ = holder.wait();
        let each = (resident.saturating_sub(before)) as f64 / open.max(1) as f64 / 1024.0;
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        println!(
            "idle streams: {:<9} {open} of {streams} open, {:.1} MiB resident ({:.1} MiB before), {each:.1} KiB each, {spent:.1} % of a core",
            place.name,
            mib(resident),
            mib(before)
        );
        let told = json!({"open": open, "resident_mib": mib(resident), "before_mib": mib(before), "kib_each": each, "cpu_percent": spent});
        all.insert(place.name.clone(), told);
        crate::servers::wait_for("the streams to be closed", || {
            server.pids().into_iter().map(open_files).sum::<usize>() < 500
        });
    }
    Value::Object(all)
}

fn open_files(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}
