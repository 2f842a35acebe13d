//! Three groups on the embedded engine: 24, 24 and 600 clients with weights of 1, 2 and 1, and requests of the third that are ten
//! times as long. Compares first come, keys in turn and groups. Prints the shares:
//! `cargo test --test measured shares:: -- --nocapture`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::service::{Pool, wait_for};

/// Name, weight, keys, clients per key, and the length of a request.
const GROUPS: [(&str, u64, u32, u32, u32); 3] = [
    ("guests", 1, 1, 24, 1),
    ("physics", 2, 1, 24, 1),
    ("course", 1, 30, 20, 10),
];
/// Tokens of a short request.
const PROMPT: u32 = 40;
const OUTPUT: u32 = 6;
/// Tokens of a prompt in addition to its phrases, and of each phrase, with the tokenizer of the demo model.
const PROMPT_REST: u32 = 10;
const PHRASE: (&str, u32) = ("go on ", 3);
/// Tokens of all groups that are counted.
const COUNTED: u64 = 200_000;
const WAITING: usize = 600;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    FirstCome,
    Keys,
    Groups,
}

/// The tokens of prompts and responses by group, and the seconds that they took.
struct Served {
    tokens: [u64; 3],
    seconds: f64,
}

impl Served {
    /// (Σ x)² / (n Σ x²) of the tokens by weight x (Jain, Chiu and Hawe 1984).
    fn fairness(&self) -> f64 {
        let each = self.tokens.iter().zip(GROUPS);
        let each = each.map(|(tokens, (_, weight, ..))| *tokens as f64 / weight as f64);
        let (sum, squares) = each.fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
        sum * sum / (3.0 * squares)
    }

    fn tokens_per_second(&self) -> f64 {
        self.tokens.iter().sum::<u64>() as f64 / self.seconds
    }
}

fn model() -> [(String, String); 1] {
    let folder = support::root().join("demo/models/tiny-chat");
    let text = format!(
        "engine_config: {{model_id: tiny, type: CandleEngine, model_path: {folder:?}, engine_kwargs: {{threads: 1, concurrency: 4}}}}\ndeployment_config: {{max_ongoing_requests: 4}}\npool_config: {{keep_hot: 10m, queue_limit: 1000}}\n"
    );
    [("tiny.yaml".to_owned(), text)]
}

fn config(rule: Rule) -> String {
    let groups = GROUPS.map(|(name, weight, keys, ..)| {
        let keys: Vec<String> = (0..keys).map(|nth| format!("{name}-{nth}")).collect();
        format!("{name}: {{weight: {weight}, keys: [{}]}}", keys.join(", "))
    });
    let groups = match rule {
        Rule::Groups => format!("groups: {{{}}}\n", groups.join(", ")),
        _ => String::new(),
    };
    format!("auth: {{inference: key}}\n{groups}")
}

/// Tokens of a request of this length. Streams show when the first token comes: from them the pool measures the cost of tokens. `None` if the service has ended.
fn tokens(address: &str, key: &str, length: u32, nth: u64) -> Option<u64> {
    // Different first words, and the same ratio of prompt and output: service is in proportion to all tokens.
    let phrases = (PROMPT * length - PROMPT_REST) / PHRASE.1;
    let words = format!("{} {}", nth % 100, PHRASE.0.repeat(phrases as usize));
    let body = json!({"model": "tiny", "max_tokens": OUTPUT * length, "ignore_eos": true, "stream": true, "stream_options": {"include_usage": true},
        "messages": [{"role": "user", "content": words}]})
    .to_string();
    let mut socket = TcpStream::connect(address).ok()?;
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all((head + &body).as_bytes()).ok()?;
    let mut text = String::new();
    socket.read_to_string(&mut text).ok()?;
    let (_, usage) = text.rsplit_once("\"total_tokens\":")?;
    let digits = usage
        .split(|letter: char| !letter.is_ascii_digit())
        .next()?;
    digits.parse().ok()
}

