//! The command line, and nothing else.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// One OpenAI-compatible endpoint for all the models of a lab, on GPU memory that is always too small.
#[derive(Debug, Parser)]
#[command(name = "model-pool", version, args_conflicts_with_subcommands = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub serve: ConfigArgs,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the pool (the default).
    Serve(ConfigArgs),
    /// Check configuration, catalogue and model reference; print what would take effect.
    Check(ConfigArgs),
    /// Play a story or seeded storms against the pool's core, without GPUs and without waiting.
    Simulate(SimulateArgs),
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

#[derive(Args, Debug)]
pub struct SimulateArgs {
    /// A story in the form of tests/stories; prints it with every decision.
    #[arg(long, value_name = "FILE", conflicts_with = "seed")]
    pub story: Option<PathBuf>,
    /// The first seed of the storms.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// How many seeds.
    #[arg(long, default_value_t = 100)]
    pub count: u64,
}

#[derive(Args, Debug)]
pub struct EngineArgs {
    /// A folder in Hugging Face layout.
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
    #[arg(long, value_enum, default_value_t = EngineDevice::Cpu)]
    pub device: EngineDevice,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum EngineDevice {
    Cpu,
    Cuda,
    Metal,
}
