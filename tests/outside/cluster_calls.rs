//! Runs the program with a cluster configuration.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Output and status of a call.
#[derive(Debug)]
pub struct CallOutput {
    pub status: Option<i32>,
    pub out: String,
    errors: String,
}

impl CallOutput {
    #[track_caller]
    pub fn has(&self, status: i32, parts: &[&str]) {
        assert_eq!(self.status, Some(status), "{self:?}");
        support::assert_has(&format!("{}{}", self.out, self.errors), parts);
    }
}

/// Waits until the condition holds.
pub type WaitFor = fn(&str, &mut dyn FnMut() -> bool);

/// A configuration for a cluster, to run the program with.
pub struct ClusterCalls {
    pub file: PathBuf,
    /// Variables of the program's environment.
    pub env: Vec<(&'static str, OsString)>,
    pub wait_for: WaitFor,
}

/// Creates a folder with a program for nodes and a token.
pub fn write_folder(folder: &Path, program: &str) {
    fs::create_dir(folder).unwrap();
    for (name, text, mode) in [
        ("node", program, 0o755),
        ("token", "secret-of-the-join", 0o600),
    ] {
        fs::write(folder.join(name), text).unwrap();
        fs::set_permissions(folder.join(name), PermissionsExt::from_mode(mode)).unwrap();
    }
}

impl ClusterCalls {
    /// The environment contains a secret that no job may receive.
    pub fn run(&self, words: &[&str]) -> CallOutput {
        let output = Command::new(env!("CARGO_BIN_EXE_model-pool"))
            .args(words)
            .arg("--config")
            .arg(&self.file)
            .env("SECRET_OF_THE_CONTROLLER", "secret-of-the-environment")
            .envs(self.env.iter().cloned())
            .output()
            .unwrap();
        CallOutput {
            status: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            errors: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    pub fn request(&self, shape: &str) -> String {
        let ended = self.run(&["cluster", "request", shape]);
        assert_eq!(ended.status, Some(0), "{ended:?}");
        ended.out.trim().to_owned()
    }

    pub fn leases(&self) -> Vec<Value> {
        let ended = self.run(&["cluster", "status", "--json"]);
        assert_eq!(ended.status, Some(0), "{ended:?}");
        serde_json::from_str(&ended.out).unwrap()
    }

    pub fn lease(&self, id: &str) -> Value {
        let mut leases = self.leases().into_iter();
        let found = leases.find(|lease| lease["id"] == id);
        found.unwrap_or_default()
    }

    pub fn wait_for(&self, id: &str, state: &str) -> Value {
        let mut lease = Value::Null;
        (self.wait_for)(&format!("job {id} to be {state}"), &mut || {
            lease = self.lease(id);
            lease["state"] == state
        });
        lease
    }

    /// The text of a file next to the configuration.
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.file.with_file_name(name)).unwrap_or_default()
    }
}
