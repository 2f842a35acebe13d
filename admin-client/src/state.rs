//! The states of models and replicas, with the server's names.

use std::fmt;

use serde::Deserialize;

/// The state of a model or a replica.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub enum State {
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

const NAMES: [(&str, State); 14] = [
    ("cold", State::Cold),
    ("waiting", State::Waiting),
    ("fetching", State::Fetching),
    ("planned", State::Planned),
    ("launching", State::Launching),
    ("loading", State::Loading),
    ("ready", State::Ready),
    ("parking", State::Parking),
    ("asleep", State::Asleep),
    ("draining", State::Draining),
    ("stopping", State::Stopping),
    ("cooling", State::Cooling),
    ("quarantined", State::Quarantined),
    ("broken", State::Broken),
];

impl State {
    pub fn as_str(&self) -> &str {
        match self {
            State::Other(name) => name,
            known => NAMES
                .iter()
                .find(|(_, state)| state == known)
                .map_or("", |(name, _)| name),
        }
    }
}

impl Default for State {
    fn default() -> State {
        State::Other(String::new())
    }
}

impl From<String> for State {
    fn from(text: String) -> State {
        match NAMES.into_iter().find(|(name, _)| *name == text) {
            Some((_, state)) => state,
            None => State::Other(text),
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_state_is_itself_and_an_unknown_one_keeps_its_name() {
        for (name, state) in NAMES {
            assert_eq!(State::from(name.to_owned()), state);
            assert_eq!(state.to_string(), name);
        }
        let newer: State = serde_json::from_str("\"hibernating\"").expect("a state");
        assert_eq!(newer, State::Other("hibernating".to_owned()));
        assert_eq!(newer.to_string(), "hibernating");
    }
}
