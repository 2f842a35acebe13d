//! Authentication and authorization of requests.

pub(crate) mod account;
pub mod actor;
pub mod credential;
pub mod cross_site;
pub mod identity;
pub(crate) mod manager;
pub(crate) mod present_rights;
pub mod scraper;
pub mod sight;
pub(crate) mod sign_on;

pub use identity::{Admin, Reader, User};
pub use manager::{GroupAdmin, Manager, Overseer};
