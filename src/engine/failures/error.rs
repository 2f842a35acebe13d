//! Errors that keep an engine from starting, with messages for the administrator.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::failure::{Failure, cure_of_start};
use crate::connection::Endpoint;

/// The reason an engine could not be started. One variant per operation that can fail.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("the command of model {model} is empty: give at least the name of a program")]
    EmptyCommand { model: String },
    #[error("model {model}: its kind of engine cannot be started on {endpoint}")]
    WrongEndpoint { model: String, endpoint: Endpoint },
    #[error("model {model}: {field} does not render (names: {names})")]
    Template {
        model: String,
        /// For example `command[3]` or `env.HOME`.
        field: String,
        /// The names that have a value in this launch.
        names: String,
        #[source]
        source: minijinja::Error,
    },
    #[error(
        "model {model}: the path {path:?} is not valid UTF-8, so it cannot be used in a template"
    )]
    PathNotText { model: String, path: PathBuf },
    #[error(
        "model {model}: env.{name} is set by the pool from the placement; remove it from the model's file"
    )]
    ReservedVariable { model: String, name: String },
    #[error(
        "model {model}: ready_path {path:?} must begin with `/` and contain no space or control character"
    )]
    ReadyPath { model: String, path: String },
    #[error(
        "model {model}: the embedded engine computes on 1 device unless engine_kwargs.device is cuda, and was placed on {count}; set gpus_per_replica to 1"
    )]
    CandleDevices { model: String, count: usize },
    #[error("model {model}: engine_kwargs.device is cuda, and {problem}")]
    CudaProgram {
        model: String,
        /// The problem, with advice.
        problem: String,
        failure: Failure,
    },
    #[error(
        "model {model}: engine_kwargs.device is cuda, and this machine shows no NVIDIA GPU; the model was placed in host memory: install the driver, or write device: cpu"
    )]
    CudaWithoutGpu { model: String },
    #[error("model {model}: {engine} cannot be started with this placement: {problem}")]
    Placement {
        model: String,
        engine: &'static str,
        /// The problem with its numbers, and what to do.
        problem: String,
    },
    #[error(
        "no free port on 127.0.0.1: stop programs that listen there, or raise the open files limit"
    )]
    Port {
        #[source]
        source: io::Error,
    },
    #[error(
        "the engine listens on {address}, which is in use; stop the program that listens there, or write listen: port and use {{{{ port }}}} for more than one replica"
    )]
    OwnPort {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error("cannot use the runtime directory {path:?}")]
    RuntimeDir {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the runtime directory is open to other accounts: {source}")]
    RuntimeDirOpen {
        #[source]
        source: io::Error,
    },
    #[error(
        "the working directory {path:?} of model {model} does not exist; create it or correct working_dir"
    )]
    WorkingDir { model: String, path: PathBuf },
    #[error(
        "cannot start program {program:?} of model {model}; {}",
        cure_of_start(program, source, *install)
    )]
    Start {
        model: String,
        program: String,
        /// Instructions to install the program, where the kind of engine is known.
        install: Option<&'static str>,
        #[source]
        source: io::Error,
    },
    #[error(
        "cannot start a guardian; check that the model-pool executable is still in its place and that the limits of processes and open files are not reached (`ulimit -u`, `ulimit -n`)"
    )]
    Guardian {
        #[source]
        source: io::Error,
    },
    #[error("the guardian of the engine ended before the engine started; load the model again")]
    GuardianGone,
    #[error("cannot write the engine journal {path:?}; make state.dir writable")]
    Journal {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot open the log file {path:?}")]
    LogFile {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}
