//! The command line, and nothing else.

use std::path::PathBuf;

use bench::BenchArgs;
use candle_engine::{DeviceChoice, Quantization, Task};
use clap::{Args, Parser, Subcommand};
use simulate::SimulateArgs;

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
