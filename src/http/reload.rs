//! Reading the configuration and the catalogue again: what the routes see of it. The service puts the new values in
//! force, because they belong to parts that this crate does not know.

use std::pin::Pin;

use thiserror::Error;

use crate::error::Failure;
use catalog::Changes;
use config::{Comparison, ConfigError};
use controller::ChangeError;

/// What a reload has changed.
#[derive(Debug)]
pub struct Reloaded {
    pub settings: Comparison,
    pub models: Changes,
    pub warnings: Vec<String>,
}

/// Why everything stays as it was.
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

/// Reads everything again and puts it in force, or changes nothing.
pub trait Reload: Send + Sync {
    /// `by`: who ordered it, for the log.
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
