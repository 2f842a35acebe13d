//! Classifies the end of an engine by its exit status and its last output, with advice for each kind. The pool decides how to react
//! to a kind (L3).
//!
//! The patterns are messages of Python's argparse and click, clap, llama.cpp (`error: invalid argument`,
//! `unknown model architecture`, `couldn't bind HTTP server socket`), vLLM (`Model architectures … are not
//! supported for now`), transformers and huggingface_hub (`does not recognize this architecture`, `You are
//! trying to access a gated repo`, `is not a local folder and is not a valid model identifier`), TGI
//! (`Unsupported model type`). A kind of engine adds its own with
//! [`EngineDriver::advice`](crate::launch::EngineDriver::advice).
//! One file because each kind has its label, its text, its advice and its patterns.

use std::fmt;
use std::io::{self, Read};
use std::path::Path;

use super::error::EngineError;

/// The kinds of failure.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub enum Failure {
    /// There was not enough memory.
    OutOfMemory,
    /// The program does not exist.
    BinaryMissing,
    /// The program is not executable, or is built for another machine.
    NotExecutable,
    /// The engine refused its command line, or none could be built.
    WrongArguments,
    /// The weights do not exist at the configured path.
    ModelMissing,
    /// The weights are truncated, or do not match their header.
    WeightsDamaged,
    /// The weights need a licence that was not accepted, or a token.
    GatedModel,
    /// This version of the engine cannot run this kind of model.
    UnknownArchitecture,
    /// A required library or package is not installed.
    MissingLibrary,
    /// The engine cannot run weights of this quantisation, or not on this GPU.
    Quantisation,
    /// The GPU's driver is older than the engine requires.
    DriverTooOld,
    /// The engine's disk was full.
    DiskFull,
    /// Another process took the port between our choice and the engine's start.
    PortTaken,
    /// The system has no free port.
    NoPort,
    /// The engine was ready and stopped responding.
    Unresponsive,
    /// The engine ended for a reason that is not recognised.
    Crashed,
    /// The pool could not start the engine, which is not the engine's fault.
    NotStarted,
    /// The engine did not listen within the deadline of its load.
    TimedOut,
    /// The engine listened, but was not ready within the deadline of its load.
    NeverReady,
    /// A remote endpoint refuses the pool's key, or no key is configured.
    KeyRefused,
    /// A remote endpoint cannot be connected to.
    Unreachable,
}

impl Failure {
    pub const ALL: [Failure; 21] = [
        Failure::OutOfMemory,
        Failure::BinaryMissing,
        Failure::NotExecutable,
        Failure::WrongArguments,
        Failure::ModelMissing,
        Failure::WeightsDamaged,
        Failure::GatedModel,
        Failure::UnknownArchitecture,
        Failure::MissingLibrary,
        Failure::Quantisation,
        Failure::DriverTooOld,
        Failure::DiskFull,
        Failure::PortTaken,
        Failure::NoPort,
        Failure::Unresponsive,
        Failure::Crashed,
        Failure::NotStarted,
        Failure::TimedOut,
        Failure::NeverReady,
        Failure::KeyRefused,
        Failure::Unreachable,
    ];

