//! The interface of a kind of engine: how it is started, and how its answers and its output are read.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use super::endpoint::Endpoint;
use super::failure::Failure;
use super::fault::EngineFault;
use super::launch::Launch;

/// How one kind of engine is started, and how its health answers are read. Stateless.
pub trait EngineDriver: Send + Sync {
    /// The command line, environment and routes that start `launch` so that it listens on `endpoint`. Errors
    /// name the field of the recipe that cannot be used.
    fn prepare(&self, launch: &Launch, endpoint: &Endpoint) -> Result<Prepared, EngineFault>;

    /// What the body of a 503 health answer says about the load: a short stage, and per cent when the engine
    /// reports them. `None` when the body says nothing about it.
    fn progress(&self, body: &[u8]) -> Option<(String, Option<u8>)>;

    /// The route that reports how much of its weights are pages of mapped files, where there is one.
    fn memory_path(&self) -> Option<&'static str> {
        None
    }

    /// What a line of the engine's output says about the load of `launch`.
    fn progress_of_line(&self, _launch: &Launch, _line: &str) -> Option<(String, Option<u8>)> {
        None
    }

    /// What its last output means, with a line of advice, where this kind of engine knows more than the common
    /// patterns.
    fn advice(&self, _launch: &Launch, _output: &str) -> Option<(Failure, Cow<'static, str>)> {
        None
    }
}

/// A command line that is ready to run. `Debug` shows no argument and no value, because they may be secrets.
pub struct Prepared {
    /// The program and its arguments; never empty.
    pub argv: Vec<OsString>,
    /// What the recipe adds to the environment that every engine gets.
    pub env: BTreeMap<String, String>,
    /// The engine's working directory; `None` is the controller's.
    pub working_dir: Option<PathBuf>,
    /// The route whose 2xx answer means ready, with its leading slash.
    pub ready_path: String,
    /// Whether the engine's standard input is a pipe whose end tells it that the controller died.
    pub lifeline: bool,
    /// Removes the container that the engine runs in, once its process is gone.
    pub cleanup: Option<Vec<OsString>>,
    /// How to install the program, if it is missing.
    pub install: Option<&'static str>,
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared")
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
