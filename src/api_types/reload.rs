//! Reloading the configuration and the catalogue, as seen by the routes. The implementation is in the service, because new values
//! affect parts unknown to this crate.

use std::pin::Pin;

use thiserror::Error;

use crate::error::Failure;
use catalog::Changes;
use config::{Comparison, ConfigError};
use controller::ChangeError;

/// The changes made by a reload.
#[derive(Debug)]
pub struct Reloaded {
    pub settings: Comparison,
    pub models: Changes,
    pub warnings: Vec<String>,
}

/// The reason why nothing was changed.
#[derive(Debug, Error)]
pub enum ReloadError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Catalog(#[from] ChangeError),
    #[error("{0}")]
    Other(String),
}

pub type Reloading<'a> = Pin<Box<dyn Future<Output = Result<Reloaded, ReloadError>> + Send + 'a>>;

/// Reads everything again and applies it, or changes nothing.
pub trait Reload: Send + Sync {
    /// `by` names the sender of the order, for the log.
    fn reload<'a>(&'a self, by: &'a str) -> Reloading<'a>;
}

impl From<ReloadError> for Failure {
    fn from(error: ReloadError) -> Failure {
        match error {
            ReloadError::Config(error) => Failure::invalid(None, error.to_string()),
            ReloadError::Catalog(error) => error.into(),
            ReloadError::Other(message) => Failure::internal(message),
        }
    }
}
