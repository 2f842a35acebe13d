//! The YAML form of `cluster.renew_before`: the time before the end of a node at which its models move (N7).

use std::fmt;
use std::str::FromStr;

use super::units::{Length, ParseValueError, written_as_text};
use pool::Span;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenewBefore {
    /// The time that the cluster needs to start a successor, its models to load, and requests in flight to end.
    Auto,
    Before(Length),
}

impl RenewBefore {
    /// Converts it to the core's type; `None` means automatic.
    pub fn span(self) -> Option<Span> {
        match self {
            RenewBefore::Auto => None,
            RenewBefore::Before(length) => Some(length.0),
        }
    }
}

impl FromStr for RenewBefore {
    type Err = ParseValueError;

    fn from_str(text: &str) -> Result<RenewBefore, ParseValueError> {
        if text.trim() == "auto" {
            return Ok(RenewBefore::Auto);
        }
        text.parse().map(RenewBefore::Before).map_err(|error| {
            ParseValueError(format!(
                "{error}; auto derives it from the measured times of the cluster and the loads"
            ))
        })
    }
}

impl fmt::Display for RenewBefore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RenewBefore::Auto => f.write_str("auto"),
            RenewBefore::Before(length) => length.fmt(f),
        }
    }
}

written_as_text!(
    RenewBefore,
    "\"auto\" or a duration such as \"30m\"",
    ["auto", "30m"]
);
