//! The command line: names, flags and the checks that need no server. Never talks to anything.

use std::fmt;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

/// Steers a model pool: what is loaded, what may stay, what leaves.
#[derive(Debug, Parser)]
#[command(
    name = "admin-client",
    version,
    arg_required_else_help = true,
    after_help = "Exit status: 0 done, 1 refused or failed, 2 wrong usage, 3 cannot reach the server."
)]
pub struct Cli {
    /// The pool's address; /llm is its base path unless the address has a path of its own
    #[arg(
        long,
        global = true,
        env = "MODEL_POOL_SERVER",
        value_name = "URL",
        default_value = "http://127.0.0.1:8080"
    )]
    pub server: String,
    /// The admin key; better given by MODEL_POOL_ADMIN_KEY, which other users cannot see
    #[arg(
        long,
        global = true,
        env = "MODEL_POOL_ADMIN_KEY",
        value_name = "KEY",
        hide_env_values = true
    )]
    pub key: Option<Key>,
    /// The file with the admin key; ./data/admin.key for a pool on this machine
    #[arg(
        long,
        global = true,
        env = "MODEL_POOL_ADMIN_KEY_FILE",
        value_name = "FILE"
    )]
    pub key_file: Option<PathBuf>,
    /// Print the server's JSON unchanged; streams print one object a line
    #[arg(long, global = true)]
    pub json: bool,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Load a model: show what must leave for it, load it, tell what happened
    Load(LoadArgs),
    /// Drain and unload a model, or one replica of it
    Unload {
        model: String,
        /// Only this replica, as r3
        #[arg(long, value_name = "REPLICA")]
        replica: Option<String>,
        /// Cut the requests in flight instead of letting them finish
        #[arg(long)]
        now: bool,
    },
    /// Show what a load would do, and do nothing
    Plan {
        model: String,
        #[command(flatten)]
        wish: Wish,
    },
    /// List all models: state, priority, memory, who waits
    Models,
    /// Show one model with its replicas
    Show { model: String },
    /// Change a model's priority, keep-hot time or lease
    Set(SetArgs),
    /// Register a model from a YAML or JSON file, or one of Hugging Face by its name and engine
    Register(RegisterArgs),
    /// Remove a registered model from the catalogue
    Remove { model: String },
    /// Show each device's memory by owner
    Devices,
    /// Take a device out of service: nothing new goes there, and what it holds leaves
    Cordon(CordonArgs),
    /// Put a device back into service
    Uncordon {
        /// Its name, index or UUID
        device: String,
    },
    /// Show who waits for what, and the orders under way
    Queue,
    /// Show what the pool did and why
    Events {
        /// Go on with new events as they happen
        #[arg(long, short)]
        follow: bool,
        /// Only events of this model
        #[arg(long, value_name = "MODEL")]
        model: Option<String>,
        /// Only events of this kind, as evicted
        #[arg(long, value_name = "KIND")]
        kind: Option<String>,
        /// How many past events; 100 without --follow, none with it
        #[arg(long, value_name = "N")]
        limit: Option<u32>,
    },
    /// Show the output of a model's engines
    Logs {
        model: String,
        /// Go on with new lines as they come
        #[arg(long, short)]
        follow: bool,
        /// How many past lines
        #[arg(long, value_name = "N", default_value_t = 100)]
        tail: u32,
        /// Only this replica, as r3
        #[arg(long, value_name = "REPLICA")]
        replica: Option<String>,
    },
    /// Watch devices, models and queue; q or Ctrl-C ends it
    Top {
        /// End after so many screens; without it once when the output is no terminal
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        times: Option<u32>,
    },
    /// Run the evening cleanup now: drain and unload every replica
    Cleanup {
        /// Only show what would be unloaded
        #[arg(long)]
        preview: bool,
        /// Which replicas leave
        #[arg(long, value_enum, default_value_t = CleanupMode::All)]
        mode: CleanupMode,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
    /// Unload everything and forget all failures
    Reset {
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
    /// Read catalogue, reference and configuration anew, touching only what changed
    Reload,
    /// Show the effective configuration, without secrets
    Config,
    /// Show who changed what, refused attempts too
    Audit {
        /// How many entries, the newest ones
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        /// Only of this key, by its id, or of this subject of a single sign-on
        #[arg(long, value_name = "KEY-ID|SUBJECT")]
        of: Option<String>,
        /// Only of routes that begin so, as /admin/keys
        #[arg(long, value_name = "PATH")]
        path: Option<String>,
    },
    /// Create, list and revoke API keys
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Print the completion script of a shell
    Completions { shell: Shell },
}

#[derive(Debug, Args)]
pub struct LoadArgs {
    pub model: String,
    #[command(flatten)]
    pub wish: Wish,
    /// Return as soon as the load has started
    #[arg(long)]
    pub no_wait: bool,
    /// Only show the plan, as `plan` does
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, Args)]
pub struct RegisterArgs {
    /// A file, - for the standard input, or with --engine a name such as org/model
    #[arg(value_name = "FILE|MODEL")]
    pub what: String,
    /// What runs it: vllm, sglang, tgi, llama-cpp, tei, trtllm, candle, or a type as model files have it
    #[arg(long)]
    pub engine: Option<String>,
    /// GPUs for each replica
    #[arg(long, value_name = "N", requires = "engine")]
    pub gpus: Option<u32>,
    /// 0 is lowest; 2 and above is always-hot
    #[arg(long, value_name = "N", requires = "engine")]
    pub priority: Option<u32>,
    /// Tokens of prompt and answer together
    #[arg(long, value_name = "TOKENS", requires = "engine")]
    pub context: Option<u32>,
    /// What one replica needs on all its GPUs together; else it is worked out from the weights
    #[arg(long, value_name = "GIB", requires = "engine")]
    pub memory_gib: Option<f64>,
    /// Where the weights are on the server, if not on Hugging Face
    #[arg(long, value_name = "PATH", requires = "engine")]
    pub path: Option<String>,
}

