//! The command line of `model-pool`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bench::BenchArgs;
use clap::{Args, Parser, Subcommand};
use config::Config;
use simulate::SimulateArgs;
use terminal::{
    BATCH_EXAMPLES, BatchArgs, CHAT_EXAMPLES, ChatArgs, EVALUATE_EXAMPLES, EvaluateArgs,
    RUN_EXAMPLES, RunArgs,
};

mod engine_args;

pub use engine_args::EngineArgs;

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
    /// print what cannot work and how the models would be run.
    Check(CheckArgs),
    /// Talk to a model of a running pool.
    #[command(after_help = CHAT_EXAMPLES)]
    Chat(Box<ChatArgs>),
    /// Ask a model of a running pool once. Without a prompt, at a terminal, it is `chat`.
    #[command(after_help = RUN_EXAMPLES)]
    Run(Box<RunArgs>),
    /// Send the prompts of a file to several models of a running pool, and show their answers side by side.
    #[command(after_help = EVALUATE_EXAMPLES)]
    Evaluate(Box<EvaluateArgs>),
    /// Run the requests of a file in the room that other requests leave, and download the results.
    #[command(after_help = BATCH_EXAMPLES)]
    Batch(Box<BatchArgs>),
    /// Fetch a model's weights to this machine without loading them. It needs no server.
    #[command(after_help = PULL_EXAMPLES)]
    Pull(PullArgs),
    /// Run a workload, a story or random worlds with faults through the pool's core, without GPUs and in virtual time.
    Simulate(Box<SimulateArgs>),
    /// Benchmark an OpenAI endpoint: put load on it and measure how fast it answers.
    Bench(Box<BenchArgs>),
    /// Write a copy of the state (keys, priorities, registered models, history) while the service runs.
    Backup(BackupArgs),
    /// Admin keys, for an administrator who has lost them and may write to the data folder.
    #[command(subcommand)]
    AdminKey(AdminKeyCommand),
    /// Move the state into another, empty database: from SQLite to PostgreSQL, or back. The service must be stopped.
    MigrateStore(MigrateStoreArgs),
    /// Translate the configuration of another program into model files.
    #[command(subcommand)]
    Import(ImportCommand),
    /// Request nodes from the configured cluster, list them, and release them.
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Join this machine to the pool of a controller on another machine, and add its devices to that pool.
    #[command(after_help = NODE_EXAMPLES)]
    Node(NodeArgs),
    /// Print the version, and the commit that a release is built from.
    Version,
    /// Serve one model with the embedded engine (started by `serve`, one process per replica).
    #[command(hide = true)]
    Engine(EngineArgs),
    /// Print what the program finds of CUDA, as JSON (started once by `serve`, `check` and `node`).
    #[command(hide = true)]
    CudaProbe,
    /// Compile the grammar on standard input within bounds (started by `engine`).
    #[command(hide = true)]
    GrammarTrial,
}

#[derive(Args, Clone, Debug)]
pub struct ConfigArgs {
    /// The configuration file; the default is config/model-pool.yaml if it exists, otherwise built-in settings.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

impl ConfigArgs {
    /// The configuration, with the environment.
    ///
    /// # Errors
    /// One line for the user.
    pub fn load(&self) -> Result<Config, String> {
        let environment: BTreeMap<String, String> = std::env::vars().collect();
        Config::load(self.config.as_deref(), &environment).map_err(|error| error.to_string())
    }
}

#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Only inspect the configured Slurm cluster, and report what is missing before it can provide nodes.
    #[arg(long, conflicts_with = "models")]
    pub slurm: bool,
    /// Only inspect the configured PBS server, and report what is missing before it can provide nodes.
    #[arg(long, conflicts_with_all = ["models", "slurm"])]
    pub pbs: bool,
    /// Only inspect the pool's permissions in Kubernetes, and report what is missing before it can provide nodes.
    #[arg(long, conflicts_with_all = ["models", "slurm", "pbs"])]
    pub kubernetes: bool,
    /// Only inspect a Ray cluster, and report what is missing before it can provide nodes. ADDRESS is that of Ray's dashboard; by
    /// default, the configured one. A small job without GPUs inspects some of its machines.
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "", conflicts_with_all = ["models", "slurm", "pbs", "kubernetes"])]
    pub ray: Option<String>,
    /// Also print every configuration key in force, as JSON, after the findings. Secrets are omitted.
    #[arg(long, conflicts_with_all = ["slurm", "pbs", "kubernetes", "ray"])]
    pub show_config: bool,
    /// Model files, or folders of them, to check instead of those in the configuration.
    #[arg(value_name = "FILE|DIR")]
    pub models: Vec<PathBuf>,
}

