//! The command line of `nodes`.

use clap::{Args, Subcommand};

use super::OutOfServiceArgs;
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
    #[command(flatten)]
    pub how: OutOfServiceArgs,
}