    /// The label in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Failure::OutOfMemory => "out_of_memory",
            Failure::BinaryMissing => "binary_missing",
            Failure::NotExecutable => "not_executable",
            Failure::WrongArguments => "wrong_arguments",
            Failure::ModelMissing => "model_missing",
            Failure::WeightsDamaged => "weights_damaged",
            Failure::GatedModel => "gated_model",
            Failure::UnknownArchitecture => "unknown_architecture",
            Failure::MissingLibrary => "missing_library",
            Failure::Quantisation => "quantisation",
            Failure::DriverTooOld => "driver_too_old",
            Failure::DiskFull => "disk_full",
            Failure::PortTaken => "port_taken",
            Failure::NoPort => "no_port",
            Failure::Unresponsive => "unresponsive",
            Failure::Crashed => "crashed",
            Failure::NotStarted => "not_started",
            Failure::TimedOut => "timed_out",
            Failure::NeverReady => "never_ready",
            Failure::KeyRefused => "key_refused",
            Failure::Unreachable => "unreachable",
        }
    }

    /// The kind named at the start of a text made by [`Failure::tell`].
    pub fn parse(text: &str) -> Option<Failure> {
        let kind = |failure: &Failure| {
            let rest = text.strip_prefix(&failure.to_string());
            rest.is_some_and(|rest| rest.starts_with(':'))
        };
        Failure::ALL.into_iter().find(kind)
    }

    /// Returns true if a retry fails again until an administrator changes something.
    pub fn is_lasting(self) -> bool {
        matches!(
            self,
            Failure::BinaryMissing
                | Failure::NotExecutable
                | Failure::WrongArguments
                | Failure::GatedModel
                | Failure::UnknownArchitecture
                | Failure::MissingLibrary
                | Failure::Quantisation
                | Failure::DriverTooOld
                | Failure::KeyRefused
        )
    }

    /// Returns true if the model is not the cause and a retry is likely to succeed.
    pub fn is_chance(self) -> bool {
        self == Failure::PortTaken
    }

    /// The failure as text: its kind, the engine's last output, how it ended, and what to do.
    pub fn tell(self, output: &str, status: &str) -> String {
        let reason = if output.is_empty() {
            format!("{self}: it printed nothing ({status})")
        } else if self.to_string() == status {
            format!("{self}: {output}")
        } else {
            format!("{self}: {output} ({status})")
        };
        match self.advice() {
            "" => reason,
            advice => format!("{reason}; {advice}"),
        }
    }

    fn advice(self) -> &'static str {
        match self {
            Failure::WrongArguments => {
                "correct the model's engine_config; `admin-client logs` shows its complete output"
            }
            Failure::ModelMissing => {
                "check model_path or hf_model_id of the model, and that the weights are on this machine"
            }
            Failure::WeightsDamaged => {
                "copy or fetch the weights again; `model-pool check` names the file and what it lacks"
            }
            Failure::GatedModel => {
                "accept the model's licence on huggingface.co and give the account's token as HF_TOKEN in engine_config.env"
            }
            Failure::UnknownArchitecture => {
                "install a newer version of the engine, or choose another engine_config.type"
            }
            Failure::PortTaken => "another port is tried",
            Failure::NeverReady | Failure::TimedOut => {
                "raise pool_config.load_deadline if it needs more time"
            }
            // The engine's driver adds this advice.
            Failure::MissingLibrary
            | Failure::Quantisation
            | Failure::DriverTooOld
            | Failure::DiskFull => "",
            // The fault's own message contains the advice.
            Failure::BinaryMissing
            | Failure::NotExecutable
            | Failure::NoPort
            | Failure::NotStarted
            | Failure::KeyRefused
            | Failure::Unreachable => "",
            // The pool handles these on its own.
            Failure::OutOfMemory | Failure::Unresponsive | Failure::Crashed => "",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Failure::OutOfMemory => "out of memory",
            Failure::BinaryMissing => "program missing",
            Failure::NotExecutable => "program not executable",
            Failure::WrongArguments => "wrong arguments",
            Failure::ModelMissing => "model missing",
            Failure::WeightsDamaged => "weights damaged",
            Failure::GatedModel => "gated model",
            Failure::UnknownArchitecture => "unknown architecture",
            Failure::MissingLibrary => "library missing",
            Failure::Quantisation => "quantisation not supported",
            Failure::DriverTooOld => "driver too old",
            Failure::DiskFull => "disk full",
            Failure::PortTaken => "port taken",
            Failure::NoPort => "no port free",
            Failure::Unresponsive => "unresponsive",
            Failure::Crashed => "crashed",
            Failure::NotStarted => "not started",
            Failure::TimedOut => "timed out",
            Failure::NeverReady => "never ready",
            Failure::KeyRefused => "key refused",
            Failure::Unreachable => "unreachable",
        })
    }
}

