//! The program `admin-client`: reads the command line, runs one command against a pool's admin API
//! and turns the outcome into an exit status (0 done, 1 refused or failed, 2 wrong usage, 3 cannot
//! reach the server). Never decides anything about the pool, and knows only its HTTP surface.

mod answers;
mod cli;
mod client;
mod commands;
mod failure;
mod render;
mod screen;
mod settings;
mod sse;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};
use crate::client::Client;
use crate::commands::Session;
use crate::failure::Failure;
use crate::screen::Screen;
use crate::settings::Settings;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let errors = Screen::of_stderr();
    let (outcome, hint) = run(cli);
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprint!("{}", failure.explain(errors.style, hint.as_deref()));
            ExitCode::from(failure.exit_status())
        }
    }
}

/// Runs the command. Beside the outcome stands where the admin key was looked for, for the
/// explanation of a refused key.
fn run(cli: Cli) -> (Result<(), Failure>, Option<String>) {
    if let Command::Completions { shell } = cli.command {
        return (commands::completions(shell), None);
    }
    let settings = match Settings::find(&cli) {
        Ok(settings) => settings,
        Err(failure) => return (Err(failure), None),
    };
    let hint = settings.key_story.clone();
    (connect_and_run(cli, settings), Some(hint))
}

fn connect_and_run(cli: Cli, settings: Settings) -> Result<(), Failure> {
    // Installed by hand, because the TLS library is built without a default of its own. An error
    // means that one is installed already, which serves as well.
    let _already_installed = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::Runtime)?;
    let session = Session {
        client: Client::new(settings)?,
        screen: Screen::of_stdout(),
        json: cli.json,
    };
    let outcome = runtime.block_on(commands::run(&session, cli.command));
    match outcome {
        // Whoever read our output has seen enough, as `| head` does.
        Err(Failure::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}
