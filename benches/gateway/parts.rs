//! The parts of the gateway bench: plain answers, streams, the cost of a token, idle streams, APIs. Each but the last runs
//! `model-pool bench` against every place in turn and gives medians over the rounds, as text and as JSON.
//! One file because the parts share the rounds and the form of their results.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::dialects::{APIS, pool, printed, table};
use crate::servers::{MODEL, Server};

/// How much is done.
pub struct Scale {
    rounds: usize,
    seconds: f64,
    idle_streams: u64,
}

impl Scale {
    pub const QUICK: Scale = Scale {
        rounds: 3,
        seconds: 0.8,
        idle_streams: 10_000,
    };
    pub const FULL: Scale = Scale {
        rounds: 7,
        seconds: 3.0,
        idle_streams: 10_000,
    };
}

/// Somewhere that can be asked.
pub struct Place {
    name: String,
    url: String,
    /// Not known of the engine itself.
    server: Option<Server>,
}

impl Place {
    pub fn direct(engine: &str) -> Place {
        Place {
            name: "direct".to_owned(),
            url: format!("http://{engine}/v1"),
            server: None,
        }
    }

    pub fn of(server: Server) -> Place {
        Place {
            name: server.name.clone(),
            url: server.url(),
            server: Some(server),
        }
    }

    fn cpu(&self) -> Duration {
        self.server.as_ref().map_or(Duration::ZERO, Server::cpu)
    }

