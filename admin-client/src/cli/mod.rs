//! The command line: names, flags and the checks that need no server.
//! One file because the help of every command is made from these types.

mod batches;
mod groups;
pub mod help;
mod keys;
mod limits;
mod load_settings;
mod nodes;
mod values;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use client::Key;

pub use batches::{BatchesArgs, BatchesCommand};
pub use groups::{GroupArgs, GroupsArgs, GroupsCommand};
pub use keys::{KeyArgs, KeysCommand, Role};
pub use load_settings::LoadSettings;
use load_settings::WISH;
pub use nodes::{DrainArgs, NodesArgs, NodesCommand};
pub use values::Change;
use values::{
    context, duration_or_none, entries, gpus, lines, memory_gib, model_priority, priority,
    priority_or_none, screens,
};

const EVERYWHERE: &str = "Options of every command";

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
        help_heading = EVERYWHERE,
        env = "MODEL_POOL_SERVER",
        value_name = "URL",
        default_value = "http://127.0.0.1:8080"
    )]
    pub server: String,
    /// The admin key. Prefer MODEL_POOL_ADMIN_KEY: other users can read the command line
    #[arg(
        long,
        global = true,
        help_heading = EVERYWHERE,
        env = "MODEL_POOL_ADMIN_KEY",
        value_name = "KEY",
        hide_env_values = true
    )]
    pub key: Option<Key>,
    /// The file with the admin key; the default for a server on this machine is ./data/admin.key
    #[arg(
        long,
        global = true,
        help_heading = EVERYWHERE,
        env = "MODEL_POOL_ADMIN_KEY_FILE",
        value_name = "FILE"
    )]
    pub key_file: Option<PathBuf>,
    /// A PEM file with certificate authorities to trust in addition to the system's, or with the server's own certificate
    #[arg(
        long,
        global = true,
        help_heading = EVERYWHERE,
        env = "MODEL_POOL_CA_FILE",
        value_name = "FILE"
    )]
    pub ca_file: Option<PathBuf>,
    /// Print the server's JSON unchanged; streams print one object per line
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    pub json: bool,
    /// Show all columns and complete texts, even beyond the terminal's width
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    pub wide: bool,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Load a model: show what it evicts, load it, show the result
    #[command(after_help = "Example: admin-client load org/m --priority 1 --lease 2h")]
    Load(LoadArgs),
    /// Drain and unload a model, or one replica of it
    #[command(after_help = "Example: admin-client unload org/m")]
    Unload {
        /// The model's name or an alias
        model: String,
        /// Only this replica, such as r3
        #[arg(long, value_name = "REPLICA")]
        replica: Option<String>,
        /// Cut the requests in flight instead of letting them finish
        #[arg(long)]
        now: bool,
    },
    /// Preview a load, a cordon or a priority without changing anything
    #[command(after_help = "Example: admin-client plan --if-cordoned gpu1 --if-priority org/m=2")]
    Plan {
        /// The model's name or an alias
        #[arg(required_unless_present_any = ["if_cordoned", "if_priority"], conflicts_with_all = ["if_cordoned", "if_priority"])]
        model: Option<String>,
        #[command(flatten)]
        wish: LoadSettings,
        /// Assume that this device is out of service; repeatable
        #[arg(long, value_name = "DEVICE", conflicts_with_all = WISH)]
        if_cordoned: Vec<String>,
        /// Assume that this model has this priority; repeatable
        #[arg(long, value_name = "MODEL=N", value_parser = model_priority, conflicts_with_all = WISH)]
        if_priority: Vec<(String, u32)>,
    },
    /// List all models: state, priority, memory, waiting requests
    #[command(after_help = "Example: admin-client models")]
    Models,
    /// Show one model with its replicas
    #[command(after_help = "Example: admin-client show org/m --as-file > org-m.yaml")]
    Show {
        /// The model's name or an alias
        model: String,
        /// Print a model file with the settings in force
        #[arg(long)]
        as_file: bool,
    },
    /// Change a model's priority, keep-hot time or lease
    #[command(after_help = "Example: admin-client set org/m --keep-hot 1h")]
    Set(SetArgs),
    /// Register a model from a file, or from Hugging Face by its name
    #[command(after_help = "Example: admin-client register org/m --engine vllm --gpus 2")]
    Register(RegisterArgs),
    /// Remove a registered model from the catalogue
    #[command(after_help = "Example: admin-client remove org/m")]
    Remove {
        /// The name of a registered model
        model: String,
    },
    /// Show each device's memory by owner
    #[command(after_help = "Example: admin-client devices")]
    Devices,
    /// Take a device out of service: it drains and stays empty
    #[command(after_help = "Example: admin-client cordon gpu3 --reason 'new fans' --until 2h")]
    Cordon(CordonArgs),
    /// Put a device back into service
    #[command(after_help = "Example: admin-client uncordon gpu3")]
    Uncordon {
        /// The device's name, index or UUID
        device: String,
    },
    /// Show the waiting requests and the orders in progress
    #[command(after_help = "Example: admin-client queue")]
    Queue,
    /// Show the groups of callers and their use, set one, or remove one
    #[command(
        after_help = "Example: admin-client groups set course --weight 2 --keys k3,k4 --tokens 10M --at-end refuse"
    )]
    Groups(GroupsArgs),
    /// List the batches of all keys, or pause, order and cancel them
    #[command(after_help = "Example: admin-client batches")]
    Batches(BatchesArgs),
    /// Show what the pool did and why
    #[command(
        after_help = "Example: admin-client events --since 2d --model org/m --reason preempted"
    )]
    Events(EventsArgs),
    /// Show the decision behind an event, or a model's last decision
    #[command(after_help = "Example: admin-client why org/m")]
    Why {
        /// A model's name, or an event's number, such as 118
        #[arg(value_name = "MODEL|EVENT")]
        what: String,
    },
    /// Summarize a period: loads, evictions, waits and failures
    #[command(after_help = "Example: admin-client report --week --csv > week.csv")]
    Report(ReportArgs),
    /// Show who used the devices in a month, and who held them idle
    #[command(after_help = "Example: admin-client usage --month 2026-11 --csv > november.csv")]
    Usage(UsageArgs),
    /// Rank the models by votes from the playground
    #[command(after_help = "Example: admin-client leaderboard")]
    Leaderboard,
    /// Show the output of a model's engines
    #[command(after_help = "Example: admin-client logs org/m --follow")]
    Logs {
        /// The model's name or an alias
        model: String,
        /// Keep printing new lines
        #[arg(long, short)]
        follow: bool,
        /// Number of past lines
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = lines, allow_negative_numbers = true)]
        tail: u32,
        /// Only this replica, such as r3
        #[arg(long, value_name = "REPLICA")]
        replica: Option<String>,
    },
    /// Watch and steer the pool on one screen; ? lists the keys, q exits
    #[command(after_help = "Example: admin-client top")]
    Top {
        /// Exit after this many seconds; in a pipe, print this many screens instead of one
        #[arg(long, value_name = "N", value_parser = screens, allow_negative_numbers = true)]
        times: Option<u32>,
        /// Print one picture of the screen and exit, also in a pipe
        #[arg(long, conflicts_with = "times")]
        once: bool,
    },
    /// Chat with a model in the terminal
    #[command(after_help = "Example: admin-client chat org/m --system 'Answer in one sentence.'")]
    Chat(Box<terminal::ConversationArgs>),
    /// Run the evening cleanup now: drain and unload every replica
    #[command(after_help = "Example: admin-client cleanup --preview")]
    Cleanup {
        /// Only show what would be unloaded
        #[arg(long)]
        preview: bool,
        /// The replicas to unload
        #[arg(long, value_enum, default_value_t = CleanupMode::All)]
        mode: CleanupMode,
        /// Do not ask for confirmation
        #[arg(long, short)]
        yes: bool,
    },
    /// Unload everything and clear all failures
    #[command(after_help = "Example: admin-client reset --yes")]
    Reset {
        /// Do not ask for confirmation
        #[arg(long, short)]
        yes: bool,
    },
    /// Read configuration and model files again, and apply the changes
    ///
    /// Lists the configuration keys that need a restart.
    #[command(after_help = "Example: admin-client reload")]
    Reload,
    /// Show the effective configuration, without secrets
    #[command(after_help = "Example: admin-client config")]
    Config,
    /// Show who changed what, including refused attempts
    #[command(after_help = "Example: admin-client audit --of k3 --limit 20")]
    Audit(AuditArgs),
    /// List the pool's machines, let others join, or drain one
    #[command(after_help = "Example: admin-client nodes token > join-token")]
    Nodes(NodesArgs),
    /// Create, list, change and revoke API keys
    #[command(after_help = "Example: admin-client keys create ann --role user --expires 30d")]
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Print the completion script of a shell
    #[command(
        after_help = "Example: admin-client completions bash > /etc/bash_completion.d/admin-client"
    )]
    Completions { shell: Shell },
}

