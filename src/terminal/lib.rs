//! `model-pool chat`, `run` and `evaluate`: a terminal client of a running pool. It uses only the HTTP API, and therefore works
//! with pools on other machines.
//!
//! ```text
//! chat ─▶ session: input ─▶ command, or a prompt ─▶ ask ─▶ screen
//! run  ─▶ once:    arguments and standard input  ─▶ ask ─▶ screen
//! evaluate:        prompts of a file, for each model ─▶ ask ─▶ table
//!                                        ask: client ─▶ events ─▶ response
//! ```

mod args;
mod client;
mod command;
mod control_chars;
mod conversation;
mod editor;
mod error;
mod evaluate;
mod events;
mod input;
mod interrupt;
mod models;
mod parameters;
mod quantity;
mod queue_status;
mod quotes;
mod request;
mod response;
mod save;
mod screen;
mod session;
mod settings;
mod single_prompt;
mod status;
pub mod trust;

use std::io::IsTerminal;
use std::process::ExitCode;

pub use args::{
    AskArgs, CHAT_EXAMPLES, ChatArgs, EVALUATE_EXAMPLES, EvaluateArgs, Key, RUN_EXAMPLES, RunArgs,
    ServerArgs,
};
pub use control_chars::clean;
pub use models::hub_name;
pub use quantity::{bytes, seconds};
pub use settings::Defaults;
pub use status::StatusLine;

use client::Client;
use error::CommandError;
use settings::Settings;

/// Runs `model-pool chat MODEL`.
pub fn chat(args: &ChatArgs, defaults: &Defaults) -> ExitCode {
    end(&with_client(&args.server, defaults, |runtime, client| {
        session::run(runtime, client, args)
    }))
}

/// Runs `model-pool run MODEL [PROMPT]`. Starts a conversation without a prompt if there is a terminal.
pub fn run(args: &RunArgs, defaults: &Defaults) -> ExitCode {
    let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if args.prompt.is_empty() && is_terminal && !args.json {
        return chat(&args.as_chat(), defaults);
    }
    end(&with_client(&args.server, defaults, |runtime, client| {
        single_prompt::run(runtime, client, args)
    }))
}

/// Runs `model-pool evaluate MODEL… --file FILE`.
pub fn evaluate(args: &EvaluateArgs, defaults: &Defaults) -> ExitCode {
    end(&with_client(&args.server, defaults, |runtime, client| {
        evaluate::run(runtime, client, args)
    }))
}

fn with_client(
    args: &ServerArgs,
    defaults: &Defaults,
    work: impl FnOnce(&tokio::runtime::Runtime, &Client) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    // Fails if another part of this program has installed it already, which is fine.
    let _installed = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(CommandError::Runtime)?;
    let client = Client::new(Settings::find(args, defaults)?)?;
    work(&runtime, &client)
}

fn end(outcome: &Result<(), CommandError>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(text) = failure.explain() {
                eprintln!("{text}");
            }
            ExitCode::from(failure.exit_status())
        }
    }
}