    /// One bench: its result, with the processor time of the server for each request and token.
    fn bench(&self, words: &[&str]) -> Value {
        let before = self.cpu();
        let output = Command::new(env!("CARGO_BIN_EXE_model-pool"))
            .args(["bench", "--url", &self.url, "--model", MODEL, "--json"])
            .args(words)
            .env_remove("MODEL_POOL_KEY")
            .output()
            .expect("model-pool bench runs");
        let spent = self.cpu() - before;
        assert!(
            output.status.success(),
            "{}: {}{}",
            self.name,
            String::from_utf8_lossy(&output.stderr),
            String::from_utf8_lossy(&output.stdout)
        );
        let mut told: Value = serde_json::from_slice(&output.stdout).expect("it writes JSON");
        let spent = spent.as_secs_f64() * 1e6;
        let per = |count: &Value| spent / count.as_f64().unwrap_or(1.0).max(1.0);
        told["cpu_us_per_request"] = json!(per(&told["requests"]));
        told["cpu_us_per_token"] = json!(per(&told["tokens"]));
        told
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

/// A number of a result: `/latency_us/p50`.
fn number(told: &Value, pointer: &str) -> f64 {
    told.pointer(pointer)
        .and_then(Value::as_f64)
        .unwrap_or(f64::NAN)
}

/// Results by place and round.
struct Rounds(Vec<Vec<Value>>);

impl Rounds {
    fn of(places: &[Place], rounds: usize, words: &[&str]) -> Rounds {
        let mut results = vec![Vec::new(); places.len()];
        // The first look at each warms connections, caches and page tables.
        for place in places {
            let mut short = words.to_vec();
            if let Some(at) = short.iter().position(|word| *word == "--duration") {
                short[at + 1] = "200ms";
                place.bench(&short);
            }
        }
        for round in 0..rounds {
            for nth in 0..places.len() {
                // Nobody is always the one after the busiest.
                let nth = (nth + round) % places.len();
                results[nth].push(places[nth].bench(words));
            }
        }
        Rounds(results)
    }

    fn median(&self, place: usize, pointer: &str) -> f64 {
        median(self.0[place].iter().map(|it| number(it, pointer)).collect())
    }

    /// Beyond what asking the engine itself took in the same round.
    fn added(&self, place: usize, pointer: &str) -> f64 {
        let pairs = self.0[place].iter().zip(&self.0[0]);
        median(
            pairs
                .map(|(own, direct)| number(own, pointer) - number(direct, pointer))
                .collect(),
        )
    }

    /// One line for each place, and the same numbers by name.
    fn told(&self, places: &[Place], columns: &[(&str, &str, bool)]) -> Value {
        let mut all = Map::new();
        for (nth, place) in places.iter().enumerate() {
            let mut line = format!("  {:<9}", place.name);
            let mut numbers = Map::new();
            for (name, pointer, added) in columns {
                let is_cpu = pointer.starts_with("/cpu");
                if nth == 0 && (*added || is_cpu) {
                    continue;
                }
                let value = match added {
                    true => self.added(nth, pointer),
                    false => self.median(nth, pointer),
                };
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

/// A file for `--prompts`.
fn prompts(line: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("prompts.jsonl");
    std::fs::write(&file, line).expect("a new file");
    let file = file.display().to_string();
    (folder, file)
}

/// The columns of answers that are no streams.
const COMPLETE: [(&str, &str, bool); 6] = [
    ("requests/s", "/requests_per_second", false),
    ("p50", "/latency_us/p50", false),
    ("p99", "/latency_us/p99", false),
    ("added p50", "/latency_us/p50", true),
    ("added p99", "/latency_us/p99", true),
    ("cpu/request", "/cpu_us_per_request", false),
];

/// Complete answers: short and long ones in a closed loop, and short ones that are due at times of their own.
pub fn plain(places: &[Place], scale: &Scale) -> Value {
    let mut all = Map::new();
    let time = format!("{}ms", (scale.seconds * 1000.0) as u64);
    for tokens in PLAIN_TOKENS {
        for connections in PLAIN_CONNECTIONS {
            println!("plain answers of {tokens} tokens, {connections} connections (times in us):");
            let words = ["--connections", connections, "--duration", &time];
            let words = [&words[..], &["--max-tokens", tokens]].concat();
            let rounds = Rounds::of(places, scale.rounds, &words);
            let name = format!("{tokens}x{connections}");
            all.insert(name, rounds.told(places, &COMPLETE));
        }
    }
    println!("plain answers of 16 tokens, {OPEN_RATE} a second in an open loop (times in us):");
    let words = ["--rate", OPEN_RATE, "--duration", &time];
    let words = [&words[..], &["--max-tokens", "16"]].concat();
    let rounds = Rounds::of(places, scale.rounds, &words);
    all.insert("open".to_owned(), rounds.told(places, &COMPLETE));
    Value::Object(all)
}

const PLAIN_TOKENS: [&str; 2] = ["16", "500"];
const PLAIN_CONNECTIONS: [&str; 3] = ["1", "16", "256"];
/// Requests a second that every place answers in time.
const OPEN_RATE: &str = "1000";

/// Streams of 16 tokens on one kept connection and on 64: what the first token waits.
pub fn streams(places: &[Place], scale: &Scale) -> Value {
    let time = format!("{}ms", (scale.seconds * 2000.0) as u64);
    let mut all = Map::new();
    for connections in STREAM_CONNECTIONS {
        println!("streams of 16 tokens, {connections} connections (times in us):");
        let words = ["--connections", connections, "--duration", &time];
        let words = [&words[..], &["--stream", "--max-tokens", "16"]].concat();
        let told = Rounds::of(places, scale.rounds, &words).told(
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
            ],
        );
        all.insert(connections.to_owned(), told);
    }
    Value::Object(all)
}

const STREAM_CONNECTIONS: [&str; 2] = ["1", "64"];

/// 64 streams whose tokens come every 5 ms, and 16 whose tokens come as fast as they are taken.
pub fn tokens(places: &[Place], scale: &Scale) -> Value {
    let columns = [
        ("tokens/s", "/tokens_per_second", false),
        ("between tokens p50", "/between_tokens_us/p50", false),
        ("p99", "/between_tokens_us/p99", false),
        ("p99.9", "/between_tokens_us/p99.9", false),
        ("cpu/token", "/cpu_us_per_token", false),
    ];
    println!("64 streams, a token every 5 ms (times in us):");
    let (_folder, file) = prompts("{\"prompt\":\"hello\",\"seed\":5,\"max_tokens\":100}\n");
    let requests = ((scale.seconds * 128.0) as u64).max(64).to_string();
    let words = ["--connections", "64", "--requests", &requests];
    let words = [&words[..], &["--stream", "--prompts", &file]].concat();
    let paced = Rounds::of(places, scale.rounds.min(3), &words).told(places, &columns);
    println!("16 streams of 500 tokens, as fast as they are taken (times in us):");
    let time = format!("{}ms", (scale.seconds * 1000.0) as u64);
    let words = ["--connections", "16", "--duration", &time];
    let words = [&words[..], &["--stream", "--max-tokens", "500"]].concat();
    let flood = Rounds::of(places, scale.rounds, &words).told(places, &columns);
    json!({"paced": paced, "flood": flood})
}

/// What a token costs in each API: of a text, of a reasoning, of a tool's call.
pub fn dialects(scale: &Scale) -> Value {
    println!("processor time of a token, us, and beside a text in OpenAI's chat:");
    let streams = (scale.seconds * 200.0) as usize;
    let found = table(&pool(), scale.rounds, streams);
    println!("{}", printed(&found));
    let rows = APIS.iter().zip(&found);
    let rows = rows.map(|(api, row)| (api.name.to_owned(), json!(row)));
    Value::Object(rows.collect())
}

/// Open streams that say nothing: what each keeps in memory.
pub fn idle(places: &[Place], scale: &Scale, files: u64) -> Value {
    // A stream is two connections of whoever stands between.
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
        .filter_map(|it| Some((it, it.server.as_ref()?)))
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
            .and_then(|it| it.parse().ok())
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

/// What was measured beside what it should be.
pub fn aims(told: &Value) -> Value {
    let mut all = Vec::new();
    let mut aim = |what: String, found: f64, most: f64| {
        if found.is_nan() {
            return;
        }
        let met = if found <= most { "met" } else { "missed" };
        println!("aim {met}: {what}: {found:.2}, at most {most}");
        all.push(json!({"aim": what, "found": found, "most": most, "met": found <= most}));
    };
    // Beside nginx, in the same run.
    let over = |path: &str, name: &str| {
        let of = |place: &str| number(told, &format!("/{path}/{place}/{name}"));
        of("gateway") / of("nginx")
    };
    for (tokens, most) in PLAIN_TOKENS.into_iter().zip([2.0, 1.5]) {
        for connections in PLAIN_CONNECTIONS {
            aim(
                format!(
                    "plain, {tokens} tokens, {connections} connections: processor time of a request over nginx's"
                ),
                over(&format!("plain/{tokens}x{connections}"), "cpu_per_request"),
                most,
            );
        }
    }
    aim(
        "plain, 16 tokens, 1 connection: added p50 over nginx's".to_owned(),
        over("plain/16x1", "added_p50"),
        2.0,
    );
    for connections in STREAM_CONNECTIONS {
        aim(
            format!(
                "streams, {connections} connections: added time to first token p99 over nginx's"
            ),
            over(&format!("streams/{connections}"), "added_first_token_p99"),
            1.5,
        );
    }
    for (kind, most) in [("paced", 1.2), ("flood", 1.3)] {
        aim(
            format!("{kind} streams: processor time of a token over nginx's"),
            over(&format!("tokens/{kind}"), "cpu_per_token"),
            most,
        );
    }
    aim(
        "one connection that streams: p99.9, ms".to_owned(),
        number(told, "/streams/1/gateway/p99_9") / 1000.0,
        40.0,
    );
    aim(
        "memory with idle streams, MiB".to_owned(),
        number(told, "/idle/gateway/resident_mib"),
        250.0,
    );
    Value::Array(all)
}
