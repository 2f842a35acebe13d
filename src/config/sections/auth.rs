//! Section `auth`: permissions. The doc comments are the descriptions in the schema.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::oidc::OidcSection;

/// Permissions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AuthSection {
    /// Callers that may use models without a key: everyone (`open`), this machine (`loopback`), or none (`key`).
    pub inference: InferenceAuth,
    /// Callers that may read `/metrics`, which names every model, without an admin key: everyone (`open`), this machine
    /// (`loopback`), or none (`admin`).
    pub metrics: MetricsAuth,
    /// A file with the first administrator's key of at least 32 characters, such as a mounted Secret: it is used if the database
    /// has no valid admin key. Null: a key is created and written to admin_key_file.
    pub first_admin_key_file: Option<PathBuf>,
    /// The file for the first administrator's key, written at the first start; null: `admin.key` in `state.dir`.
    pub admin_key_file: Option<PathBuf>,
    /// Single sign-on tokens that are accepted in addition to the pool's keys; null: none.
    pub oidc: Option<OidcSection>,
}

impl Default for AuthSection {
    fn default() -> AuthSection {
        AuthSection {
            inference: InferenceAuth::Loopback,
            metrics: MetricsAuth::Loopback,
            first_admin_key_file: None,
            admin_key_file: None,
            oidc: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum InferenceAuth {
    Open,
    Loopback,
    Key,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MetricsAuth {
    Open,
    Loopback,
    Admin,
}
