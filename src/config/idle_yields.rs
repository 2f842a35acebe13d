//! When an idle model of higher priority leaves for a lower one that is waited for (P6), as it is written in YAML.

use std::fmt;
use std::str::FromStr;

use super::units::{Length, Unreadable, written_as_text};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleYields {
    /// After three times its own load time, and at least 30 s.
    Auto,
    After(Length),
    Never,
}

impl IdleYields {
    /// The same for the pool.
    pub fn rule(self) -> pool::IdleYields {
        match self {
            IdleYields::Auto => pool::IdleYields::Auto,
            IdleYields::After(length) => pool::IdleYields::After(length.0),
            IdleYields::Never => pool::IdleYields::Never,
        }
    }
}

impl FromStr for IdleYields {
    type Err = Unreadable;

    fn from_str(text: &str) -> Result<IdleYields, Unreadable> {
        match text.trim() {
            "auto" => Ok(IdleYields::Auto),
            "never" => Ok(IdleYields::Never),
            text => text.parse().map(IdleYields::After).map_err(|error| {
                Unreadable(format!(
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
    "\"auto\", \"never\" or a length of time such as \"5m\"",
    ["auto", "never", "5m"]
);
