//! The YAML form of `pool.idle_yields`: when an idle model of higher priority makes room for a lower one with waiting requests
//! (P6).

use std::fmt;
use std::str::FromStr;

use super::units::{Length, ParseValueError, written_as_text};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleYields {
    /// After three times the measured time to stop the model and load it again.
    Auto,
    After(Length),
    Never,
}

impl IdleYields {
    /// Converts it to the type of the core.
    pub fn rule(self) -> pool::IdleYields {
        match self {
            IdleYields::Auto => pool::IdleYields::Auto,
            IdleYields::After(length) => pool::IdleYields::After(length.0),
            IdleYields::Never => pool::IdleYields::Never,
        }
    }
}

impl FromStr for IdleYields {
    type Err = ParseValueError;

    fn from_str(text: &str) -> Result<IdleYields, ParseValueError> {
        match text.trim() {
            "auto" => Ok(IdleYields::Auto),
            "never" => Ok(IdleYields::Never),
            text => text.parse().map(IdleYields::After).map_err(|error| {
                ParseValueError(format!(
                    "{error}; auto derives it from the load time, never turns it off"
                ))
            }),
        }
    }
}

impl fmt::Display for IdleYields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IdleYields::Auto => f.write_str("auto"),
            IdleYields::After(length) => length.fmt(f),
            IdleYields::Never => f.write_str("never"),
        }
    }
}

written_as_text!(
    IdleYields,
    "\"auto\", \"never\" or a duration such as \"5m\"",
    ["auto", "never", "5m"]
);
