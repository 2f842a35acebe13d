//! The complete configuration: read, checked as one unit, and compared with the one in force.

mod batch_nodes;
mod classes;
mod environment;
mod live;
mod load;
mod origins;
mod paths;
mod reload;
mod root;
pub mod validate;

pub use classes::{Applies, applies, classified};
pub use environment::PREFIX as ENVIRONMENT_PREFIX;
pub use live::LiveConfig;
pub use load::DEFAULT_FILE;
pub use origins::{KeyOrigins, Origin};
pub use paths::{expanded, expanded_here};
pub use reload::{Comparison, KeyChange};
pub use root::Config;
