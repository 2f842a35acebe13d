//! Runs `model-pool` with a command that ends on its own, and reads its output.

use std::path::Path;
use std::process::{Command, Output};

/// Output and status of a command.
#[derive(Debug)]
pub struct CommandOutput {
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

impl CommandOutput {
    pub fn new(output: Output) -> CommandOutput {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        CommandOutput {
            status: output.status.code().unwrap_or(-1),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// # Panics
    /// If the command failed.
    pub fn done(self) -> CommandOutput {
        assert_eq!(self.status, 0, "{self:?}");
        self
    }

    /// # Panics
    /// If the command did not exit with 1, or its error lacks a word.
    pub fn refused(self, words: &[&str]) -> CommandOutput {
        assert_eq!(self.status, 1, "{self:?}");
        for words in words {
            assert!(self.stderr.contains(words), "{words}: {self:?}");
        }
        self
    }
}

/// Runs the command in this folder, with these variables.
pub fn model_pool(folder: &Path, words: &[&str], env: &[(&str, &str)]) -> CommandOutput {
    let output = Command::new(support::program())
        .args(words)
        .current_dir(folder)
        .envs(env.iter().copied())
        .output();
    CommandOutput::new(output.expect("it runs"))
}
