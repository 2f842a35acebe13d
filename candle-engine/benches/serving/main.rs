//! Compares the embedded engine with llama-server and `transformers`, on random models of 110 M and 1.1 B parameters, with the same
//! files and threads. Engines alternate within each round, because the machine may be shared. docs/internals/engine-speed.md
//! describes how to run it, and has results. Only the order is defined here; the measurements are in `measures`.
//!
//! `cargo bench -p candle-engine --bench serving -- [--shapes 110m,1.1b] [--files q8_0,q4_k_m,bf16] [--engines
//! ours,llama,transformers] [--rounds N] [--threads N] [--tokens N] [--quick] [--json FILE]`; files are also f16 and f32, and for
//! ours bf16+q8_0 and bf16+q4_k, which are BF16 quantised at load.

mod client;
mod gguf;
mod machine;
mod measures;
mod random_model;
mod report;
mod servers;
mod speculation;
mod tokens;

use measures::{DECODES, Lengths, Machine, Measure, PREFILLS, Prompts};
use random_model::{SHAPES, Shape};
use report::{Results, Subject};
use safetensors::Dtype;
use serde_json::{Map, Value, json};
use servers::{Engine, Model};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

struct Args {
    shapes: Vec<String>,
    files: Vec<String>,
    engines: Vec<Engine>,
    rounds: usize,
    threads: usize,
    lengths: Lengths,
    json: Option<PathBuf>,
}

impl Args {
    fn read() -> Self {
        let mut args = Self {
            shapes: SHAPES.iter().map(|shape| shape.name.to_owned()).collect(),
            files: ["q8_0", "q4_k_m", "bf16"].map(str::to_owned).to_vec(),
            engines: Engine::ALL.to_vec(),
            rounds: 3,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            lengths: Lengths {
                prefills: PREFILLS.to_vec(),
                decodes: DECODES.to_vec(),
                tokens: 64,
            },
            json: None,
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || {
                words
                    .next()
                    .unwrap_or_else(|| panic!("{word} wants a value"))
            };
            let list = |value: String| value.split(',').map(str::to_owned).collect::<Vec<_>>();
            let count = |value: String| value.parse::<usize>().expect("a number");
            match word.as_str() {
                "--shapes" => args.shapes = list(value()),
                "--files" => args.files = list(value()),
                "--engines" => {
                    args.engines = list(value()).iter().map(|name| engine_of(name)).collect()
                }
                "--rounds" => args.rounds = count(value()),
                "--threads" => args.threads = count(value()),
                "--tokens" => args.lengths.tokens = count(value()),
                "--json" => args.json = Some(value().into()),
                "--quick" => {
                    args.rounds = 1;
                    args.lengths = Lengths {
                        prefills: vec![512],
                        decodes: vec![1, 8],
                        tokens: 16,
                    };
                }
                // Cargo's own word.
                "--bench" => {}
                other => panic!("{other} is not known; see the head of benches/serving/main.rs"),
            }
        }
        args
    }
}

fn engine_of(name: &str) -> Engine {
    let mut all = Engine::ALL.into_iter();
    all.find(|engine| engine.name() == name)
        .unwrap_or_else(|| panic!("{name} is not an engine"))
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(("engine", rest)) = words
        .split_first()
        .map(|(first, rest)| (first.as_str(), rest))
    {
        if let Err(error) = servers::serve_ours(rest) {
            eprintln!("{error}");
            std::process::exit(1);
        }
        return;
    }
    let args = Args::read();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bench-models");
    std::fs::create_dir_all(&folder).expect("a folder under target");
    let mut subjects = Vec::new();
    for shape in SHAPES
        .iter()
        .filter(|shape| args.shapes.iter().any(|name| name == shape.name))
    {
        for file in &args.files {
            let model = prepared(shape, file, &folder);
            for engine in args
                .engines
                .iter()
                .copied()
                .filter(|engine| reads(*engine, file))
            {
                match engine.program() {
                    Ok(_) => subjects.push((
                        Subject {
                            shape: shape.name.to_owned(),
                            file: file.clone(),
                            engine,
                        },
                        model.clone(),
                    )),
                    Err(lacking) => println!("without {}: {lacking}", engine.name()),
                }
            }
        }
    }
    let mut results = Results::new();
    let mut texts = BTreeMap::new();
    let mut bandwidths = Vec::new();
    let mut failed = Vec::new();
    for round in 0..args.rounds {
        let machine = Machine {
            threads: args.threads,
            memory_bytes_per_second: machine::memory_bytes_per_second(args.threads),
        };
        bandwidths.push(machine.memory_bytes_per_second / 1e9);
        for (subject, model) in &subjects {
            if failed.contains(subject) {
                continue;
            }
            eprintln!(
                "round {}: {} with {} {}",
                round + 1,
                subject.engine.name(),
                subject.shape,
                subject.file
            );
            // Every engine gets the same prompts; each round has different ones.
            let mut prompts = Prompts::new(round as u64 + 1);
            let measured = match subject.engine {
                Engine::Transformers => {
                    measures::of_transformers(model, machine, &args.lengths, &mut prompts)
                }
                engine => measures::of_server(engine, model, machine, &args.lengths, &mut prompts)
                    .map(|(samples, said)| {
                        texts.insert(subject.clone(), said);
                        samples
                    }),
            };
            match measured {
                Ok(samples) => {
                    let of_subject = results.entry(subject.clone()).or_default();
                    for (measure, number) in samples {
                        of_subject.entry(measure).or_default().push(number);
                    }
                }
                Err(error) => {
                    println!(
                        "{} with {} {} failed: {error}",
                        subject.engine.name(),
                        subject.shape,
                        subject.file
                    );
                    failed.push(subject.clone());
                }
            }
            // A run takes long, so partial results are saved in case it is aborted.
            if let Some(path) = &args.json {
                let so_far = as_json(&results, &bandwidths).to_string();
                std::fs::write(path, so_far).expect("the file can be written");
            }
        }
    }
    compare_texts(&texts, &mut results);
    println!(
        "\nProcessor: {}; {} threads; {} rounds; reads of memory: {} GB/s",
        processor(),
        args.threads,
        args.rounds,
        bandwidths
            .iter()
            .map(|speed| format!("{speed:.1}"))
            .collect::<Vec<_>>()
            .join(", ")
    );
    report::print(&results);
}

