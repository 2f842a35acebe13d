//! The command line: names, flags and the checks that need no server.

use std::fmt;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

/// Administers a model pool: loads and unloads models, sets priorities, shows what was evicted and why.
#[derive(Debug, Parser)]
#[command(
    name = "admin-client",
    version,
    arg_required_else_help = true,
    after_help = "Exit status: 0 success, 1 refused or failed, 2 wrong usage, 3 cannot reach the server."
)]
pub struct Cli {
    /// The server's URL; the base path is /llm unless the URL has a path
    #[arg(
        long,
        global = true,
        env = "MODEL_POOL_SERVER",
        value_name = "URL",
        default_value = "http://127.0.0.1:8080"
    )]
    pub server: String,
    /// The admin key. Prefer MODEL_POOL_ADMIN_KEY: other users can read the command line
    #[arg(
        long,
        global = true,
        env = "MODEL_POOL_ADMIN_KEY",
        value_name = "KEY",
        hide_env_values = true
    )]
    pub key: Option<Key>,
    /// The file with the admin key; the default for a server on this machine is ./data/admin.key
    #[arg(
        long,
        global = true,
        env = "MODEL_POOL_ADMIN_KEY_FILE",
        value_name = "FILE"
    )]
    pub key_file: Option<PathBuf>,
    /// Print the server's JSON unchanged; streams print one object per line
    #[arg(long, global = true)]
    pub json: bool,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Load a model: show what it evicts, load it, show the result
    Load(LoadArgs),
    /// Drain and unload a model, or one replica of it
    Unload {
        model: String,
        /// Only this replica, such as r3
        #[arg(long, value_name = "REPLICA")]
        replica: Option<String>,
        /// Cut the requests in flight instead of letting them finish
        #[arg(long)]
        now: bool,
    },
    /// Show what a load would evict. Nothing changes
    Plan {
        model: String,
        #[command(flatten)]
        wish: Wish,
    },
    /// List all models: state, priority, memory, waiting requests
    Models,
    /// Show one model with its replicas
    Show { model: String },
    /// Change a model's priority, keep-hot time or lease
    Set(SetArgs),
    /// Register a model from a YAML or JSON file, or a Hugging Face model by its name and engine
    Register(RegisterArgs),
    /// Remove a registered model from the catalogue
    Remove { model: String },
    /// Show each device's memory by owner
    Devices,
    /// Take a device out of service: nothing new is placed on it, and what it holds drains
    Cordon(CordonArgs),
    /// Put a device back into service
    Uncordon {
        /// The device's name, index or UUID
        device: String,
    },
    /// Show the waiting requests and the orders in progress
    Queue,
    /// Show what the pool did and why
    Events {
        /// Keep printing new events
        #[arg(long, short)]
        follow: bool,
        /// Only events of this model
        #[arg(long, value_name = "MODEL")]
        model: Option<String>,
        /// Only events of this kind, such as evicted
        #[arg(long, value_name = "KIND")]
        kind: Option<String>,
        /// Number of past events; the default is 100, or none with --follow
        #[arg(long, value_name = "N")]
        limit: Option<u32>,
    },
    /// Show the output of a model's engines
    Logs {
        model: String,
        /// Keep printing new lines
        #[arg(long, short)]
        follow: bool,
        /// Number of past lines
        #[arg(long, value_name = "N", default_value_t = 100)]
        tail: u32,
        /// Only this replica, such as r3
        #[arg(long, value_name = "REPLICA")]
        replica: Option<String>,
    },
    /// Watch devices, models and queue; q or Ctrl-C exits
    Top {
        /// Exit after this many screens; the default is 1 if the output is not a terminal, otherwise no limit
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        times: Option<u32>,
    },
    /// Run the evening cleanup now: drain and unload every replica
    Cleanup {
        /// Only show what would be unloaded
        #[arg(long)]
        preview: bool,
        /// Which replicas to unload
        #[arg(long, value_enum, default_value_t = CleanupMode::All)]
        mode: CleanupMode,
        /// Do not ask for confirmation
        #[arg(long, short)]
        yes: bool,
    },
    /// Unload everything and clear all failures
    Reset {
        /// Do not ask for confirmation
        #[arg(long, short)]
        yes: bool,
    },
    /// Read the model files and the model reference again and apply the changes
    Reload,
    /// Show the effective configuration, without secrets
    Config,
    /// Show who changed what, including refused attempts
    Audit {
        /// Number of entries; the newest are shown
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        /// Only entries of this key (by its id) or of this single sign-on subject
        #[arg(long, value_name = "KEY-ID|SUBJECT")]
        of: Option<String>,
        /// Only entries of routes with this prefix, such as /admin/keys
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
    /// A file, - for standard input, or, with --engine, a name such as org/model
    #[arg(value_name = "FILE|MODEL")]
    pub what: String,
    /// The engine that runs it: vllm, sglang, tgi, llama-cpp, tei, trtllm, candle, or a type from model files
    #[arg(long)]
    pub engine: Option<String>,
    /// GPUs per replica
    #[arg(long, value_name = "N", requires = "engine")]
    pub gpus: Option<u32>,
    /// 0 is lowest; 2 and above is always-hot
    #[arg(long, value_name = "N", requires = "engine")]
    pub priority: Option<u32>,
    /// Maximum tokens of prompt and answer together
    #[arg(long, value_name = "TOKENS", requires = "engine")]
    pub context: Option<u32>,
    /// Memory of one replica on all its GPUs together; the default is estimated from the weights
    #[arg(long, value_name = "GIB", requires = "engine")]
    pub memory_gib: Option<f64>,
    /// Path of the weights on the server, if they are not on Hugging Face
    #[arg(long, value_name = "PATH", requires = "engine")]
    pub path: Option<String>,
}

