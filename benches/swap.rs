//! What a swap costs beside the engine's own time: two models of a real llama-server, asked in turn, through
//! the pool and through llama-server's own router, in the same rounds, because the machine may be shared.
//! `.ci/llama-server && cargo bench --bench swap`; docs/swapping.md has results.
//!
//! ```text
//! overhead = request to first byte − engine's own stop − engine's own start to ready − its own answer
//! ```
//!
//! The engine's own times are those of a process started with the words of the pool's own engine, on one
//! thread: more of them wait for each other in loops, and on a machine with few cores a start then takes
//! anything from 10 to 300 ms. Each swap is checked to have ended one process and started another.
//!
//! The last row is a model that sleeps: a double of vLLM, which falls asleep and wakes at once, so that the
//! whole of it is the pool's own.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use support::whole::Pool;

const ROUNDS: usize = 40;
const NAMES: [&str; 2] = ["a", "b"];
/// How often a start is asked whether it is ready, as the pool asks. Without a pause, asking would take the
/// processor from the engine that is measured.
const PAUSE: Duration = Duration::from_millis(1);

fn program() -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/llama/bin/llama-server");
    built.is_file().then_some(built)
}

/// What a llama-server is started with, but for its address.
struct Launch {
    words: Vec<String>,
    environment: Vec<(String, String)>,
}

impl Launch {
    /// As the only engine of this pool was started.
    fn of(pool: &Pool) -> Launch {
        let pid = *pool.engine_pids().first().expect("an engine is ready");
        let read = |name: &str| {
            let text = std::fs::read_to_string(format!("/proc/{pid}/{name}")).expect("it runs");
            let words = text.split('\0').filter(|word| !word.is_empty());
            words.map(str::to_owned).collect::<Vec<_>>()
        };
        let mut words = read("cmdline");
        words.remove(0);
        for address in ["--host", "--port"] {
            if let Some(at) = words.iter().position(|word| word == address) {
                words.drain(at..at + 2);
            }
        }
        let variables = read("environ").into_iter();
        let variables = variables.filter(|variable| variable.starts_with("LLAMA_ARG_"));
        let pair = |variable: String| {
            let (name, value) = variable.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        };
        Launch {
            words,
            environment: variables.filter_map(pair).collect(),
        }
    }

    /// The router, whose engines get the same context, slots and variables.
    fn router(models: &Path, engine: &Launch) -> Launch {
        let mut words = vec!["--models-dir".to_owned(), models.display().to_string()];
        words.extend(["--models-max", "1"].map(str::to_owned));
        for flag in [
            "--ctx-size",
            "--parallel",
            "--n-gpu-layers",
            "--threads",
            "--threads-batch",
        ] {
            let at = engine.words.iter().position(|word| word == flag);
            let at = at.expect("the pool writes it");
            words.extend(engine.words[at..at + 2].iter().cloned());
        }
        Launch {
            words,
            environment: engine.environment.clone(),
        }
    }
}

/// A llama-server that is stopped when dropped.
struct Server(Child, u16);

impl Server {
    fn start(program: &Path, launch: &Launch) -> Server {
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = free.local_addr().expect("bound").port();
        drop(free);
        let child = Command::new(program)
            .args(&launch.words)
            .args(["--host", "127.0.0.1", "--port", &port.to_string()])
            .envs(launch.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        Server(child, port)
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.1)
    }

    fn until_ready(&self) {
        while !matches!(
            exchange(&self.address(), "GET", "/health", ""),
            Some((200, ..))
        ) {
            std::thread::park_timeout(PAUSE);
        }
    }

