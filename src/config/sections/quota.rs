//! The monthly quota of a group.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::problems::Problem;
use crate::values::TokenCount;

/// More is a mistake: a million GPU hours are 1,300 GPUs for a month.
const GPU_HOURS_MAX: f64 = 1e6;
const HOUR_MS: f64 = 3_600_000.0;

/// The use of all members of a group together, and of the groups below it, from the first of a month to its end
/// (`evening.timezone`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct QuotaSection {
    /// Device time in hours, up to 1000000: used, held idle, or taken by loads. Null: not limited.
    pub gpu_hours: Option<f64>,
    /// Tokens of prompts and responses, such as `10M`. Null: not limited.
    pub tokens: Option<TokenCount>,
    /// The effect of a used-up quota.
    pub at_end: AtEnd,
}

/// The effect of a used-up quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AtEnd {
    /// The log and the metrics say so.
    #[default]
    Warn,
    /// Requests get the class `flex`: they are served while no other request waits for the model.
    Lowest,
    /// Requests get an error with status 429 until the month ends.
    Refuse,
}

impl AtEnd {
    /// The name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            AtEnd::Warn => "warn",
            AtEnd::Lowest => "lowest",
            AtEnd::Refuse => "refuse",
        }
    }
}

impl QuotaSection {
    /// The largest part that this use takes; 1 or more: the quota is used up.
    pub fn used_ratio(&self, tokens: u64, device_ms: u64) -> f64 {
        let hours = device_ms as f64 / HOUR_MS;
        let of_hours = self.gpu_hours.map(|most| hours / most);
        let of_tokens = self.tokens.map(|most| tokens as f64 / most.0 as f64);
        of_hours.into_iter().chain(of_tokens).fold(0.0, f64::max)
    }

    pub(super) fn problems(&self, of: &str) -> Vec<Problem> {
        let mut problems = Vec::new();
        if let Some(hours) = self.gpu_hours
            && !(hours > 0.0 && hours <= GPU_HOURS_MAX)
        {
            let message = format!(
                "is {hours}; allowed: more than 0, up to {GPU_HOURS_MAX}, or null for no quota"
            );
            problems.push(Problem::new(format!("{of}.gpu_hours"), message));
        }
        if self.gpu_hours.is_none() && self.tokens.is_none() {
            let message = "limits nothing; set gpu_hours or tokens, or omit it";
            problems.push(Problem::new(of.to_owned(), message.to_owned()));
        }
        problems
    }
}