#[derive(Args, Clone, Debug)]
pub struct PullArgs {
    /// ORG/NAME of the hub, with :QUANTIZATION for a GGUF file, or the name of a model in the configuration.
    #[arg(
        value_name = "ORG/NAME[:QUANTIZATION]",
        required_unless_present = "search"
    )]
    pub model: Option<String>,
    /// Download nothing, and list models on the hub whose names contain all these words, most downloaded first.
    #[arg(long, value_name = "WORD", num_args = 1.., conflicts_with = "model")]
    pub search: Vec<String>,
    /// Maximum number of models that a search lists.
    #[arg(long, value_name = "N", default_value_t = 20, requires = "search", value_parser = clap::value_parser!(u16).range(1..=100), allow_negative_numbers = true)]
    pub limit: u16,
    #[command(flatten)]
    pub config: ConfigArgs,
}

#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct BackupArgs {
    #[command(subcommand)]
    pub command: Option<BackupCommand>,
    /// The file to write; for a file called restore, ./restore
    #[arg(value_name = "FILE", required = true)]
    pub file: Option<PathBuf>,
    /// Replace the file if it exists.
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub config: ConfigArgs,
}

#[derive(Clone, Debug, Subcommand)]
pub enum BackupCommand {
    /// Replace the database with a copy. The service must be stopped; the former database is kept next to it.
    Restore(RestoreArgs),
}

#[derive(Args, Clone, Debug)]
pub struct RestoreArgs {
    /// A file that `model-pool backup` wrote.
    pub file: PathBuf,
    #[command(flatten)]
    pub config: ConfigArgs,
}

#[derive(Args, Clone, Debug)]
pub struct MigrateStoreArgs {
    /// The database to copy from, such as sqlite://data/model-pool.db. It is not changed.
    #[arg(long, value_name = "URL")]
    pub from: String,
    /// The database to copy to, such as postgres://pool@db/pool. A password comes from ~/.pgpass or PGPASSWORD.
    #[arg(long, value_name = "URL")]
    pub to: String,
}

#[derive(Clone, Debug, Subcommand)]
pub enum AdminKeyCommand {
    /// Create an admin key and write it to the key file (mode 0600). Revokes the keys that the program created before. Works
    /// whether or not the service is running.
    New(NewAdminKeyArgs),
}

#[derive(Args, Clone, Debug)]
pub struct NewAdminKeyArgs {
    /// Also print the key, as the only text on standard output.
    #[arg(long)]
    pub print: bool,
    /// Keep the old keys valid.
    #[arg(long)]
    pub keep_old: bool,
    #[command(flatten)]
    pub config: ConfigArgs,
}

#[derive(Clone, Debug, Subcommand)]
pub enum ImportCommand {
    /// Models, peers and settings of llama-swap.
    LlamaSwap(ImportArgs),
    /// The model_list of LiteLLM's proxy, as remote models.
    Litellm(ImportArgs),
}

#[derive(Args, Clone, Debug)]
pub struct ImportArgs {
    /// The configuration of the other program; it is not changed.
    #[arg(value_name = "CONFIG.yaml")]
    pub file: PathBuf,
    /// The folder for model-pool.yaml and models/; it is created.
    #[arg(long, value_name = "DIR", default_value = "imported")]
    pub into: PathBuf,
    /// Replace files that exist.
    #[arg(long)]
    pub force: bool,
}

#[derive(Clone, Debug, Subcommand)]
pub enum ClusterCommand {
    /// Request one node of a shape. Prints the id of its lease.
    Request(ClusterRequestArgs),
    /// List the leases of this pool: pending, running, and recently ended.
    Status(ClusterStatusArgs),
    /// Release a node after its requests have ended.
    Release(ClusterReleaseArgs),
    /// Print what a request would submit: the script for Slurm or PBS, or the JSON for Ray. Nothing is submitted.
    Script(ClusterRequestArgs),
}