    fn stop(mut self) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.0.id()).expect("a process"));
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let _ = self.0.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One request on a connection of its own: the status, and when the first byte of the body came.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn exchange(
    address: &str,
    method: &str,
    path: &str,
    body: &str,
) -> Option<(u16, Duration, String)> {
    let began = Instant::now();
    let mut socket = TcpStream::connect(address).ok()?;
    let length = body.len();
    write!(
        socket,
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .ok()?;
    let mut text = Vec::new();
    let mut first = None;
    let mut piece = [0; 4096];
    loop {
        match socket.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => {
                text.extend_from_slice(&piece[..count]);
                // Comments of the wait are no answer.
                let said = String::from_utf8_lossy(&text).contains("data: {");
                if first.is_none() && (said || method == "GET") {
                    first = Some(began.elapsed());
                }
            }
            Err(_) => return None,
        }
    }
    let text = String::from_utf8_lossy(&text).into_owned();
    let status = text.split(' ').nth(1)?.parse().ok()?;
    Some((status, first?, text))
}

/// From the request to the first byte of the answer.
fn ask(address: &str, model: &str) -> Duration {
    let body = format!(
        r#"{{"model":"{model}","stream":true,"max_tokens":2,"messages":[{{"role":"user","content":"Hi"}}]}}"#
    );
    let answer = exchange(address, "POST", "/v1/chat/completions", &body);
    let (status, first, text) = answer.expect("an answer");
    assert_eq!(status, 200, "{text}");
    first
}

/// What one engine takes by itself.
struct Own {
    start: f64,
    answer: f64,
    stop: f64,
}

impl Own {
    fn all(&self) -> f64 {
        self.start + self.answer + self.stop
    }

    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    fn measure(program: &Path, launch: &Launch) -> Own {
        let began = Instant::now();
        let server = Server::start(program, launch);
        server.until_ready();
        let start = milliseconds(began.elapsed());
        let answer = milliseconds(ask(&server.address(), "any"));
        let began = Instant::now();
        server.stop();
        let stop = milliseconds(began.elapsed());
        Own {
            start,
            answer,
            stop,
        }
    }
}

fn percentile(times: &[f64], hundredths: usize) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times[(times.len() - 1) * hundredths / 100]
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// A pool of both models, each of which takes so much of a device of 16 GiB.
fn pool(program: &Path, folder: &Path, gibibytes: u32) -> Pool {
    let model = |name: &str| {
        let text = format!(
            "engine_config:\n  model_id: {name}\n  type: LlamaCppEngine\n  model_path: {:?}\n  program: {:?}\n  max_total_tokens: 256\n  engine_kwargs: {{threads: 1, threads_batch: 1}}\npool_config: {{memory_gib: {gibibytes}, min_resident: 0s}}\n",
            folder.join(format!("{name}.gguf")).display().to_string(),
            program.display().to_string()
        );
        (format!("{name}.yaml"), text)
    };
    Pool::with_models(&NAMES.map(model), "")
}

