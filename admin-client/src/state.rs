//! The states of models and replicas, with the server's names.

use std::fmt;

use serde::Deserialize;

/// The state of a model or a replica.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub enum LoadState {
    Cold,
    Waiting,
    Fetching,
    Planned,
    Launching,
    Loading,
    Ready,
    Parking,
    Asleep,
    Draining,
    Stopping,
    Cooling,
    Quarantined,
    /// The model's file is wrong.
    Broken,
    /// A state of a newer server, shown as it is.
    Other(String),
}

const NAMES: [(&str, LoadState); 14] = [
    ("cold", LoadState::Cold),
    ("waiting", LoadState::Waiting),
    ("fetching", LoadState::Fetching),
    ("planned", LoadState::Planned),
    ("launching", LoadState::Launching),
    ("loading", LoadState::Loading),
    ("ready", LoadState::Ready),
    ("parking", LoadState::Parking),
    ("asleep", LoadState::Asleep),
    ("draining", LoadState::Draining),
    ("stopping", LoadState::Stopping),
    ("cooling", LoadState::Cooling),
    ("quarantined", LoadState::Quarantined),
    ("broken", LoadState::Broken),
];

impl LoadState {
    pub fn as_str(&self) -> &str {
        match self {
            LoadState::Other(name) => name,
            known => NAMES
                .iter()
                .find(|(_, state)| state == known)
                .map_or("", |(name, _)| name),
        }
    }
}

impl Default for LoadState {
    fn default() -> LoadState {
        LoadState::Other(String::new())
    }
}

impl From<String> for LoadState {
    fn from(text: String) -> LoadState {
        match NAMES.into_iter().find(|(name, _)| *name == text) {
            Some((_, state)) => state,
            None => LoadState::Other(text),
        }
    }
}

impl fmt::Display for LoadState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_states_round_trip_and_unknown_ones_keep_their_name() {
        for (name, state) in NAMES {
            assert_eq!(LoadState::from(name.to_owned()), state);
            assert_eq!(state.to_string(), name);
        }
        let newer: LoadState = serde_json::from_str("\"hibernating\"").expect("a state");
        assert_eq!(newer, LoadState::Other("hibernating".to_owned()));
        assert_eq!(newer.to_string(), "hibernating");
    }
}
