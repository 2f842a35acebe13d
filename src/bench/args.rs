//! The options of `model-pool bench`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

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
