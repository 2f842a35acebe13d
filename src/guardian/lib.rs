//! The guardian of one engine: `model-pool guardian`, a small process between the controller and the engine. It is the engine's
//! parent, drains its output, keeps it alive while the controller is away, and cleans up after it. It follows the orders of one
//! controller at a time, and its configured rules while there is none. It has no runtime, no threads and no async code.
//!
//! ```text
//!  controller ──socket──▶ guardian (subreaper) ──pipes, PDEATHSIG──▶ engine (own session) ─▶ …
//!      │ dies                 │
//!      ▼                      ├─ on_restart: stop, or the engine is not ready: SIGKILL to all
//!  next controller ──────────▶└─ adopt: keeps draining; SIGTERM, grace, SIGKILL if none comes
//! ```
//!
//! | who dies        | what follows                                                             |
//! |-----------------|--------------------------------------------------------------------------|
//! | the engine      | its group and every process it left are killed; `Exited` is sent         |
//! | the controller  | as above; the next one finds the guardian by the journal and its socket  |
//! | the guardian    | the engine dies with it; the controller sweeps what escaped, by its mark |

pub mod cgroup;
mod child;
#[doc(hidden)]
pub mod fuzzing;
mod last_words;
mod life;
mod link;
mod log_file;
mod masking;
mod output;
pub mod proc;
pub mod protocol;
mod signals;

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;

pub use child::close_all_on_exec;
pub use log_file::LogFile;
pub use masking::Masking;

/// The command that runs our own program as a guardian.
pub const COMMAND: &str = "guardian";

/// Runs the process. Standard input is the connection to the controller; the argument after the command, if
/// there is one, is the control group to create.
pub fn run() -> ExitCode {
    let socket = std::io::stdin().as_fd().try_clone_to_owned();
    let controller = socket.map(UnixStream::from);
    let Some(controller) = controller.ok().filter(|socket| socket.local_addr().is_ok()) else {
        eprintln!("model-pool: a guardian is started by `model-pool serve`, for one engine");
        return ExitCode::FAILURE;
    };
    let group = std::env::args_os().nth(2).map(PathBuf::from);
    match life::Life::new(controller, group) {
        Ok(life) => {
            life.run();
            ExitCode::SUCCESS
        }
        Err(_) => ExitCode::FAILURE,
    }
}
