//! Runs the program with a cluster configuration.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

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
        let all = format!("{}{}", self.out, self.errors);
        for part in parts {
            assert!(all.contains(part), "`{part}` is missing in:\n{all}");
        }
    }
}

/// The environment contains a secret that no job may receive.
pub fn run(config: &Path, words: &[&str], env: &[(&str, &OsStr)]) -> CallOutput {
    let output = Command::new(env!("CARGO_BIN_EXE_model-pool"))
        .args(words)
        .arg("--config")
        .arg(config)
        .env("SECRET_OF_THE_CONTROLLER", "secret-of-the-environment")
        .envs(env.iter().copied())
        .output()
        .unwrap();
    CallOutput {
        status: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        errors: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
