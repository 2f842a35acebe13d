//! The command line of `groups`.

use clap::{Args, Subcommand, ValueEnum};

use super::limits::LimitArgs;
use super::values::{limit, priority};

/// `groups`, which lists without a further word.
#[derive(Debug, Args)]
pub struct GroupsArgs {
    #[command(subcommand)]
    pub command: Option<GroupsCommand>,
}

#[derive(Debug, Subcommand)]
pub enum GroupsCommand {
    /// List the groups with their shares, requests, use and quotas
    #[command(after_help = "Example: admin-client groups list")]
    List,
    /// Create a group, or replace it completely: absent options get their defaults. Limits count all members together
    #[command(
        after_help = "Example: admin-client groups set lab --parent physics --keys k3,k4 --gpu-hours 100 --at-end lowest"
    )]
    Set(Box<GroupArgs>),
    /// Remove a group; its members count as callers without a group
    #[command(after_help = "Example: admin-client groups remove course")]
    Remove {
        /// The name of a group that was set with this command
        group: String,
    },
}

/// The options of a group. Limits apply to all members together.
#[derive(Debug, Args)]
pub struct GroupArgs {
    /// The name of the group
    pub group: String,
    /// The group that contains it
    #[arg(long, value_name = "GROUP")]
    pub parent: Option<String>,
    /// The share among the groups with the same parent, 1 to 1000
    #[arg(long, value_name = "N", value_parser = limit, allow_negative_numbers = true)]
    pub weight: Option<u32>,
    /// The part of the service in thousandths for requests of the class priority
    #[arg(long, value_name = "N", value_parser = limit, allow_negative_numbers = true)]
    pub reserved_permille: Option<u32>,
    /// The highest class of its requests
    #[arg(long, value_enum)]
    pub class_max: Option<Class>,
    /// The highest model priority that its members may request
    #[arg(long, value_name = "N", value_parser = priority, allow_negative_numbers = true)]
    pub priority_max: Option<u32>,
    /// Models that its members may use: names, or patterns such as tiny-*
    #[arg(long, value_name = "MODEL,…", value_delimiter = ',')]
    pub models: Option<Vec<String>>,
    /// API keys, each by its id or name
    #[arg(long, value_name = "KEY,…", value_delimiter = ',')]
    pub keys: Option<Vec<String>>,
    /// Values of the sign-on claim
    #[arg(long, value_name = "CLAIM,…", value_delimiter = ',')]
    pub claims: Option<Vec<String>>,
    /// Quota of a month in GPU hours
    #[arg(long, value_name = "HOURS", allow_negative_numbers = true)]
    pub gpu_hours: Option<f64>,
    /// Quota of a month in tokens, such as 10M
    #[arg(long, value_name = "TOKENS", allow_hyphen_values = true)]
    pub tokens: Option<String>,
    /// The effect of a used-up quota
    #[arg(long, value_enum)]
    pub at_end: Option<AtEnd>,
    #[command(flatten)]
    pub limits: LimitArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Class {
    /// Served while no other request waits for the model
    Flex,
    /// Served by the share of the group
    Default,
    /// Served first within the reserved share
    Priority,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AtEnd {
    /// Serve as before, and say so in the log
    Warn,
    /// Serve while no other request waits
    Lowest,
    /// Refuse until the month ends
    Refuse,
}