/// Somebody unloads one while the other is asked for: there is room to start before the last one has gone.
fn ask_while_the_other_leaves(pool: &Pool, name: &str, leaving: &str) -> Duration {
    let key = pool.admin_key();
    std::thread::scope(|scope| {
        let unloading = scope.spawn(|| {
            let body = format!(r#"{{"model":"{leaving}","now":true}}"#);
            pool.request("POST", "/llm/admin/unload", &body, Some(&key))
        });
        let first = ask(pool.address(), name);
        let (status, text, _) = unloading.join().expect("an answer");
        assert_eq!(status, 200, "{text}");
        first
    })
}

/// A pool of two doubles of vLLM, one of which is awake at a time.
fn sleepers(folder: &Path) -> Pool {
    let weights = folder.join("weights");
    std::fs::create_dir(&weights).expect("a folder");
    let header = r#"{"w":{"dtype":"BF16","shape":[1024,512],"data_offsets":[0,1048576]}}"#;
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.resize(file.len() + (1 << 20), 0);
    std::fs::write(weights.join("model.safetensors"), file).expect("written");
    let config = r#"{"model_type":"llama","num_hidden_layers":2,"num_attention_heads":8,"num_key_value_heads":4,"hidden_size":128,"max_position_embeddings":1000}"#;
    std::fs::write(weights.join("config.json"), config).expect("written");
    let model = |name: &str| {
        let text = format!(
            "engine_config:\n  model_id: {name}\n  type: VLLMEngine\n  model_path: {:?}\n  program: {:?}\n  env: {{VLLM_DOUBLE_LOAD_MS: '1500', VLLM_DOUBLE_WEIGHTS_BYTES: '1048576'}}\npool_config: {{memory_gib: 10, min_resident: 0s, sleep: weights}}\n",
            weights.display().to_string(),
            support::double::vllm_double().display().to_string()
        );
        (format!("{name}.yaml"), text)
    };
    Pool::with_models(&NAMES.map(model), "")
}

fn main() {
    let Some(program) = program() else {
        println!("skipped: there is no llama-server; build one with .ci/llama-server");
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    for (seed, name) in NAMES.into_iter().enumerate() {
        support::tiny_gguf::write(&folder.path().join(format!("{name}.gguf")), seed as u64 + 1);
    }
    let one_fits = pool(&program, folder.path(), 10);
    let both_fit = pool(&program, folder.path(), 6);
    let launches = NAMES.map(|name| {
        ask(one_fits.address(), name);
        Launch::of(&one_fits)
    });
    ask(both_fit.address(), NAMES[1]);
    let asleep = sleepers(folder.path());
    for name in NAMES {
        ask(asleep.address(), name);
    }
    let router = Server::start(&program, &Launch::router(folder.path(), &launches[0]));
    router.until_ready();
    for name in NAMES {
        ask(&router.address(), name);
    }
    let mut own = Vec::new();
    let mut swaps: [(&str, Vec<f64>); 4] = [
        ("model-pool, one fits", Vec::new()),
        ("model-pool, both fit", Vec::new()),
        ("llama-server's router", Vec::new()),
        ("model-pool, both sleep", Vec::new()),
    ];
    for round in 0..ROUNDS {
        let (name, last) = (NAMES[round % 2], NAMES[(round + 1) % 2]);
        own.push(Own::measure(&program, &launches[round % 2]));
        let (before, sleepers) = (one_fits.engine_pids(), asleep.engine_pids());
        let times = [
            ask(one_fits.address(), name),
            ask_while_the_other_leaves(&both_fit, name, last),
            ask(&router.address(), name),
            ask(asleep.address(), name),
        ];
        support::whole::wait_for("the last engine to be gone", || {
            one_fits.engine_pids().len() == 1
        });
        assert_ne!(one_fits.engine_pids(), before, "no engine was started");
        assert_eq!(asleep.engine_pids(), sleepers, "an engine was started");
        for ((_, swaps), time) in swaps.iter_mut().zip(times) {
            swaps.push(milliseconds(time));
        }
    }
    report(&own, &swaps);
}

/// Overheads are taken round by round, so that a busy moment of the machine counts on both sides.
fn report(own: &[Own], swaps: &[(&str, Vec<f64>)]) {
    let median = |of: fn(&Own) -> f64| {
        let times: Vec<f64> = own.iter().map(of).collect();
        percentile(&times, 50)
    };
    let alone = median(Own::all);
    println!(
        "{ROUNDS} swaps; the engine by itself, medians: start to ready {:.1} ms, first byte of an answer {:.1} ms, stop {:.1} ms, all {alone:.1} ms",
        median(|own| own.start),
        median(|own| own.answer),
        median(|own| own.stop),
    );
    println!("| swap | p50 ms | p90 ms | overhead p50 ms | overhead p90 ms | engine's own × |");
    println!("|---|---:|---:|---:|---:|---:|");
    for (nth, (who, times)) in swaps.iter().enumerate() {
        // Sleepers are other engines, which take no time of their own.
        let is_asleep = nth + 1 == swaps.len();
        let own_of = |own: &Own| if is_asleep { 0.0 } else { own.all() };
        let beyond = times.iter().zip(own).map(|(time, own)| time - own_of(own));
        let beyond: Vec<f64> = beyond.collect();
        let half = percentile(times, 50);
        println!(
            "| {who} | {half:.1} | {:.1} | {:.1} | {:.1} | {:.2} |",
            percentile(times, 90),
            percentile(&beyond, 50),
            percentile(&beyond, 90),
            half / alone
        );
    }
}
