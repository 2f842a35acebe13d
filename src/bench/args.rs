//! The options of `model-pool bench`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    /// The endpoint's base URL, as for OpenAI clients: ends with /v1, which is added if the URL has no path.
    #[arg(long, default_value = "http://127.0.0.1:8080/v1")]
    pub url: String,
    /// The API key; without it none is sent.
    #[arg(long, env = "MODEL_POOL_KEY", hide_env_values = true)]
    pub key: Option<String>,
    /// The model; by default the only model that the endpoint lists.
    #[arg(long)]
    pub model: Option<String>,
    #[arg(long, value_enum, default_value_t = BenchRoute::Chat)]
    pub route: BenchRoute,
    /// Closed loop: the number of connections, each of which sends its next request after the previous response; default 1. With
    /// --rate: the maximum number of concurrent requests, default 1,000.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub connections: Option<usize>,
    /// Open loop: requests per second, regardless of earlier responses. Times count from when a request was due.
    #[arg(long, value_name = "PER_SECOND", allow_negative_numbers = true)]
    pub rate: Option<f64>,
    /// Distribution of the requests of --rate over time.
    #[arg(long, value_enum, default_value_t = Arrivals::Poisson, requires = "rate")]
    pub arrivals: Arrivals,
    /// Stop after this many requests.
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "duration",
        allow_negative_numbers = true
    )]
    pub requests: Option<u64>,
    /// Time during which requests are started; default 10s. Requests that have started are finished.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, allow_hyphen_values = true)]
    pub duration: Option<Duration>,
    /// Run the same load for this long before anything is counted.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, default_value = "0s", allow_hyphen_values = true)]
    pub warm_up: Duration,
    /// Request streams; reports the time to the first token and between tokens.
    #[arg(long)]
    pub stream: bool,
    /// The prompt of every request.
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["prompt_tokens", "prompts"])]
    pub prompt: Option<String>,
    /// Random prompts of this many common words, different for each request, generated from the seed.
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "prompts",
        allow_negative_numbers = true
    )]
    pub prompt_tokens: Option<usize>,
    /// A file with one prompt per line, used in turn: a JSON string, or an object with `prompt`, `messages` or `input` and any
    /// other fields of the request.
    #[arg(long, value_name = "FILE")]
    pub prompts: Option<PathBuf>,
    /// Maximum number of tokens of a response; default 64.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub max_tokens: Option<u32>,
    /// A request that takes longer fails.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, default_value = "5m", allow_hyphen_values = true)]
    pub timeout: Duration,
    /// Speak HTTP/2: by ALPN over https, with prior knowledge over http.
    #[arg(long)]
    pub http2: bool,
    /// Threads that send and receive. One sends tens of thousands of requests a second, and leaves the other
    /// processors to the endpoint.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        allow_negative_numbers = true
    )]
    pub threads: usize,
    /// Write the result as JSON to this file, or without a file to standard output instead of the table.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,
    /// The seed of arrivals and of random prompts.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    pub seed: u64,
    /// Open this many streams and hold them until --duration has passed, or until Ctrl-C.
    #[arg(long, value_name = "N", conflicts_with_all = ["connections", "rate", "requests", "warm_up", "json"], allow_negative_numbers = true)]
    pub idle_streams: Option<usize>,
    /// Report failed requests, but keep the exit status 0.
    #[arg(long)]
    pub allow_errors: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BenchRoute {
    Chat,
    Completions,
    Embeddings,
}

impl BenchRoute {
    /// The path below the base URL.
    pub fn path(self) -> &'static str {
        match self {
            BenchRoute::Chat => "/chat/completions",
            BenchRoute::Completions => "/completions",
            BenchRoute::Embeddings => "/embeddings",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Arrivals {
    /// Independent arrivals: the gaps are exponential.
    Poisson,
    Constant,
}