#[derive(Debug, Args)]
pub struct EventsArgs {
    /// Keep printing new events
    #[arg(long, short)]
    pub follow: bool,
    /// Only events of this model
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Only events of this kind, such as evict
    #[arg(long, value_name = "KIND")]
    pub kind: Option<String>,
    /// Only events with this reason, such as preempted, keep_hot or no_room
    #[arg(long, value_name = "REASON")]
    pub reason: Option<String>,
    /// Only events that this key caused: its id, its name, or anonymous
    #[arg(long, value_name = "KEY")]
    pub by: Option<String>,
    /// Only events that members of this group or of the groups below it caused: a name, or a path such as physics/lab
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
    /// Only events since this time: an age such as 2d, or a time such as 2026-01-31T20:15:00Z
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Only events before this time
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// Number of past events; the default is 100, or none with --follow
    #[arg(long, value_name = "N", value_parser = entries, allow_negative_numbers = true)]
    pub limit: Option<u32>,
}

#[derive(Debug, Args)]
pub struct AuditArgs {
    /// Number of entries; the newest are shown
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = entries, allow_negative_numbers = true)]
    pub limit: u32,
    /// Only entries of this key (by its id) or of this single sign-on subject
    #[arg(long, value_name = "KEY-ID|SUBJECT")]
    pub of: Option<String>,
    /// Only entries of routes with this prefix, such as /admin/keys
    #[arg(long, value_name = "PATH")]
    pub path: Option<String>,
    /// Only entries of members of this group and of the groups below it, and of changes of their keys
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
}

