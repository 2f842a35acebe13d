//! Limits on requests and tokens, and where they are counted.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::problems::Problem;
use crate::values::Length;

/// Maximum use by a key, an address or a model. Null means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limit {
    /// Requests per minute (sliding), 1 to 1000000. A request refused by another limit may count.
    pub requests_per_minute: Option<u32>,
    /// Tokens of prompts and responses per minute (sliding), 1 to 1000000000. A request that started within the limit is finished;
    /// tokens above the limit delay later requests.
    pub tokens_per_minute: Option<u64>,
    /// Requests that are queued or running at the same time, 1 to 100000.
    pub concurrent_requests: Option<u32>,
    /// Tokens from midnight to midnight (`evening.timezone`), 1 to 1000000000000.
    pub tokens_per_day: Option<u64>,
}

pub const REQUESTS_PER_MINUTE_MAX: u32 = 1_000_000;
pub const TOKENS_PER_MINUTE_MAX: u64 = 1_000_000_000;
pub const CONCURRENT_MAX: u32 = 100_000;
pub const TOKENS_PER_DAY_MAX: u64 = 1_000_000_000_000;

impl Limit {
    pub fn is_none(&self) -> bool {
        *self == Limit::default()
    }

    /// Returns true if tokens are limited.
    pub fn has_tokens(&self) -> bool {
        self.tokens_per_minute.is_some() || self.tokens_per_day.is_some()
    }

    /// Returns invalid values, each with the allowed range.
    pub fn problems(&self, of: &str) -> Vec<Problem> {
        let figures = [
            (
                "requests_per_minute",
                self.requests_per_minute.map(u64::from),
                u64::from(REQUESTS_PER_MINUTE_MAX),
            ),
            (
                "tokens_per_minute",
                self.tokens_per_minute,
                TOKENS_PER_MINUTE_MAX,
            ),
            (
                "concurrent_requests",
                self.concurrent_requests.map(u64::from),
                u64::from(CONCURRENT_MAX),
            ),
            ("tokens_per_day", self.tokens_per_day, TOKENS_PER_DAY_MAX),
        ];
        let outside = figures
            .into_iter()
            .filter_map(|(name, figure, most)| Some((name, figure?, most)))
            .filter(|(_, figure, most)| !(1..=*most).contains(figure));
        outside
            .map(|(name, figure, most)| {
                let message = format!("is {figure}; allowed: 1 to {most}, or null for no limit");
                Problem::new(format!("{of}.{name}"), message)
            })
            .collect()
    }
}

/// Usage limits. Without limits nothing is counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsSection {
    /// For each key without its own limits.
    pub default: Limit,
    /// For each address that sends requests without a key; null: the same as `default`.
    pub anonymous: Option<Limit>,
    /// For each model, for all users together: its name, or a pattern with `*`. If several patterns match, the
    /// first in alphabetical order counts.
    pub models: BTreeMap<String, Limit>,
    /// A server that lets several gateways count together; null: each gateway counts separately.
    pub redis: Option<RedisSection>,
}

/// A Redis server that gateways share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RedisSection {
    /// `redis://HOST:PORT/DATABASE`, without a password.
    pub url: String,
    /// A file with the password, for servers that require one.
    #[serde(default)]
    pub password_file: Option<PathBuf>,
    /// The prefix of its keys. Gateways that count together use the same prefix.
    #[serde(default = "prefix")]
    pub prefix: String,
    /// Time that a request waits for the server's reply, 10ms to 10s.
    #[serde(default = "timeout")]
    pub timeout: Length,
    /// Handling of requests while the server cannot be reached.
    #[serde(default)]
    pub on_outage: OnOutage,
}

fn prefix() -> String {
    "model-pool".to_owned()
}

const fn timeout() -> Length {
    Length(pool::Span(250))
}

/// A gateway's behaviour when the shared counts cannot be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnOutage {
    /// Each gateway counts separately until the server is back.
    #[default]
    Own,
    /// Requests are admitted without counting.
    Open,
    /// Limited requests receive 503.
    Closed,
}

impl LimitsSection {
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let mut problems = self.default.problems("limits.default");
        if let Some(anonymous) = &self.anonymous {
            problems.extend(anonymous.problems("limits.anonymous"));
        }
        for (pattern, limit) in &self.models {
            problems.extend(limit.problems(&format!("limits.models.{pattern}")));
        }
        if let Some(redis) = &self.redis {
            problems.extend(redis.problems());
        }
        problems
    }
}

impl RedisSection {
    fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut wrong = |key: &str, message: String| {
            problems.push(Problem::new(format!("limits.redis.{key}"), message));
        };
        let is_address = self.url.starts_with("redis://") && self.url.len() > "redis://".len();
        if !is_address || self.url.contains(char::is_whitespace) {
            // The value is not repeated: it may contain a secret.
            let message = "is not a URL; write one such as redis://127.0.0.1:6379/0";
            wrong("url", message.to_owned());
        }
        if self.url.contains('@') {
            let message = "contains a user or a password; write the password into a file and set limits.redis.password_file to its path";
            wrong("url", message.to_owned());
        }
        if self.prefix.is_empty() || self.prefix.len() > 100 || self.prefix.contains(['{', '}']) {
            let message = format!(
                "is `{}`; allowed: 1 to 100 bytes without braces",
                self.prefix
            );
            wrong("prefix", message);
        }
        if !(10..=10_000).contains(&self.timeout.0.0) {
            let message = format!("is {}; allowed: 10ms to 10s", self.timeout);
            wrong("timeout", message);
        }
        problems
    }
}
