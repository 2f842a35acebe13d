//! Random ids of messages, calls and responses.

/// A random id, such as `msg_0198…`.
pub(crate) fn new_id(prefix: &str) -> String {
    format!("{prefix}_{}", uuid::Uuid::now_v7().simple())
}