#[expect(clippy::disallowed_methods, reason = "throughput in real time")]
fn play(rule: Rule) -> Served {
    let pool = Pool::with_models(&model(), &config(rule));
    let key = |name: &str| {
        let (status, made) = pool.new_key(name);
        assert_eq!(status, 200, "{made}");
        made["key"].as_str().unwrap().to_owned()
    };
    let one = key("one");
    let mut clients = Vec::new();
    for (group, (name, _, keys, per_key, length)) in GROUPS.into_iter().enumerate() {
        for nth in 0..keys {
            let key = match rule {
                Rule::FirstCome => one.clone(),
                _ => key(&format!("{name}-{nth}")),
            };
            clients.extend((0..per_key).map(|_| (group, key.clone(), length)));
        }
    }
    let address = pool.address().to_owned();
    // The costs of tokens are measured from the first requests.
    for (nth, length) in [1, 10, 1, 10, 1, 10, 1, 10].into_iter().enumerate() {
        tokens(&address, &one, length, nth as u64).expect("a response");
    }
    let (is_counted, has_ended) = (AtomicBool::new(false), AtomicBool::new(false));
    let served = GROUPS.map(|_| AtomicU64::new(0));
    let sent = AtomicU64::new(100);
    let total = || {
        let groups = served.iter();
        groups.map(|of| of.load(Ordering::Relaxed)).sum::<u64>()
    };
    let mut took = Duration::ZERO;
    thread::scope(|scope| {
        for (group, key, length) in &clients {
            scope.spawn(|| {
                while !has_ended.load(Ordering::Relaxed) {
                    let nth = sent.fetch_add(1, Ordering::Relaxed);
                    let Some(tokens) = tokens(&address, key, *length, nth) else {
                        assert!(has_ended.load(Ordering::Relaxed), "no response");
                        return;
                    };
                    if is_counted.load(Ordering::Relaxed) {
                        served[*group].fetch_add(tokens, Ordering::Relaxed);
                    }
                }
            });
        }
        wait_for("the clients of the course", || waiting(&pool) >= WAITING);
        let began = Instant::now();
        is_counted.store(true, Ordering::Relaxed);
        wait_for("enough tokens", || total() >= COUNTED);
        is_counted.store(false, Ordering::Relaxed);
        took = began.elapsed();
        has_ended.store(true, Ordering::Relaxed);
        pool.terminate();
    });
    Served {
        tokens: served.map(AtomicU64::into_inner),
        seconds: took.as_secs_f64(),
    }
}

fn waiting(pool: &Pool) -> usize {
    let (status, queue) = pool.admin("GET", "/llm/admin/queue", &Value::Null);
    assert_eq!(status, 200, "{queue}");
    queue["waiting"].as_array().map_or(0, Vec::len)
}

#[test]
fn f1_groups_on_the_embedded_engine_get_their_weights_in_tokens() {
    let _alone = super::ALONE.blocking_lock();
    let [first_come, keys, groups] = [Rule::FirstCome, Rule::Keys, Rule::Groups].map(|rule| {
        let served = play(rule);
        println!(
            "{rule:?}: guests {}, physics {}, course {} tokens, fairness {:.4}, {:.0} tokens/s",
            served.tokens[0],
            served.tokens[1],
            served.tokens[2],
            served.fairness(),
            served.tokens_per_second()
        );
        served
    });
    for unfair in [&first_come, &keys] {
        assert!(unfair.fairness() < 0.9, "{}", unfair.fairness());
    }
    assert!(groups.fairness() >= 0.99, "{}", groups.fairness());
    // Groups serve more short requests than first come does. Each has its own connection and start, so a token costs more.
    let ratio = groups.tokens_per_second() / first_come.tokens_per_second();
    assert!(ratio >= 0.5, "{ratio:.3} of the throughput of first come");
}
