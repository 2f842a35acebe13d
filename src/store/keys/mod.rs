//! API keys, and their use.

mod admin_key;
pub(crate) mod api_keys;
mod usage;

pub use admin_key::{FIRST_ADMIN_KEY, NEW_ADMIN_KEY, RevokedKey};
pub use api_keys::{
    KeyHash, KeyRecord, KeyText, KeyUse, NewKey, Role, find_key, generate_key, hash_key, is_before,
};
pub use usage::{BatchUsage, KeyUsage, UnsavedUsage};
