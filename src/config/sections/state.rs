//! Section `state`: storage that survives a restart. The doc comments are the descriptions in the schema.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::responses::ResponsesSection;
use super::standby::StandbySection;
use crate::values::{DatabaseUrl, Length};

/// Storage for everything that must survive a restart (D1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StateSection {
    /// The folder for state; created if it does not exist.
    pub dir: PathBuf,
    /// The database, as `sqlite://PATH` or `postgres://USER@HOST/DATABASE`; null: `model-pool.db` in `state.dir`.
    pub database_url: Option<DatabaseUrl>,
    /// A standby service on the same PostgreSQL; null: no standby.
    pub standby: Option<StandbySection>,
    /// Retention of the history and the audit log.
    pub history: HistorySection,
    /// Responses of `/v1/responses` for later turns.
    pub responses: ResponsesSection,
}

impl Default for StateSection {
    fn default() -> StateSection {
        StateSection {
            dir: PathBuf::from("data"),
            database_url: None,
            standby: None,
            history: HistorySection::default(),
            responses: ResponsesSection::default(),
        }
    }
}

/// Rows beyond these limits are deleted automatically, oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HistorySection {
    /// Retention of rows, 1m or more.
    pub keep: Length,
    /// Maximum rows in each of the two tables, 100 to 100000000.
    pub rows_max: u64,
}

impl Default for HistorySection {
    fn default() -> HistorySection {
        HistorySection {
            keep: Length::from_secs(90 * 24 * 3600),
            rows_max: 1_000_000,
        }
    }
}