#[derive(Debug, Args)]
pub struct LoadArgs {
    /// The model's name or an alias
    pub model: String,
    #[command(flatten)]
    pub wish: LoadSettings,
    /// Return as soon as the load has started
    #[arg(long)]
    pub no_wait: bool,
    /// Only show the plan, as `plan` does
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, Args)]
pub struct RegisterArgs {
    /// A model file, - for standard input, or a model's name such as org/model
    #[arg(value_name = "FILE|MODEL")]
    pub what: String,
    /// The engine that runs it: vllm, sglang, tgi, llama-cpp, tei, trtllm, candle, or a type from model files
    #[arg(long)]
    pub engine: Option<String>,
    /// GPUs per replica
    #[arg(long, value_name = "N", requires = "engine", value_parser = gpus, allow_negative_numbers = true)]
    pub gpus: Option<u32>,
    /// Priority: 0 is lowest, 2 and above is always-hot
    #[arg(long, value_name = "N", requires = "engine", value_parser = priority, allow_negative_numbers = true)]
    pub priority: Option<u32>,
    /// Maximum tokens of prompt and response together
    #[arg(long, value_name = "TOKENS", requires = "engine", value_parser = context, allow_negative_numbers = true)]
    pub context: Option<u32>,
    /// Memory of one replica on all its GPUs together; the default is estimated from the weights
    #[arg(long, value_name = "GIB", requires = "engine", value_parser = memory_gib, allow_negative_numbers = true)]
    pub memory_gib: Option<f64>,
    /// Path of the weights on the server, if they are not on Hugging Face
    #[arg(long, value_name = "PATH", requires = "engine")]
    pub path: Option<String>,
}

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The last seven days, the default
    #[arg(long, conflicts_with_all = ["from", "day"])]
    pub week: bool,
    /// The last 24 hours
    #[arg(long, conflicts_with = "from")]
    pub day: bool,
    /// The start of the period: an age such as 30d, or a time such as 2026-01-31T20:15:00Z
    #[arg(long, value_name = "TIME")]
    pub from: Option<String>,
    /// The end of the period; the default is now
    #[arg(long, value_name = "TIME")]
    pub to: Option<String>,
    /// Print CSV, for spreadsheets
    #[arg(long, conflicts_with_all = ["html", "json"])]
    pub csv: bool,
    /// With --csv, print a line for each group of callers instead of each model
    #[arg(long, requires = "csv")]
    pub by_group: bool,
    /// Print an HTML page, for example for mail
    #[arg(long, conflicts_with = "json")]
    pub html: bool,
}

#[derive(Debug, Args)]
pub struct UsageArgs {
    /// The month; the default is the current one
    #[arg(long, value_name = "YYYY-MM")]
    pub month: Option<String>,
    /// Only this group and the groups below it
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
    /// Only this model
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Only this key: an id such as k3, a name, anonymous, or administrator
    #[arg(long = "of", value_name = "KEY")]
    pub of: Option<String>,
    /// Print CSV, for spreadsheets
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
}

#[derive(Debug, Args)]
pub struct CordonArgs {
    /// The device's name, index or UUID
    pub device: String,
    #[command(flatten)]
    pub how: OutOfServiceArgs,
}

/// Options for taking a device or a node out of service.
#[derive(Debug, Args)]
pub struct OutOfServiceArgs {
    /// The reason, shown to other people
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Expected end, such as 2h or 2026-01-31T20:15:00Z; only shown, service does not resume on its own
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// Cut the requests in flight instead of letting them finish
    #[arg(long)]
    pub now: bool,
    /// Return immediately; `devices` or `nodes list` shows what still drains
    #[arg(long)]
    pub no_wait: bool,
}

#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("change").required(true).multiple(true)))]
pub struct SetArgs {
    /// The model's name or an alias
    pub model: String,
    /// The priority; none removes the override
    #[arg(long, value_name = "N|none", group = "change", value_parser = priority_or_none, allow_negative_numbers = true)]
    pub priority: Option<Change<u32>>,
    /// Time that the model stays loaded after its last request; none removes the override
    #[arg(long, value_name = "TIME|none", group = "change", value_parser = duration_or_none, allow_hyphen_values = true)]
    pub keep_hot: Option<Change<String>>,
    /// Duration of the overrides, during which a loaded model stays loaded; none: until they are changed
    #[arg(long, value_name = "TIME|none", group = "change", value_parser = duration_or_none, allow_hyphen_values = true)]
    pub lease: Option<Change<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CleanupMode {
    /// Every replica, whatever its priority
    All,
    /// Only replicas without requests in flight
    Idle,
}

#[cfg(test)]
mod tests;
