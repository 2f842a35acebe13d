//! Calls of Ray's dashboard, with errors of the common type.

use config::RaySection;
use ray_api::RayAccess;
use reqwest::Method;
use serde_json::Value;

use super::super::ClusterError;

pub(super) use ray_api::last_line;

/// The path of the list of all jobs, and the prefix of each job's path.
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

    /// The source of the token, or `None` if no token would be sent.
    pub fn token_source(&self) -> Option<String> {
        self.0.token_source()
    }

    /// # Errors
    /// If Ray does not respond or refuses, or its response is not JSON.
    pub async fn get(&self, path: &str) -> Result<Value, ClusterError> {
        Ok(self.0.get(path).await?)
    }

    /// The response as text; `None` if Ray does not know the path's object.
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

    /// Stops or deletes a job. Succeeds if Ray does not know it.
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
