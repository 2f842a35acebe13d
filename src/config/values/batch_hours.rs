//! The times at which batches may have idle models leave.

use std::fmt;
use std::str::FromStr;

use super::cron::CronExpression;
use super::units::{ParseValueError, written_as_text};

/// The times at which a load for a batch may have an idle model leave (B4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchHours {
    Always,
    /// Batches use only memory that is free.
    Never,
    /// From each occurrence, for `batch.hours_for`.
    From(CronExpression),
}

impl FromStr for BatchHours {
    type Err = ParseValueError;

    fn from_str(text: &str) -> Result<BatchHours, ParseValueError> {
        match text.trim() {
            "always" => Ok(BatchHours::Always),
            "never" => Ok(BatchHours::Never),
            text => text.parse().map(BatchHours::From).map_err(|error| {
                ParseValueError(format!("{error}; or write \"always\" or \"never\""))
            }),
        }
    }
}

impl fmt::Display for BatchHours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BatchHours::Always => f.write_str("always"),
            BatchHours::Never => f.write_str("never"),
            BatchHours::From(cron) => cron.fmt(f),
        }
    }
}

written_as_text!(
    BatchHours,
    "\"always\", \"never\" or a cron expression of six fields such as \"0 0 21 * * *\"",
    ["always", "never", "0 0 21 * * *"]
);
