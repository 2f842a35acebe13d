//! The limits of a key or a group.

use clap::Args;
use serde_json::{Value, json};

use super::values::{large_limit, limit};
use crate::session::present;

/// Limits of a key, or of all members of a group together. clap names the group of these options after this type.
#[derive(Debug, Args)]
pub struct LimitArgs {
    /// Requests per minute
    #[arg(long, value_name = "N", value_parser = limit, allow_negative_numbers = true)]
    pub requests_per_minute: Option<u32>,
    /// Tokens of prompts and responses per minute
    #[arg(long, value_name = "N", value_parser = large_limit, allow_negative_numbers = true)]
    pub tokens_per_minute: Option<u64>,
    /// Requests that wait or run at the same time
    #[arg(long, value_name = "N", value_parser = limit, allow_negative_numbers = true)]
    pub concurrent_requests: Option<u32>,
    /// Tokens of prompts and responses per day
    #[arg(long, value_name = "N", value_parser = large_limit, allow_negative_numbers = true)]
    pub tokens_per_day: Option<u64>,
}

impl LimitArgs {
    /// The limits that are present, as in a request; `None` without any.
    pub fn to_json(&self) -> Option<Value> {
        let limits = present(json!({
            "requests_per_minute": self.requests_per_minute,
            "tokens_per_minute": self.tokens_per_minute,
            "concurrent_requests": self.concurrent_requests,
            "tokens_per_day": self.tokens_per_day,
        }));
        Some(limits).filter(|limits| *limits != json!({}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::{CommandFactory, Parser};

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        limits: LimitArgs,
    }

    #[test]
    fn only_limits_that_are_present_are_sent() {
        let read = |line: &[&str]| {
            let words = std::iter::once("x").chain(line.iter().copied());
            let line = Line::try_parse_from(words).expect("a line");
            line.limits.to_json()
        };
        assert_eq!(read(&[]), None);
        let two = read(&["--tokens-per-day", "9", "--requests-per-minute", "1"]);
        assert_eq!(
            two,
            Some(json!({"requests_per_minute": 1, "tokens_per_day": 9}))
        );
    }

    #[test]
    fn keys_and_groups_have_all_limits() {
        let cli = Cli::command();
        let limits = <Line as CommandFactory>::command();
        let names: Vec<&str> = limits
            .get_arguments()
            .filter_map(|arg| arg.get_long())
            .collect();
        assert_eq!(names.len(), 4, "{names:?}");
        for path in [["keys", "create"], ["keys", "set"], ["groups", "set"]] {
            let command = cli.find_subcommand(path[0]).expect("a command");
            let command = command.find_subcommand(path[1]).expect("a command");
            let has = |name: &&str| {
                command
                    .get_arguments()
                    .any(|arg| arg.get_long() == Some(*name))
            };
            assert!(names.iter().all(has), "{path:?}");
        }
    }

    #[test]
    fn default_limits_exclude_every_limit() {
        for option in [
            "--requests-per-minute",
            "--tokens-per-minute",
            "--concurrent-requests",
            "--tokens-per-day",
        ] {
            let line = [
                "admin-client",
                "keys",
                "set",
                "k3",
                "--default-limits",
                option,
                "5",
            ];
            let error = Cli::try_parse_from(line).expect_err(option);
            assert!(error.to_string().contains("cannot be used with"), "{error}");
        }
    }
}
