//! Calls of Ray's dashboard, with errors as those of any cluster.

use config::RaySection;
use ray_api::RayAccess;
use reqwest::Method;
use serde_json::Value;

use super::super::ClusterError;

pub(super) use ray_api::last_line;

/// The list of all jobs, and the beginning of the path of each.
pub(super) const JOBS: &str = "/api/jobs/";

pub(super) struct RayClient(ray_api::RayClient);

impl RayClient {
    pub fn new(section: &RaySection) -> RayClient {
        RayClient(ray_api::RayClient::new(&RayAccess {
            address: section.address.clone().unwrap_or_default(),
            token_file: section.token_file.clone(),
            timeout: section.timeout.duration(),
            section: "cluster.ray",
        }))
    }

    pub fn address(&self) -> &str {
        self.0.address()
    }

    /// Whether a token would be sent, and where it comes from.
    pub fn token_source(&self) -> Option<String> {
        self.0.token_source()
    }

    /// # Errors
    /// If Ray does not answer, or refuses, or its answer is no JSON.
    pub async fn get(&self, path: &str) -> Result<Value, ClusterError> {
        Ok(self.0.get(path).await?)
    }

    /// The answer as it is; `None` if Ray does not know what the path names.
    ///
    /// # Errors
    /// As above.
    pub async fn get_text(&self, path: &str) -> Result<Option<String>, ClusterError> {
        Ok(self.0.get_text(path).await?)
    }

    /// # Errors
    /// As above.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value, ClusterError> {
        Ok(self.0.post(path, body).await?)
    }

    /// Stops or deletes a job; what Ray does not know is gone.
    ///
    /// # Errors
    /// As above.
    pub async fn end(&self, method: Method, path: &str) -> Result<(), ClusterError> {
        Ok(self.0.end(method, path).await?)
    }

    pub fn unusable(&self, message: String) -> ClusterError {
        self.0.unusable(message).into()
    }
}
