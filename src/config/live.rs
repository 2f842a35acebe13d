//! The configuration in force. Everybody reads it where it is needed, and a reload replaces it as a whole.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::whole::Config;

/// Cheap to clone; all clones see the same configuration.
#[derive(Clone, Debug)]
pub struct LiveConfig(Arc<ArcSwap<Config>>);

impl LiveConfig {
    pub fn new(config: Config) -> LiveConfig {
        LiveConfig(Arc::new(ArcSwap::from_pointee(config)))
    }

    /// The configuration of this moment. One decision uses one of them from its beginning to its end.
    pub fn get(&self) -> Arc<Config> {
        self.0.load_full()
    }

    pub fn set(&self, config: Arc<Config>) {
        self.0.store(config);
    }
}
