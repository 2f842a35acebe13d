//! Settings for fetching weights, from the configuration and the hub's variables. Shared by `serve`, `node` and `pull`.

use std::time::Duration;

use config::Config;
use source::Settings;

/// Pause before the first retry of a broken download.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

pub(crate) fn settings(config: &Config) -> Settings {
    let sources = &config.sources;
    // The same rule as in huggingface_hub.
    let is_on = |name: &str| {
        let value = std::env::var(name).unwrap_or_default().to_uppercase();
        ["1", "ON", "YES", "TRUE"].contains(&value.as_str())
    };
    Settings {
        hub: sources.hub.trim_end_matches('/').to_owned(),
        offline: sources.offline || is_on("HF_HUB_OFFLINE") || is_on("TRANSFORMERS_OFFLINE"),
        files_at_once: sources.files_at_once as usize,
        models_at_once: sources.models_at_once as usize,
        keep_free: sources.keep_free.0.0,
        pause: FIRST_PAUSE,
    }
}
