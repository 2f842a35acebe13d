//! The program `admin-client`: runs one command against a pool's admin API. The exit status is 0
//! (success), 1 (refused or failed), 2 (wrong usage) or 3 (cannot reach the server).

mod cli;
mod commands;
mod decisions;
mod error;
mod render;
mod responses;
mod screen;
mod session;
mod state;
mod top;
mod what_if;

use std::process::ExitCode;
use std::sync::Arc;

use client::{Client, KeyKind, ServerOptions, Settings};

use crate::cli::{Cli, Command, help};
use crate::error::CommandError;
use crate::screen::Screen;
use crate::session::Session;
use terminal::style;

fn main() -> ExitCode {
    let cli = help::parse();
    let errors = Screen::of_stderr().wide(cli.wide);
    run(cli).unwrap_or_else(|failure| {
        eprint!("{}", failure.explain(errors.style));
        ExitCode::from(failure.exit_status())
    })
}

fn run(cli: Cli) -> Result<ExitCode, CommandError> {
    if let Command::Completions { shell } = cli.command {
        commands::completions(shell)?;
        return Ok(ExitCode::SUCCESS);
    }
    let options = ServerOptions {
        server: &cli.server,
        key: cli.key.as_ref(),
        key_file: cli.key_file.as_deref(),
        ca_file: cli.ca_file.as_deref(),
    };
    let settings = Settings::find(options, KeyKind::Admin)?;
    if let Command::Chat(args) = &cli.command {
        return Ok(terminal::chat_with(args, settings));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(CommandError::Runtime)?;
    let session = Session {
        client: Arc::new(Client::new(settings, "admin-client")?),
        screen: Screen::of_stdout().wide(cli.wide),
        json: cli.json,
    };
    let outcome = runtime.block_on(commands::run(&session, cli.command));
    match outcome {
        // The reader of the output closed it, as `| head` does.
        Err(CommandError::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            Ok(ExitCode::SUCCESS)
        }
        other => other.map(|()| ExitCode::SUCCESS),
    }
}