#[derive(Debug, Args)]
pub struct CordonArgs {
    /// Its name, index or UUID
    pub device: String,
    /// Why, for others to see
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// When it is expected to be over, as 2h or 2026-01-31T20:15:00Z
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// Cut the requests in flight instead of letting them finish
    #[arg(long)]
    pub now: bool,
    /// Return at once; `devices` tells how far it is
    #[arg(long)]
    pub no_wait: bool,
}

/// How a model is to be loaded. What is absent is left to the model's own settings.
#[derive(Clone, Debug, Default, Args)]
pub struct Wish {
    /// Load it with this priority; 2 and above is always-hot
    #[arg(long, value_name = "N")]
    pub priority: Option<u32>,
    /// How long it stays after its last request, as 10m
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub keep_hot: Option<String>,
    /// How long the priority and keep-hot given here last, as 2h
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub lease: Option<String>,
    /// GPUs for each replica
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub gpus: Option<u32>,
    /// How many replicas
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub replicas: Option<u32>,
    /// Evict also what only an administrator may evict, always-hot models included
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("change").required(true).multiple(true)))]
pub struct SetArgs {
    pub model: String,
    /// The priority; none goes back to the model's own
    #[arg(long, value_name = "N|none", group = "change", value_parser = priority_or_none)]
    pub priority: Option<Change<u32>>,
    /// How long it stays after its last request; none goes back to the model's own
    #[arg(long, value_name = "TIME|none", group = "change", value_parser = duration_or_none)]
    pub keep_hot: Option<Change<String>>,
    /// How long these settings last; none makes them last until changed
    #[arg(long, value_name = "TIME|none", group = "change", value_parser = duration_or_none)]
    pub lease: Option<Change<String>>,
}

#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// List all keys, without the keys themselves
    List,
    /// Create a key and show it once
    Create {
        name: String,
        #[arg(long, value_enum)]
        role: Role,
        /// How long it is valid, as 30d; without it until revoked
        #[arg(long, value_name = "TIME", value_parser = duration)]
        expires: Option<String>,
        #[command(flatten)]
        allowed: KeyArgs,
    },
    /// Change what a key may be used for, how much, and until when
    Set {
        /// As `keys list` shows it
        id: String,
        #[arg(long)]
        name: Option<String>,
        /// How long it is valid from now, as 30d; none: until it is revoked
        #[arg(long, value_name = "TIME", value_parser = duration_or_none)]
        expires: Option<Change<String>>,
        #[command(flatten)]
        allowed: KeyArgs,
        /// Take its own limits away: the server's default counts again
        #[arg(long, conflicts_with_all = ["requests_per_minute", "tokens_per_minute", "concurrent_requests", "tokens_per_day"])]
        default_limits: bool,
    },
    /// Revoke a key by its id
    Revoke { id: String },
}

