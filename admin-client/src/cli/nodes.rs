//! The command line of `nodes`.

use clap::{Args, Subcommand};

use super::values::duration;

#[derive(Debug, Subcommand)]
pub enum NodesCommand {
    /// List the machines of the pool, and the tokens with which others may join
    #[command(after_help = "Example: admin-client nodes list")]
    List,
    /// Create a token with which machines join, and print it
    #[command(after_help = "Example: admin-client nodes token --expires 24h > join-token")]
    Token {
        /// How long machines may join with it, such as 24h, which is the default
        #[arg(long, value_name = "TIME", value_parser = duration, allow_hyphen_values = true)]
        expires: Option<String>,
    },
    /// Revoke a token; machines that have joined with it stay
    #[command(after_help = "Example: admin-client nodes revoke t2")]
    Revoke {
        /// The token's id, from `nodes list`
        id: String,
    },
    /// Take a machine out of service: it drains and stays empty
    #[command(
        after_help = "Example: admin-client nodes drain gpu-2 --reason 'new kernel' --until 2h"
    )]
    Drain(DrainArgs),
    /// Put a machine back into service
    #[command(after_help = "Example: admin-client nodes undrain gpu-2")]
    Undrain {
        /// The machine's name
        node: String,
    },
}

#[derive(Debug, Args)]
pub struct DrainArgs {
    /// The machine's name
    pub node: String,
    /// The reason, shown to other people
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// When you expect to end it, such as 2h or 2026-01-31T20:15:00Z; it does not end by itself
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// Cut the requests in flight instead of letting them finish
    #[arg(long)]
    pub now: bool,
    /// Return at once; `nodes list` shows what still drains
    #[arg(long)]
    pub no_wait: bool,
}
