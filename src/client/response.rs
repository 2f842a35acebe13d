//! Complete responses, and the time that a client waits for them.

use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::error::ClientError;

/// Time limit for a complete response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// For requests that the server answers without waiting: 30 s.
    Short,
    /// For polls that are repeated soon: 2 s.
    Glance,
    /// For requests during which the server asks the hub: 90 s.
    Hub,
    /// For loads, drains and inference: no limit here, because the server enforces their deadlines.
    Long,
}

impl Patience {
    pub(crate) fn limit(self) -> Option<Duration> {
        let seconds = match self {
            Patience::Short => 30,
            Patience::Glance => 2,
            Patience::Hub => 90,
            Patience::Long => return None,
        };
        Some(Duration::from_secs(seconds))
    }
}

/// A successful response with a JSON body.
#[derive(Debug)]
pub struct ApiResponse {
    pub(crate) path: String,
    /// The body, unchanged.
    pub text: String,
}

impl ApiResponse {
    /// Parses the body as `T`.
    ///
    /// # Errors
    /// `ClientError::Shape` if the body does not match `T`.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, ClientError> {
        serde_json::from_str(&self.text).map_err(|source| ClientError::Shape {
            path: self.path.clone(),
            source,
        })
    }
}