/// Text that identifies a kind of failure.
#[derive(Clone, Copy, Debug)]
struct Pattern {
    /// Lower-case texts that must all occur in the last output.
    texts: &'static [&'static str],
    failure: Failure,
}

const fn row(failure: Failure, output: &'static [&'static str]) -> Pattern {
    Pattern {
        texts: output,
        failure,
    }
}

/// Patterns for all engines. The first matching row counts.
#[rustfmt::skip]
const PATTERNS: &[Pattern] = &[
    row(Failure::PortTaken, &["address already in use"]),
    row(Failure::PortTaken, &["couldn't bind http server socket"]),
    row(Failure::PortTaken, &["port", "is already in use"]),
    row(Failure::GatedModel, &["gated repo"]),
    row(Failure::GatedModel, &["gatedrepoerror"]),
    row(Failure::GatedModel, &["awaiting a review from the repo authors"]),
    row(Failure::GatedModel, &["401 client error", "huggingface"]),
    row(Failure::UnknownArchitecture, &["unknown model architecture"]),
    row(Failure::UnknownArchitecture, &["model architectures", "are not supported"]),
    row(Failure::UnknownArchitecture, &["does not recognize this architecture"]),
    row(Failure::UnknownArchitecture, &["unsupported model type"]),
    row(Failure::ModelMissing, &["is not a local folder and is not a valid model identifier"]),
    row(Failure::ModelMissing, &["does not appear to have a file named"]),
    row(Failure::ModelMissing, &["repositorynotfounderror"]),
    row(Failure::ModelMissing, &["failed to open gguf file"]),
    // Reported by the catalogue, before a start.
    row(Failure::WeightsDamaged, &["the weights are damaged"]),
    row(Failure::WeightsDamaged, &["model is corrupted or incomplete"]),
    row(Failure::WeightsDamaged, &["invalid magic characters"]),
    row(Failure::WeightsDamaged, &["gguf_init_from_file", "failed to read"]),
    row(Failure::WeightsDamaged, &["error while deserializing header"]),
    row(Failure::WeightsDamaged, &["incomplete metadata, file not fully covered"]),
    row(Failure::WrongArguments, &["unrecognized arguments"]),
    row(Failure::WrongArguments, &["the following arguments are required"]),
    row(Failure::WrongArguments, &["error: argument "]),
    row(Failure::WrongArguments, &["error: invalid argument"]),
    row(Failure::WrongArguments, &["error: unexpected argument"]),
    row(Failure::WrongArguments, &["error: unknown argument"]),
    row(Failure::WrongArguments, &["error: invalid value"]),
    row(Failure::WrongArguments, &["no such option"]),
    row(Failure::WrongArguments, &["unrecognized option"]),
    row(Failure::WrongArguments, &["unknown option"]),
    row(Failure::WrongArguments, &["unknown flag"]),
];

/// Classifies the output of an engine that did not become ready. Patterns of the engine's kind take precedence.
pub(crate) fn classify(output: &str) -> Failure {
    let output = output.to_lowercase();
    let fits = |pattern: &&Pattern| pattern.texts.iter().all(|word| output.contains(word));
    match PATTERNS.iter().find(fits) {
        Some(row) => row.failure,
        None if shows_usage(&output) => Failure::WrongArguments,
        None => Failure::Crashed,
    }
}

/// argparse, click and clap all end with a usage line and an error line.
fn shows_usage(output: &str) -> bool {
    let has = |is: fn(&str) -> bool| output.lines().any(|line| is(line.trim_start()));
    has(|line| line.starts_with("usage:"))
        && has(|line| line.starts_with("error:") || line.contains(": error:"))
}

