//! Runs `model-pool` with a command that ends on its own, and reads its output.

use std::path::Path;
use std::process::{Command, Output};

/// Output and status of a command.
#[derive(Debug)]
pub struct Ended {
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    pub fn new(output: Output) -> Ended {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ended {
            status: output.status.code().unwrap_or(-1),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// # Panics
    /// If the command failed.
    pub fn done(self) -> Ended {
        assert_eq!(self.status, 0, "{self:?}");
        self
    }

    /// # Panics
    /// If the command did not exit with 1, or its error lacks a word.
    pub fn refused(self, words: &[&str]) -> Ended {
        assert_eq!(self.status, 1, "{self:?}");
        for words in words {
            assert!(self.stderr.contains(words), "{words}: {self:?}");
        }
        self
    }
}

/// Runs the command in this folder, with these variables.
pub fn model_pool(folder: &Path, words: &[&str], env: &[(&str, &str)]) -> Ended {
    let output = Command::new(support::program())
        .args(words)
        .current_dir(folder)
        .envs(env.iter().copied())
        .output();
    Ended::new(output.expect("it runs"))
}
