//! The section `state.standby`: a second service on the same PostgreSQL, which takes over when the first one fails (D4).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::problems::Problem;
use crate::values::DatabaseUrl;
use crate::values::addresses::{check_address, is_fingerprint};

/// Two services on one database: one leads, the other stands by and forwards requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StandbySection {
    /// The address at which the other service and the nodes reach this one, such as `https://pool-1.example.org:8443`.
    pub advertise: String,
    /// The fingerprint of this service's certificate, for the other service: `sha256:` and 64 hexadecimal digits; null: certificate
    /// authorities decide.
    #[serde(default)]
    pub fingerprint: Option<String>,
}

/// All problems of this section.
pub(crate) fn problems(section: &StandbySection, database: &DatabaseUrl) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut wrong = |key: &str, message: String| {
        problems.push(Problem::new(format!("state.{key}"), message));
    };
    if matches!(database, DatabaseUrl::Sqlite(_)) {
        let message = "needs PostgreSQL, where two services can share the state; set state.database_url to postgres://USER@HOST/DATABASE, or leave it out";
        wrong("standby", message.to_owned());
    }
    let own = "the other service uses the keys of forwarded requests";
    match check_address(&section.advertise, own) {
        Err(why) => wrong("standby.advertise", why),
        Ok(address) if !matches!(address.path(), "" | "/") || address.query().is_some() => {
            let message = "has a path; write only scheme, host and port, such as https://pool-1.example.org:8443";
            wrong("standby.advertise", message.to_owned());
        }
        Ok(address) if section.fingerprint.is_some() && address.scheme() == "http" => {
            let message = "is for a certificate, but state.standby.advertise has none; write https:// there, or remove it";
            wrong("standby.fingerprint", message.to_owned());
        }
        Ok(_) => {}
    }
    if section
        .fingerprint
        .as_deref()
        .is_some_and(|fingerprint| !is_fingerprint(fingerprint))
    {
        let message =
            "is not a fingerprint; write sha256: and the 64 hexadecimal digits of the certificate";
        wrong("standby.fingerprint", message.to_owned());
    }
    problems
}
