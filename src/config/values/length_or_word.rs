//! Settings whose value is a duration or a word.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::units::{Length, ParseValueError, written_as_text};
use pool::Span;

/// Defines a setting with its text form. The hint describes the words and follows the error of a wrong duration.
macro_rules! length_or_word {
    (
        $(#[$doc:meta])*
        $name:ident: $length:ident, $($(#[$word_doc:meta])* $word:ident = $text:literal),+;
        $expecting:literal, [$($example:literal),+], $hint:literal
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $length(Length),
            $($(#[$word_doc])* $word),+
        }

        impl $name {
            /// Returns the duration, or `None` for a word.
            pub fn span(self) -> Option<Span> {
                match self {
                    $name::$length(length) => Some(length.0),
                    $($name::$word)|+ => None,
                }
            }
        }

        impl FromStr for $name {
            type Err = ParseValueError;

            fn from_str(text: &str) -> Result<$name, ParseValueError> {
                match text.trim() {
                    $($text => Ok($name::$word),)+
                    text => text.parse().map($name::$length).map_err(|error| {
                        ParseValueError(format!("{error}; {}", $hint))
                    }),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $name::$length(length) => length.fmt(f),
                    $($name::$word => f.write_str($text)),+
                }
            }
        }

        written_as_text!($name, $expecting, [$($example),+]);
    };
}

length_or_word! {
    /// Time that a busy replica keeps its turn against models of equal priority (P3).
    MaxTurn: After,
    /// Three times the measured swap time, between 5 s and 60 s.
    Auto = "auto";
    "\"auto\" or a duration such as \"30s\"", ["auto", "30s"],
    "auto derives it from the measured time of a swap"
}

length_or_word! {
    /// Time that an idle replica is protected from eviction by models of equal priority (P3).
    MinResident: For,
    /// No protection, unless the replica's own next request is likely within half the time of a swap.
    Auto = "auto";
    "\"auto\" or a duration such as \"10s\"", ["auto", "10s"],
    "auto derives it from the model's own requests"
}

length_or_word! {
    /// The time before the end of a node at which its models move (N7).
    RenewBefore: Before,
    /// The time that the cluster needs to start a successor, its models to load, and requests in flight to end.
    Auto = "auto";
    "\"auto\" or a duration such as \"30m\"", ["auto", "30m"],
    "auto derives it from the measured times of the cluster and the loads"
}

length_or_word! {
    /// Idle time after which a model of higher priority makes room for a lower one with waiting requests (P6).
    IdleYields: After,
    /// Three times the measured time to stop the model and load it again.
    Auto = "auto",
    Never = "never";
    "\"auto\", \"never\" or a duration such as \"5m\"", ["auto", "never", "5m"],
    "auto derives it from the load time, never turns it off"
}

length_or_word! {
    /// Time that a replica stays after its last request ended (L2).
    KeepHot: For,
    /// Derived from the gaps between the model's requests, between two bounds.
    Adaptive = "adaptive",
    /// Until another load needs the memory.
    UntilNeeded = "until_needed";
    "a duration such as \"10m\", \"adaptive\" or \"until_needed\"", ["10m", "adaptive", "until_needed"],
    "adaptive derives it from the model's own use, until_needed keeps the model until another one needs its memory"
}

length_or_word! {
    /// Idle time after which a ready engine is sent a request for one token.
    IdleProbe: After, Off = "off";
    "a duration such as \"60s\", or \"off\"", ["60s", "off"],
    "off disables it"
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

impl IdleProbe {
    pub fn duration(self) -> Option<Duration> {
        self.span().map(|span| Length(span).duration())
    }
}
