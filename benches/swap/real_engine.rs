//! Requests alternate between two models of a real llama-server, through the pool and through llama-server's own router, in the
//! same rounds, because the machine may be shared.
//!
//! The engine's own times are from a process started with the arguments of the pool's engine, on a single thread: several threads
//! would wait for each other in loops, and on a machine with few cores a start then takes anything from 10 to 300 ms. Each swap is
//! checked to have ended one process and started another.
//!
//! The last row is a sleeping model: a double of vLLM, which falls asleep and wakes immediately, so its entire time is the pool's
//! own.

use std::path::{Path, PathBuf};
use std::time::Duration;

use support::service::Pool;

use crate::engine::{EngineTimes, Launch, NAMES, Server, ask, milliseconds, percentile};

const ROUNDS: usize = 40;

fn program() -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/llama/bin/llama-server");
    built.is_file().then_some(built)
}

impl Launch {
    /// The command line of this pool's only engine.
    fn new(pool: &Pool) -> Launch {
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
        words.extend(LOOPBACK.map(str::to_owned));
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

    /// The router, whose engines get the same context, slots and environment.
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
        words.extend(LOOPBACK.map(str::to_owned));
        Launch {
            words,
            environment: engine.environment.clone(),
        }
    }
}

const LOOPBACK: [&str; 2] = ["--host", "127.0.0.1"];

/// A pool of both models, each of which takes this much of a device of 16 GiB.
fn pool(program: &Path, folder: &Path, gibibytes: u32) -> Pool {
    let model = |name: &str| {
        let text = format!(
            "engine_config:\n  model_id: {name}\n  type: LlamaCppEngine\n  model_path: {:?}\n  program: {:?}\n  max_total_tokens: 256\n  engine_kwargs: {{threads: 1, threads_batch: 1}}\npool_config: {{memory_gib: {gibibytes}}}\n",
            folder.join(format!("{name}.gguf")).display().to_string(),
            program.display().to_string()
        );
        (format!("{name}.yaml"), text)
    };
    Pool::with_models(&NAMES.map(model), "")
}

/// An administrator unloads one model while the other is requested. There is room to start before the first has gone.
fn ask_while_the_other_leaves(pool: &Pool, name: &str, leaving: &str) -> Duration {
    let key = pool.admin_key();
    std::thread::scope(|scope| {
        let unloading = scope.spawn(|| {
            let body = format!(r#"{{"model":"{leaving}","now":true}}"#);
            pool.request("POST", "/llm/admin/unload", &body, Some(&key))
        });
        let first = ask(pool.address(), name);
        let (status, text, _) = unloading.join().expect("a response");
        assert_eq!(status, 200, "{text}");
        first
    })
}

/// A pool of two doubles of vLLM. Only one model is awake at a time.
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
            "engine_config:\n  model_id: {name}\n  type: VLLMEngine\n  model_path: {:?}\n  program: {:?}\n  env: {{VLLM_DOUBLE_LOAD_MS: '1500', VLLM_DOUBLE_WEIGHTS_BYTES: '1048576'}}\npool_config: {{memory_gib: 10, sleep: weights}}\n",
            weights.display().to_string(),
            support::double::vllm_double().display().to_string()
        );
        (format!("{name}.yaml"), text)
    };
    Pool::with_models(&NAMES.map(model), "")
}

/// Prints a table; skipped without a llama-server.
pub fn run() {
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
        Launch::new(&one_fits)
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
        own.push(EngineTimes::measure(&program, &launches[round % 2], "any"));
        let (before, sleepers) = (one_fits.engine_pids(), asleep.engine_pids());
        let times = [
            ask(one_fits.address(), name),
            ask_while_the_other_leaves(&both_fit, name, last),
            ask(&router.address(), name),
            ask(asleep.address(), name),
        ];
        support::service::wait_for("the last engine to be gone", || {
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

/// Overheads are paired by round, to let a busy period of the machine affect both sides.
fn report(own: &[EngineTimes], swaps: &[(&str, Vec<f64>)]) {
    let median = |of: fn(&EngineTimes) -> f64| {
        let times: Vec<f64> = own.iter().map(of).collect();
        percentile(&times, 50)
    };
    let alone = median(EngineTimes::all);
    println!(
        "{ROUNDS} swaps; the engine alone, medians: start to ready {:.1} ms, first byte of an answer {:.1} ms, stop {:.1} ms, all {alone:.1} ms",
        median(|own| own.start),
        median(|own| own.response),
        median(|own| own.stop),
    );
    println!("| swap | p50 ms | p90 ms | overhead p50 ms | overhead p90 ms | engine's own × |");
    println!("|---|---:|---:|---:|---:|---:|");
    for (nth, (who, times)) in swaps.iter().enumerate() {
        // Sleepers are other engines and take no time themselves.
        let is_asleep = nth + 1 == swaps.len();
        let own_of = |own: &EngineTimes| if is_asleep { 0.0 } else { own.all() };
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
