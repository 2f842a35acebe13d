//! The command line, and nothing else.

use std::path::PathBuf;
use std::time::Duration;

use candle_engine::{DeviceChoice, Quantization, Task};
use clap::{Args, Parser, Subcommand, ValueEnum};

/// One OpenAI-compatible endpoint for all the models of a lab, on GPU memory that is always too small.
#[derive(Debug, Parser)]
#[command(name = "model-pool", version, args_conflicts_with_subcommands = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub serve: ServeArgs,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the pool (the default).
    Serve(ServeArgs),
    /// Check configuration, catalogue and model reference, or these model files alone; print what would
    /// take effect.
    Check(CheckArgs),
    /// Replay a workload, a story or seeded storms with the pool's core, without GPUs and waiting.
    Simulate(Box<SimulateArgs>),
    /// Load an OpenAI endpoint, this one or any other, and tell how fast it answers.
    Bench(Box<BenchArgs>),
    /// Print the version.
    Version,
    /// Serve one model with the embedded engine (started by `serve`, one process per replica).
    #[command(hide = true)]
    Engine(EngineArgs),
}

#[derive(Args, Clone, Debug)]
pub struct ConfigArgs {
    /// The configuration; config/model-pool.yaml if it exists, else the built-in defaults.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Model files, or folders of them, instead of those that the configuration names.
    #[arg(value_name = "FILE|DIR")]
    pub models: Vec<PathBuf>,
}

#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Take the place of the model-pool that uses the same data folder: its listening socket and its
    /// engines, without a refused connection. Starts as usual when there is none.
    #[arg(long)]
    pub takeover: bool,
}

#[derive(Args, Debug)]
pub struct SimulateArgs {
    /// A story in the form of tests/stories; prints it with every decision.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seed", "workload"])]
    pub story: Option<PathBuf>,
    /// Requests to replay: a CSV or JSON lines file, a folder or .tar.xz in ServeGen's form (`FILE#part`
    /// takes a part of it), the store of a pool (data/model-pool.db), or drawn ones such as
    /// `zipf:requests=100000,days=1,models=60,skew=1.1`, `diurnal:…`, `bursty:…`.
    #[arg(long, value_name = "FILE")]
    pub workload: Option<String>,
    /// The pool's configuration: its devices (provider `fixed`), models and times.
    #[arg(long, value_name = "FILE", requires = "workload")]
    pub pool: Option<PathBuf>,
    /// The policy whose time line the page shows.
    #[arg(long, default_value = "model-pool", requires = "workload")]
    pub policy: String,
    /// Peers to compare with: lru, fifo, llama-swap, llamacpp-router, ollama, modelmesh, ncsa, offline; and `bound`, below which no policy can be.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "POLICIES",
        requires = "workload"
    )]
    pub compare: Vec<String>,
    /// Write the reports as JSON; `-` for standard output instead of the table.
    #[arg(long, value_name = "FILE", requires = "workload")]
    pub json: Option<PathBuf>,
    /// Write one page with charts that needs no network.
    #[arg(long, value_name = "FILE", requires = "workload")]
    pub html: Option<PathBuf>,
    /// Other devices: `+2` more, `8` in all, or `4x80GiB`.
    #[arg(long, value_name = "DEVICES", requires = "workload")]
    pub gpus: Option<String>,
    /// Size the devices so that together they hold this share of all models, such as `35%`.
    #[arg(long, value_name = "SHARE", requires = "workload")]
    pub capacity: Option<String>,
    /// Another keep-hot time for every model: a length of time, or `adaptive`.
    #[arg(long, value_name = "TIME", requires = "workload")]
    pub keep_hot: Option<String>,
    /// Another priority of one model: `model=2`.
    #[arg(long, value_name = "MODEL=N", requires = "workload")]
    pub priority: Vec<String>,
    /// What to do with models that the pool does not know: size them from the seed, or leave them out.
    #[arg(long, value_enum, requires = "workload")]
    pub unknown: Option<UnknownModels>,
    /// Leave out what comes before this time after the first request, such as `2h`.
    #[arg(long, value_name = "TIME", requires = "workload")]
    pub from: Option<String>,
    /// Leave out what comes after this time.
    #[arg(long, value_name = "TIME", requires = "workload")]
    pub to: Option<String>,
    /// At most so many requests.
    #[arg(long, requires = "workload")]
    pub limit: Option<u64>,
    /// Multiply all times, to make days of a trace of one hour.
    #[arg(long, default_value_t = 1.0, requires = "workload")]
    pub stretch: f64,
    /// Compare ours with every peer on all traces of benches/traces at four capacities; prints the
    /// table of docs/policy.md.
    #[arg(long, value_name = "FOLDER", num_args = 0..=1, default_missing_value = "benches/traces", conflicts_with_all = ["workload", "story"])]
    pub bench: Option<PathBuf>,
    /// The seed of the workload, or the first one of the storms.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// How many storms, or seeds of the bench.
    #[arg(long)]
    pub count: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum UnknownModels {
    Add,
    Skip,
}

