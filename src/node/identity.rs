//! The identity of a node, kept in its folder while it runs. With it, another process continues the node's work after a crash or at
//! a takeover: with the same engines, listener and credential, and the same place in the pool. Removed when the node ends.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::settings::Settings;
use super::target::Target;
use node_link::PROTOCOL;

const FILE: &str = "identity.json";
/// Increased for changes that an earlier version cannot ignore.
const VERSION: u32 = 1;

/// Contains secrets: the credential, the secret of gateways, and the key of the listener's certificate.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    pub version: u32,
    /// The protocol spoken with the controller.
    pub protocol: u32,
    pub place: String,
    pub name: String,
    pub epoch: u64,
    /// The address of the listener.
    pub listen: SocketAddr,
    pub secret: String,
    /// `None` for plain TCP.
    pub certificate: Option<ListenerCertificate>,
    pub devices: Vec<String>,
    pub demand: Option<u64>,
    /// The controller that accepted the node last.
    pub controller: Option<u64>,
    pub credential: String,
    pub orphan_after_ms: u64,
    pub drain_ms: u64,
    /// The URLs of the controllers, sorted. They identify the pool that the credential belongs to.
    #[serde(default)]
    pub controllers: Vec<String>,
    /// Unix time at which the node with its engines lost the controller; `None` while it is connected.
    pub alone_since_ms: Option<u64>,
}

/// The part of the file that every version can read.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

/// The certificate of the listener with its key, in PEM.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ListenerCertificate {
    pub certificate: String,
    pub key: String,
}

impl Identity {
    /// The identity of a node that starts with this listener.
    pub fn new(
        settings: &Settings,
        listen: SocketAddr,
        secret: &str,
        certificate: Option<ListenerCertificate>,
    ) -> Identity {
        Identity {
            version: VERSION,
            protocol: PROTOCOL,
            place: place_of(settings),
            name: settings.name.clone(),
            epoch: rand::random(),
            listen,
            secret: secret.to_owned(),
            certificate,
            devices: devices_of(settings),
            demand: settings.demand,
            controller: None,
            credential: settings.token.clone(),
            orphan_after_ms: milliseconds(settings.orphan_after),
            drain_ms: 600_000,
            controllers: controllers_of(settings),
            alone_since_ms: None,
        }
    }

    /// Reads the identity that an earlier process has left; `None` after an orderly end.
    ///
    /// # Errors
    /// One line for the user.
    pub fn read(folder: &Path) -> Result<Option<Identity>, String> {
        let path = folder.join(FILE);
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(&error)),
        };
        let Versioned { version } =
            serde_json::from_slice(&text).map_err(|error| failed(&error))?;
        if version != VERSION {
            return Err(format!(
                "its state has version {version}, and this program reads version {VERSION}"
            ));
        }
        serde_json::from_slice(&text).map_err(|error| failed(&error))
    }

    /// Returns the reason a process with these settings cannot continue this node's work.
    pub fn problem(&self, settings: &Settings) -> Option<String> {
        if self.place != place_of(settings) {
            return Some("the machine was restarted, or the folder was moved".to_owned());
        }
        if self.name != settings.name {
            return Some(format!(
                "it is called {}, and this one {}",
                self.name, settings.name
            ));
        }
        let controllers = controllers_of(settings);
        if self.controllers != controllers {
            return Some(format!(
                "its --controller is {}, and this one has {}",
                self.controllers.join(" and "),
                controllers.join(" and ")
            ));
        }
        let devices = devices_of(settings);
        if self.devices != devices {
            return Some(format!(
                "its devices are {}, and this one has {}",
                self.devices.join(", "),
                devices.join(", ")
            ));
        }
        let listens_there = settings.listen.is_none_or(|wanted| {
            wanted.ip() == self.listen.ip() && [0, self.listen.port()].contains(&wanted.port())
        });
        if !listens_there {
            return Some(format!(
                "it listens on {}, and --listen or node.listen names another address",
                self.listen
            ));
        }
        let is_plain = settings.plain || self.listen.ip().is_loopback();
        (is_plain != self.certificate.is_none()).then(|| "node.plain has changed".to_owned())
    }

    /// Returns the reason a running node cannot be replaced by this program while its controller stays.
    fn takeover_problem(&self) -> Option<String> {
        if let Some(demand) = self.demand {
            return Some(format!(
                "a cluster started it for request {demand} of the pool, and its job ends with its process"
            ));
        }
        (self.protocol != PROTOCOL).then(|| {
            format!(
                "it speaks protocol {} with its controller, and this program {PROTOCOL}",
                self.protocol
            )
        })
    }

    /// Writes the file, with mode 0600. It is on the disk when this returns.
    pub fn save(&self, folder: &Path) -> std::io::Result<()> {
        private_files::replace(&folder.join(FILE), &serde_json::to_vec_pretty(self)?)
    }

    /// Removes the file: no later process continues this node's work.
    pub fn remove(folder: &Path) {
        if let Err(error) = std::fs::remove_file(folder.join(FILE))
            && error.kind() != ErrorKind::NotFound
        {
            tracing::warn!("{}: {error}", folder.join(FILE).display());
        }
    }
}

/// Checks before a takeover that a process with these settings could continue the work of the node that runs in the same folder.
///
/// # Errors
/// One line for the user, with what to do.
pub fn check_takeover(settings: &Settings) -> Result<(), String> {
    let problem = match Identity::read(&settings.data) {
        Ok(Some(kept)) => kept.problem(settings).or_else(|| kept.takeover_problem()),
        Ok(None) => Some(format!(
            "its folder has no {FILE}, because it has not joined a pool yet, leaves its pool, could not write the file, or has a version that cannot be replaced"
        )),
        Err(why) => Some(why),
    };
    problem.map_or(Ok(()), |why| {
        Err(format!(
            "cannot take over from the running node: {why}; it continues. Drain it, end it with SIGTERM, and start this one"
        ))
    })
}

/// Identifies the machine's boot and the folder, which admits one process at a time.
fn place_of(settings: &Settings) -> String {
    format!("{} {}", guardian::proc::boot(), settings.data.display())
}

fn devices_of(settings: &Settings) -> Vec<String> {
    let devices = settings.inventory.devices();
    devices.iter().map(|device| device.name.clone()).collect()
}

/// Without fingerprints: a controller with a new certificate leads the same pool.
fn controllers_of(settings: &Settings) -> Vec<String> {
    let all: BTreeSet<String> = settings.controllers.iter().map(Target::to_string).collect();
    all.into_iter().collect()
}

pub(super) fn milliseconds(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_another_version_is_reported_by_its_version_whatever_its_shape() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(Identity::read(folder.path()).is_ok_and(|kept| kept.is_none()));
        let problem = |text: &str| {
            std::fs::write(folder.path().join(FILE), text).expect("written");
            Identity::read(folder.path()).err().expect("a problem")
        };
        let why = problem(r#"{"version": 2, "epoch": "seven"}"#);
        assert!(why.contains("state has version 2"), "{why}");
        let why = problem(r#"{"version": 1, "epoch": "seven"}"#);
        assert!(why.contains("seven"), "{why}");
    }
}
