//! Keys, sessions and failed attempts: what a credential is worth, independent of a request.

pub mod failures;
pub(crate) mod key_checks;
pub mod keys;
pub(crate) mod node_connections;
pub mod rights;
pub mod secret_file;
pub mod sessions;
pub mod strangers;
