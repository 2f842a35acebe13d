//! The options of `model-pool simulate`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

#[derive(Args, Clone, Debug)]
pub struct SimulateArgs {
    /// A story in the form of tests/stories; prints it with every decision.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seed", "workload"])]
    pub story: Option<PathBuf>,
    /// Requests to replay: a CSV or JSON lines file, a folder or .tar.xz in ServeGen's format (`FILE#part` takes a
    /// part of it), the store of a pool (data/model-pool.db), or generated ones such as
    /// `zipf:requests=100000,days=1,models=60,skew=1.1`, `diurnal:…`, `bursty:…`, `shifting:…`.
    #[arg(long, value_name = "FILE")]
    pub workload: Option<String>,
    /// The pool's configuration: its models and times, and its devices, which are detected on this machine as `serve` does
    /// (`inventory`).
    #[arg(long, value_name = "FILE", requires = "workload")]
    pub pool: Option<PathBuf>,
    /// The policy whose timeline the page shows.
    #[arg(long, default_value = "model-pool", requires = "workload")]
    pub policy: String,
    /// Policies to compare with: lru, lru-best, fifo, llama-swap, llamacpp-router, ollama, modelmesh, ncsa, offline; and `bound`,
    /// the lower bound of every policy.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "POLICIES",
        requires = "workload"
    )]
    pub compare: Vec<String>,
    /// Play the pool with a range of `pool.objective`, and lru, lru-best, fifo and the policies of --compare; print the waits and
    /// loads of each, and mark those that no other beats in both.
    #[arg(long, requires = "workload", conflicts_with_all = ["html", "resample"])]
    pub front: bool,
    /// Write the reports as JSON; `-` for standard output instead of the table.
    #[arg(long, value_name = "FILE", requires = "workload")]
    pub json: Option<PathBuf>,
    /// Write a self-contained page with charts.
    #[arg(long, value_name = "FILE", requires = "workload")]
    pub html: Option<PathBuf>,
    /// Replace the devices: `+2` adds two like the last one of --pool, `8` sets their number, `4x80GiB` sets number and size.
    #[arg(
        long,
        value_name = "DEVICES",
        requires = "workload",
        allow_hyphen_values = true
    )]
    pub gpus: Option<String>,
    /// The host memory of each node, in which engines sleep, such as `512GiB`. Default: that of this machine.
    #[arg(long, value_name = "SIZE", requires = "pool")]
    pub host_memory: Option<String>,
    /// Size the devices so that together they hold this share of all models, such as `35%`.
    #[arg(
        long,
        value_name = "SHARE",
        requires = "workload",
        allow_hyphen_values = true
    )]
    pub capacity: Option<String>,
    /// The keep-hot time of every model: a duration, `adaptive` or `until_needed`.
    #[arg(
        long,
        value_name = "TIME",
        requires = "workload",
        allow_hyphen_values = true
    )]
    pub keep_hot: Option<String>,
    /// The priority of a model: `model=2`.
    #[arg(long, value_name = "MODEL=N", requires = "workload")]
    pub priority: Vec<String>,
    /// Also replay the workload with a virtual model, `coder=org/a,org/b`: a request for any of the models takes a ready model of
    /// them; print the loads that this saves. May be given several times.
    #[arg(long = "virtual", value_name = "NAME=MODELS", requires = "workload", conflicts_with_all = ["json", "front"])]
    pub virtual_models: Vec<String>,
    /// Override a key of the configuration: `pool.keep_hot=30m`. May be given several times.
    #[arg(long, value_name = "KEY=VALUE", requires = "pool")]
    pub set: Vec<String>,
    /// Compare the configured pool with the pool under --gpus, --keep-hot, --priority and --set, on this workload and on this many
    /// others drawn from its days.
    #[arg(long, value_name = "N", requires = "workload", conflicts_with = "json", value_parser = clap::value_parser!(u64).range(1..=1_000), allow_negative_numbers = true)]
    pub resample: Option<u64>,
    /// For models that the pool does not have: draw their sizes from the seed, or leave them out.
    #[arg(long, value_enum, requires = "workload")]
    pub unknown: Option<UnknownModels>,
    /// Leave out requests before this time after the first one, such as `2h`.
    #[arg(
        long,
        value_name = "TIME",
        requires = "workload",
        allow_hyphen_values = true
    )]
    pub from: Option<String>,
    /// Leave out requests after this time.
    #[arg(
        long,
        value_name = "TIME",
        requires = "workload",
        allow_hyphen_values = true
    )]
    pub to: Option<String>,
    /// The maximum number of requests to replay.
    #[arg(long, requires = "workload", allow_negative_numbers = true)]
    pub limit: Option<u64>,
    /// Multiply all times, for example to stretch a trace of one hour to a day.
    #[arg(
        long,
        default_value_t = 1.0,
        requires = "workload",
        allow_negative_numbers = true
    )]
    pub stretch: f64,
    /// Compare the pool with every other policy on all traces of benches/traces at four capacities; print the table of
    /// docs/internals/policy.md.
    #[arg(long, value_name = "FOLDER", num_args = 0..=1, default_missing_value = "benches/traces", group = "measured", conflicts_with_all = ["workload", "story"])]
    pub bench: Option<PathBuf>,
    /// Compare the pool with plain LRU on small labs: 2 to 10 models, 1 to 4 devices, loads from 30 ms to 3 minutes, quiet to
    /// overloaded; print the table of docs/internals/policy.md.
    #[arg(long, group = "measured", conflicts_with_all = ["workload", "story", "bench"])]
    pub labs: bool,
    /// With --labs: show every rule's wait on every lab as a heat map instead of the table.
    #[arg(long, requires = "labs", conflicts_with = "ablation")]
    pub heat_map: bool,
    /// With --labs or --bench: show the cost of the pool without each part of its rule, relative to the complete rule, instead of
    /// the table.
    #[arg(long, requires = "measured")]
    pub ablation: bool,
    /// Forecast the wait of every request and compare it with the wait. With --bench: on all traces, instead of the table.
    #[arg(long, conflicts_with_all = ["story", "labs", "ablation"])]
    pub forecasts: bool,
    /// With --bench: let three groups with weights of 1, 2 and 1 share a model, and compare their service by first come, by keys in
    /// turn and by groups, instead of the table.
    #[arg(long, requires = "bench", conflicts_with_all = ["ablation", "forecasts"])]
    pub shares: bool,
    /// Play random worlds with batches, and compare their forecasts with their ends. With --bench: the batches of eight models next to
    /// every trace, instead of the table.
    #[arg(long, conflicts_with_all = ["story", "workload", "labs", "ablation", "forecasts", "shares"])]
    pub batches: bool,
    /// A batch next to the workload: `MODEL=100000,2s,24h`, with its requests, the time of each and the completion window, and
    /// perhaps the time of its creation, such as `MODEL=100000,2s,24h,1h`. May be given several times.
    #[arg(long, value_name = "BATCH", requires = "workload", conflicts_with_all = ["front", "resample"])]
    pub batch: Vec<String>,
    /// The seed of the workload, or of the first random world.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    pub seed: u64,
    /// Without a workload: play this many random worlds with faults, and check every rule after every step. With `--bench` and
    /// `--labs`: the number of seeds.
    #[arg(long, allow_negative_numbers = true)]
    pub count: Option<u64>,
}

impl SimulateArgs {
    /// The same without the options that change the pool.
    pub(crate) fn as_configured(&self) -> SimulateArgs {
        SimulateArgs {
            gpus: None,
            host_memory: None,
            keep_hot: None,
            priority: Vec::new(),
            set: Vec::new(),
            ..self.clone()
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum UnknownModels {
    Add,
    Skip,
}
