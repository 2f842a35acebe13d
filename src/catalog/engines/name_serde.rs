//! Serializes an engine as its name, for recipes that another process reads.

use serde::{Deserialize, Deserializer, Serializer, de};

use super::Engine;

pub(super) fn serialize<S: Serializer>(
    engine: &&'static Engine,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(engine.name())
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<&'static Engine, D::Error> {
    let name = String::deserialize(deserializer)?;
    super::find(&name)
        .ok_or_else(|| de::Error::custom(format!("this version has no engine called {name:?}")))
}
