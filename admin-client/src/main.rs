//! The program `admin-client`: runs one command against a pool's admin API. The exit status is 0
//! (success), 1 (refused or failed), 2 (wrong usage) or 3 (cannot reach the server).

mod cli;
mod client;
mod commands;
mod decisions;
mod error;
mod render;
mod responses;
mod screen;
mod settings;
mod sse;
mod state;
mod style;
mod top;
mod what_if;

use std::process::ExitCode;
use std::sync::Arc;

use crate::cli::{Cli, Command, help};
use crate::client::Client;
use crate::commands::Session;
use crate::error::CommandError;
use crate::screen::Screen;
use crate::settings::Settings;

fn main() -> ExitCode {
    let cli = help::parse();
    let errors = Screen::of_stderr().wide(cli.wide);
    let (outcome, hint) = match cli.command {
        Command::Chat(ref args) => match Settings::find(&cli) {
            Ok(settings) => return commands::chat(args, settings),
            Err(failure) => (Err(failure), None),
        },
        _ => run(cli),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprint!("{}", failure.explain(errors.style, hint.as_deref()));
            ExitCode::from(failure.exit_status())
        }
    }
}

/// Runs the command. Also returns the source of the admin key, for the message about a refused key.
fn run(cli: Cli) -> (Result<(), CommandError>, Option<String>) {
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

fn connect_and_run(cli: Cli, settings: Settings) -> Result<(), CommandError> {
    // The TLS library is built without a default provider. An error means that one is installed
    // already, which is fine.
    let _already_installed = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(CommandError::Runtime)?;
    let session = Session {
        client: Arc::new(Client::new(settings)?),
        screen: Screen::of_stdout().wide(cli.wide),
        json: cli.json,
    };
    let outcome = runtime.block_on(commands::run(&session, cli.command));
    match outcome {
        // The reader of the output closed it, as `| head` does.
        Err(CommandError::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            Ok(())
        }
        other => other,
    }
}
