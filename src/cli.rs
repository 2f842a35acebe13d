//! The command line of `model-pool`.

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
    /// Check the configuration, the catalogue and the model reference, or only the named model files, and
    /// print what would take effect.
    Check(CheckArgs),
    /// Run a workload, a story or seeded storms through the pool's core, without GPUs and in virtual time.
    Simulate(Box<SimulateArgs>),
    /// Benchmark an OpenAI endpoint: put load on it and measure how fast it answers.
    Bench(Box<BenchArgs>),
    /// Print the version.
    Version,
    /// Serve one model with the embedded engine (started by `serve`, one process per replica).
    #[command(hide = true)]
    Engine(EngineArgs),
}

#[derive(Args, Clone, Debug)]
pub struct ConfigArgs {
    /// The configuration file; the default is config/model-pool.yaml if it exists, otherwise built-in settings.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Model files, or folders of them, to check instead of those in the configuration.
    #[arg(value_name = "FILE|DIR")]
    pub models: Vec<PathBuf>,
}

#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Replace the running model-pool of the same data folder: take over its listening socket and its
    /// engines without refusing a connection. If none is running, start normally.
    #[arg(long)]
    pub takeover: bool,
}

#[derive(Args, Debug)]
pub struct EngineArgs {
    /// A folder in Hugging Face layout, or a GGUF file.
    #[arg(long)]
    pub model_dir: PathBuf,
    /// The model's id in requests.
    #[arg(long)]
    pub model_name: String,
    /// Listen on this Unix socket.
    #[arg(long, required_unless_present = "port")]
    pub socket: Option<PathBuf>,
    /// Listen on this port of the loopback interface.
    #[arg(long, conflicts_with = "socket")]
    pub port: Option<u16>,
    /// Maximum tokens of prompt and answer together.
    #[arg(long, default_value_t = 2048)]
    pub context: usize,
    /// Maximum requests computed at the same time.
    #[arg(long, default_value_t = 4)]
    pub concurrency: usize,
    /// CPU threads.
    #[arg(long)]
    pub threads: Option<usize>,
    /// Maximum tokens of one prompt.
    #[arg(long)]
    pub max_input_tokens: Option<usize>,
    /// Maximum tokens of all prompts computed at the same time.
    #[arg(long)]
    pub max_batch_prefill_tokens: Option<usize>,
    /// Maximum tokens of all running requests, including the longest answers they may produce.
    #[arg(long)]
    pub max_batch_total_tokens: Option<usize>,
    /// Quantize wide weights while loading: q8_0 or q4_k.
    #[arg(long, value_name = "FORM")]
    pub quantization: Option<Quantization>,
    /// Check every number of the weights before the model becomes ready.
    #[arg(long)]
    pub verify: bool,
    /// generate, embed or rerank, if the model's files do not specify the task.
    #[arg(long)]
    pub task: Option<Task>,
    /// cpu, cuda:N or metal:N; several devices share the layers: cuda:0,cuda:1,cpu.
    #[arg(long, value_delimiter = ',', default_value = "cpu")]
    pub device: Vec<DeviceChoice>,
    /// Memory limit on each GPU; the default is all free memory.
    #[arg(long, value_name = "BYTES")]
    pub device_memory: Option<u64>,
}
