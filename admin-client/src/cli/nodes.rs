//! The command line of `nodes`.

use clap::{Args, Subcommand};

use super::OutOfServiceArgs;
use super::values::duration;

/// `nodes`, which lists without a further word.
#[derive(Debug, Args)]
pub struct NodesArgs {
    #[command(subcommand)]
    pub command: Option<NodesCommand>,
}

#[derive(Debug, Subcommand)]
pub enum NodesCommand {
    /// List the pool's machines, and the tokens for joining it
    #[command(after_help = "Example: admin-client nodes list")]
    List,
    /// Create a token for machines to join with, and print it
    #[command(after_help = "Example: admin-client nodes token --expires 24h > join-token")]
    Token {
        /// Validity of the token, such as 24h, the default
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
