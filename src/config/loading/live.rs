//! The configuration in force. Code reads it where it is needed; a reload replaces it atomically.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::root::Config;

/// Cheap to clone; all clones see the same configuration.
#[derive(Clone, Debug)]
pub struct LiveConfig(Arc<ArcSwap<Config>>);

impl LiveConfig {
    pub fn new(config: Config) -> LiveConfig {
        LiveConfig(Arc::new(ArcSwap::from_pointee(config)))
    }

    /// Returns the current configuration. Use one snapshot for the duration of a decision.
    pub fn get(&self) -> Arc<Config> {
        self.0.load_full()
    }

    pub fn set(&self, config: Arc<Config>) {
        self.0.store(config);
    }
}
