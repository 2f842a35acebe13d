//! The interface to a kind of engine: how to start it, and how to read its responses and output.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use super::report::Launch;
use crate::connection::Endpoint;
use crate::failures::{EngineError, Failure};

/// Starts one kind of engine and reads its health responses. Stateless.
pub trait EngineDriver: Send + Sync {
    /// The command line, environment and routes that start `launch` listening on `endpoint`. Errors name the field of the recipe
    /// that cannot be used.
    fn prepare(&self, launch: &Launch, endpoint: &Endpoint)
    -> Result<PreparedCommand, EngineError>;

    /// The load's progress in the body of a 503 health response: a short stage, and a percentage if the engine reports it. `None`
    /// if the body contains neither.
    fn progress(&self, body: &[u8]) -> Option<(String, Option<u8>)>;

    /// The route that reports how much of the weights are pages of mapped files, if the engine has one.
    fn memory_path(&self) -> Option<&'static str> {
        None
    }

    /// The progress of the load in a line of the engine's output.
    fn progress_of_line(&self, _launch: &Launch, _line: &str) -> Option<(String, Option<u8>)> {
        None
    }

    /// The kind of failure shown by the last output, with a line of advice, where this kind of engine knows more than the common
    /// patterns.
    fn advice(&self, _launch: &Launch, _output: &str) -> Option<(Failure, Cow<'static, str>)> {
        None
    }
}

/// A command line that is ready to run. `Debug` shows no argument and no value, because they may be secrets.
pub struct PreparedCommand {
    /// The program and its arguments; never empty.
    pub argv: Vec<OsString>,
    /// Variables of the recipe, in addition to those every engine gets.
    pub env: BTreeMap<String, String>,
    /// The engine's working directory; `None` is the controller's.
    pub working_dir: Option<PathBuf>,
    /// The route whose 2xx response means ready, with its leading slash.
    pub ready_path: String,
    /// True if the engine's standard input is a pipe whose end tells it that the controller has died.
    pub lifeline: bool,
    /// Removes the engine's container after its process is gone.
    pub cleanup: Option<Vec<OsString>>,
    /// Instructions to install a missing program.
    pub install: Option<&'static str>,
}

impl fmt::Debug for PreparedCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedCommand")
            .field("program", &self.argv.first())
            .field("arguments", &self.argv.len().saturating_sub(1))
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .field("working_dir", &self.working_dir)
            .field("ready_path", &self.ready_path)
            .field("lifeline", &self.lifeline)
            .field("cleanup", &self.cleanup.is_some())
            .finish_non_exhaustive()
    }
}
