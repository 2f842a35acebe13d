//! The applications of Ray Serve, as `GET /api/serve/applications/` lists them. Keeps each application's configuration byte for
//! byte.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// Ray responds with 404 without the trailing slash.
pub(super) const APPLICATIONS: &str = "/api/serve/applications/";
/// Serve's default port, unless its options set another one.
const PROXY_PORT: u16 = 8000;

/// All deployed applications. Only the port of Serve's own options is read; all options are written back unchanged.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Listing {
    pub(super) proxy_location: Option<Box<RawValue>>,
    pub(super) http_options: Option<Box<RawValue>>,
    pub(super) grpc_options: Option<Box<RawValue>>,
    pub(super) target_capacity: Option<Box<RawValue>>,
    #[serde(default)]
    pub applications: BTreeMap<String, Application>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Application {
    pub status: String,
    pub message: Option<String>,
    /// `None` for an application deployed from a program (`serve.run`), which the REST API neither shows nor removes.
    pub deployed_app_config: Option<Box<RawValue>>,
    #[serde(default)]
    pub deployments: BTreeMap<String, Deployment>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Deployment {
    pub status: String,
    pub message: Option<String>,
    pub target_num_replicas: Option<u32>,
    #[serde(default)]
    pub replicas: Vec<Replica>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Replica {
    pub state: String,
    /// Absent until Ray has found a place for the replica.
    pub node_id: Option<String>,
}

impl Listing {
    /// # Errors
    /// If the text does not have Ray's form.
    pub fn parse(text: &str) -> Result<Listing, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The port of Serve's HTTP proxies.
    pub fn proxy_port(&self) -> u16 {
        let options = self.http_options.as_ref();
        let options = options.and_then(|text| serde_json::from_str::<Value>(text.get()).ok());
        let port = options.and_then(|options| options["port"].as_u64());
        port.and_then(|port| u16::try_from(port).ok())
            .unwrap_or(PROXY_PORT)
    }
}

impl Application {
    /// Returns true while Ray is removing the application.
    pub fn is_leaving(&self) -> bool {
        self.status == "DELETING"
    }

    /// An environment variable that the configuration sets for the application's programs.
    pub fn variable(&self, name: &str) -> Option<String> {
        let config = self.deployed_app_config.as_ref()?;
        let config: Value = serde_json::from_str(config.get()).ok()?;
        config["runtime_env"]["env_vars"][name]
            .as_str()
            .map(str::to_owned)
    }
}