#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    /// The endpoint, as OpenAI's clients have it: with /v1 at its end, which is added where there is no
    /// path.
    #[arg(long, default_value = "http://127.0.0.1:8080/v1")]
    pub url: String,
    /// An API key; none is sent without it.
    #[arg(long, env = "MODEL_POOL_KEY", hide_env_values = true)]
    pub key: Option<String>,
    /// The model to ask; the only one of the endpoint's list where there is just one.
    #[arg(long)]
    pub model: Option<String>,
    #[arg(long, value_enum, default_value_t = BenchRoute::Chat)]
    pub route: BenchRoute,
    /// Closed loop: so many connections, each with its next request when the last one is answered; 1
    /// unless said otherwise. With --rate the most requests that run at once, 1,000 unless said otherwise.
    #[arg(long, value_name = "N")]
    pub connections: Option<usize>,
    /// Open loop: so many requests a second, whether or not earlier ones are answered. Times count from
    /// the moment at which a request was due.
    #[arg(long, value_name = "PER_SECOND", allow_negative_numbers = true)]
    pub rate: Option<f64>,
    /// How the requests of --rate are spread.
    #[arg(long, value_enum, default_value_t = Arrivals::Poisson, requires = "rate")]
    pub arrivals: Arrivals,
    /// Ends after so many requests.
    #[arg(long, value_name = "N", conflicts_with = "duration")]
    pub requests: Option<u64>,
    /// Begins requests for so long; 10s unless said otherwise. What has begun is finished.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub duration: Option<Duration>,
    /// Does the same for so long before anything is counted.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, default_value = "0s")]
    pub warm_up: Duration,
    /// Ask for streams; tells the time to the first token and between tokens.
    #[arg(long)]
    pub stream: bool,
    /// What every request asks.
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["prompt_tokens", "prompts"])]
    pub prompt: Option<String>,
    /// Prompts of so many common words, each another one, drawn by the seed.
    #[arg(long, value_name = "N", conflicts_with = "prompts")]
    pub prompt_tokens: Option<usize>,
    /// A file with a prompt a line, in turn: a JSON string, or an object with `prompt`, `messages` or `input`
    /// and whatever else the request should have.
    #[arg(long, value_name = "FILE")]
    pub prompts: Option<PathBuf>,
    /// The longest answer; 64 unless said otherwise.
    #[arg(long, value_name = "N")]
    pub max_tokens: Option<u32>,
    /// A request that takes longer has failed.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, default_value = "5m")]
    pub timeout: Duration,
    /// Speak HTTP/2: by ALPN over https, with prior knowledge over http.
    #[arg(long)]
    pub http2: bool,
    /// Threads that send and receive. One does tens of thousands of requests a second, and leaves the
    /// other processors to what is measured.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: usize,
    /// Write the result as JSON; without a file to the standard output, instead of the table.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,
    /// The seed of arrivals and of drawn prompts.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Open so many streams and hold them until --duration has passed, or until Ctrl-C.
    #[arg(long, value_name = "N", conflicts_with_all = ["connections", "rate", "requests", "warm_up", "json"])]
    pub idle_streams: Option<usize>,
    /// Failed requests are told, and the exit status stays 0.
    #[arg(long)]
    pub allow_errors: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BenchRoute {
    Chat,
    Completions,
    Embeddings,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Arrivals {
    /// As independent people come: the gaps are exponential.
    Poisson,
    Constant,
}

#[derive(Args, Debug)]
pub struct EngineArgs {
    /// A folder in Hugging Face layout, or a GGUF file.
    #[arg(long)]
    pub model_dir: PathBuf,
    /// The id it answers to.
    #[arg(long)]
    pub model_name: String,
    /// Listen on this Unix socket.
    #[arg(long, required_unless_present = "port")]
    pub socket: Option<PathBuf>,
    /// Listen on this port of the loopback interface.
    #[arg(long, conflicts_with = "socket")]
    pub port: Option<u16>,
    /// Tokens of prompt and answer together.
    #[arg(long, default_value_t = 2048)]
    pub context: usize,
    /// Requests that compute at once.
    #[arg(long, default_value_t = 4)]
    pub concurrency: usize,
    /// CPU threads.
    #[arg(long)]
    pub threads: Option<usize>,
    /// Tokens of one prompt at most.
    #[arg(long)]
    pub max_input_tokens: Option<usize>,
    /// Tokens of all prompts that are computed at the same time.
    #[arg(long)]
    pub max_batch_prefill_tokens: Option<usize>,
    /// Tokens of all requests that run, with the most that they may answer.
    #[arg(long)]
    pub max_batch_total_tokens: Option<usize>,
    /// Write wide weights anew while they are loaded: q8_0 or q4_k.
    #[arg(long, value_name = "FORM")]
    pub quantization: Option<Quantization>,
    /// Look at every number of the weights before the model counts as ready.
    #[arg(long)]
    pub verify: bool,
    /// generate, embed or rerank, where the model's files do not say what it is for.
    #[arg(long)]
    pub task: Option<Task>,
    /// cpu, cuda:N or metal:N; with several the layers are divided over them: cuda:0,cuda:1,cpu.
    #[arg(long, value_delimiter = ',', default_value = "cpu")]
    pub device: Vec<DeviceChoice>,
    /// What it may take on each GPU; all that is free without it.
    #[arg(long, value_name = "BYTES")]
    pub device_memory: Option<u64>,
}
