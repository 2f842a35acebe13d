//! One function per command: sends the request and prints the response, unchanged with `--json`,
//! otherwise as text from `render`.

mod batches;
mod cordon;
mod groups;
mod keys;
mod load;
mod models;
mod nodes;
mod out_of_service;
mod records;
mod state;
mod stream;
mod top;
mod upkeep;
mod what_if;

use crate::cli::{Cli, Command};
use crate::error::CommandError;
use crate::screen::Screen;
use clap::CommandFactory;
use clap_complete::Shell;
use client::ClientError;

use crate::session::Session;

/// Runs one command.
///
/// # Errors
/// The failure of the command. With `--json`, the body of a refusal is printed already.
pub async fn run(session: &Session, command: Command) -> Result<(), CommandError> {
    let outcome = match command {
        Command::Load(args) => load::load(session, &args).await,
        Command::Plan {
            model: Some(model),
            wish,
            ..
        } => load::plan(session, &model, &wish).await,
        Command::Plan {
            model: None,
            if_cordoned,
            if_priority,
            ..
        } => what_if::run(session, &if_cordoned, &if_priority).await,
        Command::Unload {
            model,
            replica,
            now,
        } => load::unload(session, &model, replica.as_deref(), now).await,
        Command::Models => models::list(session).await,
        Command::Show {
            model,
            as_file: true,
        } => models::as_file(session, &model).await,
        Command::Show { model, .. } => models::show(session, &model).await,
        Command::Set(args) => models::set(session, &args).await,
        Command::Register(args) => models::register(session, &args).await,
        Command::Remove { model } => models::remove(session, &model).await,
        Command::Devices => state::devices(session).await,
        Command::Cordon(args) => cordon::cordon(session, &args).await,
        Command::Uncordon { device } => cordon::uncordon(session, &device).await,
        Command::Queue => state::queue(session).await,
        Command::Groups(args) => groups::run(session, args).await,
        Command::Batches(args) => batches::run(session, args).await,
        Command::Events(args) => stream::events(session, &args).await,
        Command::Why { what } => records::why(session, &what).await,
        Command::Report(args) => records::report(session, &args).await,
        Command::Usage(args) => records::usage(session, &args).await,
        Command::Leaderboard => records::leaderboard(session).await,
        Command::Logs {
            model,
            follow,
            tail,
            replica,
        } => stream::logs(session, &model, replica.as_deref(), tail, follow).await,
        Command::Top { times, once } => top::top(session, times, once).await,
        Command::Cleanup { preview, mode, yes } => {
            upkeep::cleanup(session, preview, mode, yes).await
        }
        Command::Reset { yes } => upkeep::reset(session, yes).await,
        Command::Reload => upkeep::reload(session).await,
        Command::Config => state::config(session).await,
        Command::Audit(args) => records::audit(session, &args).await,
        Command::Nodes(args) => nodes::run(session, args).await,
        Command::Keys(command) => keys::run(session, command).await,
        Command::Completions { shell } => completions(shell),
        // `main` runs `chat`, which creates a separate runtime.
        Command::Chat(_) => Ok(()),
    };
    match outcome {
        Err(CommandError::Client(ClientError::Refused(refusal))) if session.json => {
            session.screen.print(&refusal.body)?;
            Err(ClientError::Refused(refusal).into())
        }
        other => other,
    }
}

/// Prints a shell's completion script. Needs no server.
///
/// # Errors
/// `CommandError::Output` if the output is closed.
pub fn completions(shell: Shell) -> Result<(), CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "admin-client", &mut script);
    Screen::of_stdout().print(&String::from_utf8_lossy(&script))
}
