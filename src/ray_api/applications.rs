//! What `GET /api/serve/applications/` says: the applications of Ray Serve, with the configuration that each was deployed
//! with, kept as it stands there.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// Ray answers 404 without the slash at the end.
pub(super) const APPLICATIONS: &str = "/api/serve/applications/";
/// Where Serve listens unless its options say otherwise.
const PROXY_PORT: u16 = 8000;

/// Everything that is deployed. Of the options of Serve itself only the port is read; all are written back as they are.
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
    /// `None`: it was deployed from a program (`serve.run`), which the REST API neither shows nor removes.
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
    /// Absent until Ray has found a place for it.
    pub node_id: Option<String>,
}

impl Listing {
    /// # Errors
    /// If the text has another form than Ray's.
    pub fn parse(text: &str) -> Result<Listing, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The port of Serve's HTTP proxies.
    pub fn proxy_port(&self) -> u16 {
        let options = self.http_options.as_ref();
        let options = options.and_then(|it| serde_json::from_str::<Value>(it.get()).ok());
        let port = options.and_then(|it| it["port"].as_u64());
        port.and_then(|it| u16::try_from(it).ok())
            .unwrap_or(PROXY_PORT)
    }
}

impl Application {
    /// Ray is taking it away.
    pub fn is_leaving(&self) -> bool {
        self.status == "DELETING"
    }

    /// The variables that its configuration sets in the environment of its programs.
    pub fn variable(&self, name: &str) -> Option<String> {
        let config = self.deployed_app_config.as_ref()?;
        let config: Value = serde_json::from_str(config.get()).ok()?;
        config["runtime_env"]["env_vars"][name]
            .as_str()
            .map(str::to_owned)
    }
}
