//! Authentication and authorization of requests.

pub mod account;
pub mod actor;
pub mod caller;
pub mod credential;
pub mod cross_site;
pub mod identity;
pub mod scraper;
pub mod sight;
pub mod sign_on;

pub use identity::{Admin, Reader, User};
