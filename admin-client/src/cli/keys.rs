//! The command line of `keys`.

use clap::{Args, Subcommand, ValueEnum};

use super::limits::LimitArgs;
use super::values::{Change, duration, duration_or_none, text_or_none};

#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// List all keys without their secrets
    #[command(after_help = "Example: admin-client keys list")]
    List,
    /// Create a key and show it once
    #[command(
        after_help = "Example: admin-client keys create ann --role user --models 'tiny-*' --expires 30d"
    )]
    Create {
        /// The name of the key's owner
        name: String,
        #[arg(long, value_enum)]
        role: Role,
        /// Validity of the key, such as 30d; without it, the key never expires
        #[arg(long, value_name = "TIME", value_parser = duration, allow_hyphen_values = true)]
        expires: Option<String>,
        /// The key's group; by default the group that lists the key, or the group of the administrator that creates it
        #[arg(long)]
        group: Option<String>,
        #[command(flatten)]
        allowed: KeyArgs,
    },
    /// Change a key's name, expiry, group, models, routes or limits
    #[command(after_help = "Example: admin-client keys set k3 --requests-per-minute 60")]
    Set {
        /// The key's id, from `keys list`
        id: String,
        #[arg(long)]
        name: Option<String>,
        /// Validity of the key from now, such as 30d, or none for a key that never expires
        #[arg(long, value_name = "TIME", value_parser = duration_or_none, allow_hyphen_values = true)]
        expires: Option<Change<String>>,
        /// The key's group, or none for the group that lists the key
        #[arg(long, value_parser = text_or_none)]
        group: Option<Change<String>>,
        #[command(flatten)]
        allowed: KeyArgs,
        /// Remove the key's limits; the server's default limits apply again
        #[arg(long, conflicts_with = "LimitArgs")]
        default_limits: bool,
    },
    /// Revoke a key by its id
    #[command(after_help = "Example: admin-client keys revoke k3")]
    Revoke {
        /// The key's id, from `keys list`
        id: String,
        /// Revoke the key without confirmation, even if this command uses it
        #[arg(long, short)]
        yes: bool,
    },
}

/// The limits and permissions of a key. Absent options stay unchanged.
#[derive(Debug, Args)]
pub struct KeyArgs {
    /// Models the key may use: names, or patterns such as tiny-*; `keys set --models ''` allows all
    #[arg(long, value_name = "MODEL,…", value_delimiter = ',')]
    pub models: Option<Vec<String>>,
    /// Routes the key may use, such as /v1/embeddings or /admin/*; `keys set --routes ''` allows all of its role
    #[arg(long, value_name = "ROUTE,…", value_delimiter = ',')]
    pub routes: Option<Vec<String>>,
    #[command(flatten)]
    pub limits: LimitArgs,
    /// Include the key's prompts in the server's access log
    #[arg(long, value_name = "true|false")]
    pub log_prompts: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Uses models
    User,
    /// Administers the pool
    Admin,
    /// Reads everything that administrators can read, without changing it
    Viewer,
    /// Uses models, and administers its group and the groups below it
    GroupAdmin,
}