/// What a key may be used for. Limits that are not given stay as they are.
#[derive(Debug, Args)]
pub struct KeyArgs {
    /// Models it may use, as names or patterns such as tiny-*; with an empty text all
    #[arg(long, value_name = "MODEL,…", value_delimiter = ',')]
    pub models: Option<Vec<String>>,
    /// Routes it may ask, such as /v1/embeddings or /admin/*; with an empty text all of its role
    #[arg(long, value_name = "ROUTE,…", value_delimiter = ',')]
    pub routes: Option<Vec<String>>,
    #[arg(long, value_name = "N")]
    pub requests_per_minute: Option<u32>,
    /// Tokens of prompts and answers
    #[arg(long, value_name = "N")]
    pub tokens_per_minute: Option<u64>,
    /// Requests that wait or are answered at the same time
    #[arg(long, value_name = "N")]
    pub concurrent_requests: Option<u32>,
    #[arg(long, value_name = "N")]
    pub tokens_per_day: Option<u64>,
    /// Whether what is asked with it stands in the server's access log
    #[arg(long, value_name = "true|false")]
    pub log_prompts: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Role {
    User,
    Admin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CleanupMode {
    /// Every replica, whatever its priority
    All,
    /// Only what serves nobody just now
    Idle,
}

/// A setting that is given a value, or given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<T> {
    To(T),
    Clear,
}

/// A secret that never shows in `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(pub String);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(hidden)")
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Key {
        Key(text.trim().to_owned())
    }
}

/// A time such as `10m` or `1h 30m`, checked here and sent as it was written.
fn duration(text: &str) -> Result<String, String> {
    humantime::parse_duration(text)
        .map(|_| text.trim().to_owned())
        .map_err(|error| format!("{error}; write a time as 30s, 10m, 2h or 7d"))
}

fn duration_or_none(text: &str) -> Result<Change<String>, String> {
    match text {
        "none" => Ok(Change::Clear),
        _ => duration(text).map(Change::To),
    }
}

fn priority_or_none(text: &str) -> Result<Change<u32>, String> {
    match text {
        "none" => Ok(Change::Clear),
        _ => text
            .parse()
            .map(Change::To)
            .map_err(|_| "a priority is a whole number from 0, or none".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use clap::error::ErrorKind;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split_whitespace())
    }

    fn refusal(line: &str) -> ErrorKind {
        parse(line).expect_err(line).kind()
    }

    #[test]
    fn the_definition_of_the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn load_takes_every_flag_of_the_interface() {
        let cli = parse(
            "admin-client load org/m --priority 3 --keep-hot 10m --lease 2h --gpus 2 --replicas 4 --force --no-wait",
        )
        .expect("parses");
        let Command::Load(load) = cli.command else {
            panic!("not a load: {:?}", cli.command);
        };
        assert_eq!(load.model, "org/m");
        assert_eq!(load.wish.priority, Some(3));
        assert_eq!(load.wish.keep_hot.as_deref(), Some("10m"));
        assert_eq!(load.wish.lease.as_deref(), Some("2h"));
        assert_eq!((load.wish.gpus, load.wish.replicas), (Some(2), Some(4)));
        assert!(load.wish.force && load.no_wait && !load.dry_run);
    }

    #[test]
    fn a_time_that_is_none_and_a_count_of_zero_are_wrong_usage() {
        assert_eq!(
            refusal("admin-client load m --lease soon"),
            ErrorKind::ValueValidation
        );
        assert_eq!(
            refusal("admin-client load m --gpus 0"),
            ErrorKind::ValueValidation
        );
        assert_eq!(
            refusal("admin-client plan m --priority=-1"),
            ErrorKind::ValueValidation
        );
    }

    #[test]
    fn set_wants_at_least_one_change_and_takes_none_to_clear() {
        assert_eq!(
            refusal("admin-client set m"),
            ErrorKind::MissingRequiredArgument
        );
        let cli = parse("admin-client set m --priority none --keep-hot 5m").expect("parses");
        let Command::Set(set) = cli.command else {
            panic!("not a set: {:?}", cli.command);
        };
        assert_eq!(set.priority, Some(Change::Clear));
        assert_eq!(set.keep_hot, Some(Change::To("5m".to_owned())));
        assert_eq!(set.lease, None);
    }

    #[test]
    fn the_global_flags_may_follow_the_command() {
        let cli = parse("admin-client models --json --server http://h:1").expect("parses");
        assert!(cli.json);
        assert_eq!(cli.server, "http://h:1");
    }

    #[test]
    fn a_key_does_not_show_in_debug_output() {
        let cli = parse("admin-client models --key mp-secret").expect("parses");
        assert!(!format!("{cli:?}").contains("secret"));
    }

    #[test]
    fn a_key_needs_a_role() {
        assert_eq!(
            refusal("admin-client keys create ann"),
            ErrorKind::MissingRequiredArgument
        );
        assert!(parse("admin-client keys create ann --role user --expires 30d").is_ok());
    }
}