#[derive(Debug, Args)]
pub struct CordonArgs {
    /// The device's name, index or UUID
    pub device: String,
    /// The reason, shown to other people
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// When you expect to end it, such as 2h or 2026-01-31T20:15:00Z; it does not end by itself
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// Cut the requests in flight instead of letting them finish
    #[arg(long)]
    pub now: bool,
    /// Return at once; `devices` shows what still drains
    #[arg(long)]
    pub no_wait: bool,
}

/// Settings of a load. Absent ones come from the model.
#[derive(Clone, Debug, Default, Args)]
pub struct Wish {
    /// Load with this priority; 0 is lowest, 2 and above is always-hot
    #[arg(long, value_name = "N")]
    pub priority: Option<u32>,
    /// How long the model stays after its last request, such as 10m
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub keep_hot: Option<String>,
    /// How long this priority and keep-hot time last, such as 2h
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub lease: Option<String>,
    /// GPUs per replica
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub gpus: Option<u32>,
    /// Number of replicas
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub replicas: Option<u32>,
    /// Also evict what only an administrator may evict, including always-hot models
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("change").required(true).multiple(true)))]
pub struct SetArgs {
    pub model: String,
    /// The priority; none removes the override
    #[arg(long, value_name = "N|none", group = "change", value_parser = priority_or_none)]
    pub priority: Option<Change<u32>>,
    /// How long the model stays after its last request; none removes the override
    #[arg(long, value_name = "TIME|none", group = "change", value_parser = duration_or_none)]
    pub keep_hot: Option<Change<String>>,
    /// How long the overrides last; none: until they are changed
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
        /// How long the key is valid, such as 30d; without it, until it is revoked
        #[arg(long, value_name = "TIME", value_parser = duration)]
        expires: Option<String>,
        #[command(flatten)]
        allowed: KeyArgs,
    },
    /// Change what a key may be used for, how much, and until when
    Set {
        /// The key's id, from `keys list`
        id: String,
        #[arg(long)]
        name: Option<String>,
        /// How long the key is valid from now, such as 30d; none: until it is revoked
        #[arg(long, value_name = "TIME", value_parser = duration_or_none)]
        expires: Option<Change<String>>,
        #[command(flatten)]
        allowed: KeyArgs,
        /// Remove the key's limits; the server's default limits apply again
        #[arg(long, conflicts_with_all = ["requests_per_minute", "tokens_per_minute", "concurrent_requests", "tokens_per_day"])]
        default_limits: bool,
    },
    /// Revoke a key by its id
    Revoke { id: String },
}

/// What a key may be used for. Absent limits stay unchanged.
#[derive(Debug, Args)]
pub struct KeyArgs {
    /// Models the key may use: names, or patterns such as tiny-*; an empty text allows all
    #[arg(long, value_name = "MODEL,…", value_delimiter = ',')]
    pub models: Option<Vec<String>>,
    /// Routes the key may use, such as /v1/embeddings or /admin/*; an empty text allows all of its role
    #[arg(long, value_name = "ROUTE,…", value_delimiter = ',')]
    pub routes: Option<Vec<String>>,
    #[arg(long, value_name = "N")]
    pub requests_per_minute: Option<u32>,
    /// Tokens of prompts and answers
    #[arg(long, value_name = "N")]
    pub tokens_per_minute: Option<u64>,
    /// Requests that wait or run at the same time
    #[arg(long, value_name = "N")]
    pub concurrent_requests: Option<u32>,
    #[arg(long, value_name = "N")]
    pub tokens_per_day: Option<u64>,
    /// Whether the server's access log includes the key's prompts
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
    /// Only replicas without requests in flight
    Idle,
}

/// A new value for a setting, or the removal of its override.
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

/// A time such as `10m` or `1h 30m`, checked here and sent as written.
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
