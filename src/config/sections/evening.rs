//! Section `evening`: the cleanup, and the morning after it. The doc comments are the descriptions in the schema.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::{CronExpression, Length, TimeZone};

/// The evening cleanup and the morning after it (E1, E2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EveningSection {
    /// Time of the cleanup that empties the pool: a cron expression with seconds; null: never.
    pub cleanup: Option<CronExpression>,
    /// Time at which always-hot models come back: a cron expression with seconds; null: as soon as the cleanup has ended.
    pub reopen: Option<CronExpression>,
    /// The time zone of both expressions: `local` for the machine's own (the variable `TZ`, or else the system's
    /// setting), or an IANA name.
    pub timezone: TimeZone,
    /// `all` unloads every replica, `idle` only those without requests.
    pub mode: EveningMode,
    /// Time that an unload waits for the requests in flight before they are cut.
    pub drain: Length,
}

impl Default for EveningSection {
    fn default() -> EveningSection {
        EveningSection {
            cleanup: Some(CronExpression::daily(21)),
            reopen: Some(CronExpression::daily(7)),
            timezone: TimeZone::Local,
            mode: EveningMode::All,
            drain: Length::from_secs(600),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EveningMode {
    All,
    Idle,
}