fn reads(engine: Engine, file: &str) -> bool {
    match engine {
        Engine::Ours => true,
        Engine::Llama => matches!(file, "q8_0" | "q4_k_m" | "f16"),
        Engine::Transformers => matches!(file, "bf16" | "f32"),
    }
}

/// Returns the model in this form, creating it if it does not exist.
fn prepared(shape: &Shape, file: &str, folder: &Path) -> Model {
    let (file, quantization) = match file.split_once('+') {
        Some((file, quantization)) => (file, Some(quantization.to_owned())),
        None => (file, None),
    };
    let path = match file {
        "bf16" | "f32" => folder.join(format!("{}-{file}", shape.name)),
        _ => folder.join(format!("{}-{file}.gguf", shape.name)),
    };
    if !path.exists() {
        eprintln!("making {}", path.display());
        make(shape, file, &path)
            .unwrap_or_else(|error| panic!("{} cannot be made: {error}", path.display()));
    }
    let bytes_per_token = bytes_per_token(shape, quantization.as_deref().unwrap_or(file), &path);
    Model {
        path,
        quantization,
        bytes_per_token,
    }
}

fn make(shape: &Shape, file: &str, path: &Path) -> std::io::Result<()> {
    let words = tokens::words();
    let gguf = |kind| gguf::write(shape, &words, kind, path).map_err(std::io::Error::other);
    match file {
        "bf16" => shape.write_folder(&words, path, Dtype::BF16),
        "f32" => shape.write_folder(&words, path, Dtype::F32),
        "f16" => gguf(gguf::Kind::F16),
        "q8_0" => gguf(gguf::Kind::Q8_0),
        "q4_k_m" => gguf(gguf::Kind::Q4KM),
        other => panic!("{other} is not a form of a model; use q8_0, q4_k_m, f16, bf16 and f32"),
    }
}

/// Bytes of weights read per token: everything but the embedding, of which a token needs one row. A tied embedding is read as the
/// head.
fn bytes_per_token(shape: &Shape, form: &str, path: &Path) -> u64 {
    let embedding = if shape.ties_head {
        0
    } else {
        shape.hidden * tokens::VOCABULARY
    };
    let bytes_per_number = match form {
        "q8_0" => 34.0 / 32.0,
        "q4_k" => 144.0 / 256.0,
        // The file has mixed encodings, so its size is used.
        "q4_k_m" => return machine::bytes_of(path) - (embedding as f64 * 144.0 / 256.0) as u64,
        "f32" => 4.0,
        _ => 2.0,
    };
    let numbers: usize = shape
        .tensors()
        .iter()
        .map(random_model::NamedTensor::numbers)
        .sum();
    ((numbers - embedding) as f64 * bytes_per_number) as u64
}

/// The length of the common prefix of two servers' texts from the same file, as a share.
fn compare_texts(texts: &BTreeMap<Subject, Vec<String>>, results: &mut Results) {
    for (subject, ours) in texts
        .iter()
        .filter(|(subject, _)| subject.engine == Engine::Ours)
    {
        let other = Subject {
            engine: Engine::Llama,
            ..subject.clone()
        };
        let Some(theirs) = texts.get(&other) else {
            continue;
        };
        let shares = ours.iter().zip(theirs).map(|(ours, theirs)| {
            let same = ours
                .bytes()
                .zip(theirs.bytes())
                .take_while(|(one, other)| one == other)
                .count();
            same as f64 / ours.len().max(theirs.len()).max(1) as f64 * 100.0
        });
        results
            .entry(subject.clone())
            .or_default()
            .insert(Measure::Agreement, shares.collect());
    }
}

fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    line.map_or_else(
        || std::env::consts::ARCH.to_owned(),
        |name| name.trim_start_matches([' ', '\t', ':']).to_owned(),
    )
}

fn as_json(results: &Results, bandwidths: &[f64]) -> Value {
    let subjects = results.iter().map(|(subject, measured)| {
        let numbers: Map<String, Value> =
            measured.iter().map(|(measure, numbers)| (format!("{measure:?}"), json!(numbers))).collect();
        json!({"shape": subject.shape, "file": subject.file, "engine": subject.engine.name(), "measured": numbers})
    });
    json!({"memory_gigabytes_per_second": bandwidths, "subjects": subjects.collect::<Vec<_>>()})
}
