//! Runs `model-pool` with a command that ends by itself, and reads what it says.

use std::path::Path;
use std::process::{Command, Output};

/// What a command printed, and how it ended.
#[derive(Debug)]
pub struct Ended {
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    pub fn of(output: Output) -> Ended {
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
    /// If the command did not end with 1, or its error lacks one of these.
    pub fn refused(self, words: &[&str]) -> Ended {
        assert_eq!(self.status, 1, "{self:?}");
        for words in words {
            assert!(self.stderr.contains(words), "{words}: {self:?}");
        }
        self
    }
}

/// The command in this folder, with these variables.
pub fn model_pool(folder: &Path, words: &[&str], env: &[(&str, &str)]) -> Ended {
    let output = Command::new(support::program())
        .args(words)
        .current_dir(folder)
        .envs(env.iter().copied())
        .output();
    Ended::of(output.expect("it runs"))
}