#[derive(Args, Clone, Debug)]
pub struct ClusterRequestArgs {
    /// The name of a shape in cluster.shapes.
    pub shape: String,
    /// Nodes to exclude, in addition to those in the configuration.
    #[arg(long, value_name = "NODE", value_delimiter = ',', value_parser = node_name)]
    pub exclude: Vec<String>,
    #[command(flatten)]
    pub config: ConfigArgs,
}

#[derive(Args, Clone, Debug)]
pub struct ClusterStatusArgs {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub config: ConfigArgs,
}

#[derive(Args, Clone, Debug)]
pub struct ClusterReleaseArgs {
    /// The id of the lease, as `request` and `status` print it.
    pub id: String,
    /// End the job immediately; requests in flight fail.
    #[arg(long)]
    pub now: bool,
    #[command(flatten)]
    pub config: ConfigArgs,
}

/// Accepts only names that are safe in a job's script.
fn node_name(text: &str) -> Result<String, String> {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "-_.[]".contains(letter);
    if !text.is_empty() && !text.starts_with('-') && text.chars().all(allowed) {
        Ok(text.to_owned())
    } else {
        Err("write names such as gpu07,gpu08".to_owned())
    }
}

const PULL_EXAMPLES: &str = "\
Examples:
  model-pool pull Qwen/Qwen3-0.6B
  model-pool pull org/small-GGUF:Q4_K_M     # the GGUF file of this quantization
  model-pool pull my-model                  # a model of config/models
  model-pool pull --search qwen3 gguf       # what the hub has of that name

A pull that was stopped continues where it was. Exit status: 0 done, 1 refused or failed, 2 wrong usage, 3 cannot reach the hub, 130 stopped by Ctrl-C.";

const NODE_EXAMPLES: &str = "\
Examples:
  On the controller:  admin-client nodes token > join-token && chmod 600 join-token
  On this machine:    model-pool node --controller http://10.0.0.1:8080 --token-file join-token
  Over TLS:           model-pool node --controller https://pool.lab:8443 --fingerprint sha256:… --token-file join-token";

#[derive(Args, Clone, Debug)]
pub struct NodeArgs {
    /// The controller's address, such as https://pool.lab:8443; without a path, its base path is /llm. Repeat it for two
    /// controllers, one of which stands by.
    #[arg(long, value_name = "URL", required = true)]
    pub controller: Vec<String>,
    /// The name of this machine in the pool. The default is its host name.
    #[arg(long)]
    pub name: Option<String>,
    /// A file with mode 0600 that holds a token of `admin-client nodes token`.
    #[arg(long, value_name = "FILE")]
    pub token_file: PathBuf,
    /// The fingerprint of the controller's certificate, as its log shows it. Without it, an authority of the system must have
    /// signed the certificate. Two controllers may have one each, in the same order.
    #[arg(long, value_name = "sha256:HEX")]
    pub fingerprint: Vec<String>,
    /// The address on which the gateway reaches the engines of this node, such as 10.0.0.2:7000.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<std::net::SocketAddr>,
    /// The folder for sockets, logs and the journal of engines; the default is `node` in state.dir.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Replace the running node of the same data folder: take over its listening socket and its engines without ending a
    /// request. If none is running, start normally.
    #[arg(long, conflicts_with = "demand")]
    pub takeover: bool,
    /// Remove the data folder when the node ends. A cluster's jobs do so: each has its own folder.
    #[arg(long, requires = "data")]
    pub remove_data: bool,
    /// A PEM file with the certificate of the authority that signed the controller's certificate, in addition to the system's
    /// authorities; also from MODEL_POOL_CA_FILE.
    #[arg(long, value_name = "FILE", conflicts_with = "fingerprint")]
    pub ca_file: Option<PathBuf>,
    /// The request of the pool that this node was started for.
    #[arg(long, hide = true)]
    pub demand: Option<u64>,
    #[command(flatten)]
    pub config: ConfigArgs,
}

#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Replace the running model-pool of the same data folder: take over its listening socket and its
    /// engines without refusing a connection. If none is running, start normally.
    #[arg(long)]
    pub takeover: bool,
    /// Refuse to start if a single model file cannot be used. Without it, that model is listed as broken, and
    /// everything else is served.
    #[arg(long)]
    pub strict: bool,
}

#[cfg(test)]
mod tests;