/// The kind of failure for an engine that could not be started.
pub(crate) fn of_error(error: &EngineError) -> Failure {
    match error {
        EngineError::Start { source, .. } => of_start(source),
        EngineError::Port { .. } => Failure::NoPort,
        EngineError::Journal { source, .. } if is_full(source) => Failure::DiskFull,
        EngineError::Placement { problem, .. } => classify(problem),
        EngineError::CudaProgram { failure, .. } => *failure,
        EngineError::EmptyCommand { .. }
        | EngineError::WrongEndpoint { .. }
        | EngineError::Template { .. }
        | EngineError::PathNotText { .. }
        | EngineError::ReservedVariable { .. }
        | EngineError::ReadyPath { .. }
        | EngineError::CandleDevices { .. }
        | EngineError::CudaWithoutGpu { .. } => Failure::WrongArguments,
        // A problem of the entire pool, or of a disk that may recover.
        _ => Failure::NotStarted,
    }
}

/// Advice for a program that cannot be run.
pub(super) fn cure_of_start(
    program: &str,
    source: &io::Error,
    install: Option<&'static str>,
) -> String {
    let name = Path::new(program)
        .file_name()
        .map_or(program.into(), |name| name.to_string_lossy());
    let known = INSTALL.iter().find(|(known, _)| *known == name);
    if of_start(source) == Failure::BinaryMissing
        && let Some(interpreter) = missing_interpreter(program)
    {
        return format!(
            "the file exists, but the interpreter {interpreter} in its first line does not: its environment was moved, or its Python was removed; create the environment again"
        );
    }
    match (of_start(source), known) {
        (Failure::BinaryMissing, _) if install.is_some() => {
            format!("it is not installed: {}", install.unwrap_or_default())
        }
        (Failure::BinaryMissing, Some((_, how))) => {
            format!("it is not installed: {how}, or give its full path")
        }
        (Failure::BinaryMissing, None) => {
            "it is not installed, or not in PATH: install it, or give its full path".to_owned()
        }
        (Failure::NotExecutable, _) => {
            "it may not be run: `chmod +x` it, and check that it is built for this machine"
                .to_owned()
        }
        _ => "the system refused to start it".to_owned(),
    }
}

/// The interpreter in a script's first line, if it is missing. The system then reports the script as missing.
fn missing_interpreter(program: &str) -> Option<String> {
    let mut start = [0; 512];
    let mut script = std::fs::File::open(program).ok()?;
    let length = script.read(&mut start).ok()?;
    let text = String::from_utf8_lossy(&start[..length]);
    let line = text.lines().next()?.strip_prefix("#!")?;
    let interpreter = line.split_whitespace().next()?;
    (!Path::new(interpreter).exists()).then(|| interpreter.to_owned())
}

fn of_start(source: &io::Error) -> Failure {
    match source.kind() {
        io::ErrorKind::NotFound => Failure::BinaryMissing,
        io::ErrorKind::PermissionDenied => Failure::NotExecutable,
        _ if source.raw_os_error() == Some(nix::libc::ENOEXEC) => Failure::NotExecutable,
        _ => Failure::NotStarted,
    }
}

/// Installation instructions of the projects for the programs that run models.
const INSTALL: &[(&str, &str)] = &[
    ("vllm", "`pip install vllm`"),
    (
        "llama-server",
        "install llama.cpp, whose releases on GitHub contain it",
    ),
    ("sglang", "`pip install \"sglang[all]\"`"),
    ("trtllm-serve", "`pip install tensorrt_llm`"),
    (
        "text-generation-launcher",
        "use the container of text-generation-inference as command_prefix",
    ),
    (
        "text-embeddings-router",
        "install text-embeddings-inference",
    ),
    ("docker", "install Docker"),
    ("podman", "install Podman"),
    ("apptainer", "install Apptainer"),
    ("python3", "install Python"),
];

/// Returns true if a write failed because the disk or the quota is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

#[cfg(test)]
mod tests;
