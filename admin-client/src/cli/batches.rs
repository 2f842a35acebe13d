//! The command line of `batches`.

use clap::{Args, Subcommand, value_parser};

use super::values::entries;

/// `batches`, which lists without a further word.
#[derive(Debug, Args)]
pub struct BatchesArgs {
    #[command(subcommand)]
    pub command: Option<BatchesCommand>,
}

#[derive(Debug, Subcommand)]
pub enum BatchesCommand {
    /// List the batches of all keys with their progress, the latest first
    #[command(after_help = "Example: admin-client batches list --limit 20")]
    List {
        /// Number of batches
        #[arg(long, value_name = "N", default_value_t = BatchesCommand::LIMIT, value_parser = entries, allow_negative_numbers = true)]
        limit: u32,
        /// Only batches before the batch with this id
        #[arg(long, value_name = "ID")]
        after: Option<String>,
    },
    /// Start no more requests of a batch; requests that run may end
    #[command(after_help = "Example: admin-client batches pause batch_5c1f8e0b")]
    Pause {
        /// The batch's id, from `batches list`
        id: String,
    },
    /// Continue a paused batch
    #[command(after_help = "Example: admin-client batches resume batch_5c1f8e0b")]
    Resume {
        /// The batch's id
        id: String,
    },
    /// Order a batch among the batches for a model: the highest rank runs first, then the oldest batch
    #[command(after_help = "Example: admin-client batches rank batch_5c1f8e0b 10")]
    Rank {
        /// The batch's id
        id: String,
        /// The rank, -1000000 to 1000000; new batches have 0
        #[arg(value_name = "N", value_parser = value_parser!(i64).range(-1_000_000..=1_000_000), allow_negative_numbers = true)]
        rank: i64,
    },
    /// Cancel a batch: requests that run may end, and its holder can read the results so far
    #[command(after_help = "Example: admin-client batches cancel batch_5c1f8e0b")]
    Cancel {
        /// The batch's id
        id: String,
    },
}

impl BatchesCommand {
    /// The number of batches that are listed without `--limit`.
    pub const LIMIT: u32 = 100;
}
