//! Authentication, authorization, and the audit log.

pub mod account;
pub mod actor;
pub mod audit;
pub mod caller;
pub mod credential;
pub mod cross_site;
pub mod failures;
pub mod identity;
pub mod keys;
pub mod rights;
pub mod scraper;
pub mod secret_file;
pub mod sessions;
pub mod sight;
pub mod sign_on;
pub mod strangers;

pub use identity::{Admin, Reader, User};
