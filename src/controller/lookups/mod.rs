//! Lookups of adapters and of models on the hub, bounded per caller.

mod adapter_fetch;
mod adapter_files;
mod adapter_lookups;
mod caller_share;
mod hub_lookups;

pub(crate) use adapter_lookups::AdapterLookups;
pub use adapter_lookups::{ADAPTER_LOOKUPS_MAX, ADAPTER_MISSES_MAX, AdapterError, AdapterFound};
pub use caller_share::LookupCaller;
pub(crate) use hub_lookups::HubLookups;
pub use hub_lookups::{HUB_LOOKUPS_MAX, HubRegistrationError};
