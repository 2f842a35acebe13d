//! `model-pool chat`, `run`, `evaluate` and `batch`: a terminal client of a running pool. It uses only the HTTP API, and therefore
//! works with pools on other machines. `table`, `fold` and `style` format the output of every command line.
//!
//! ```text
//! chat ─▶ session: input ─▶ command, or a prompt ─▶ ask ─▶ screen
//! run  ─▶ once:    arguments and standard input  ─▶ ask ─▶ screen
//! evaluate:        prompts of a file, for each model ─▶ ask ─▶ table
//! batch:           a file of requests ─▶ batch ─▶ files of results
//!                                        ask: pool_client ─▶ response
//! ```

mod args;
mod batch;
mod command;
mod control_chars;
mod conversation;
mod editor;
mod error;
mod evaluate;
pub mod fold;
mod input;
mod interrupt;
mod models;
mod parameters;
mod pool_client;
mod quantity;
mod queue_status;
mod quotes;
mod request;
mod response;
mod save;
mod screen;
mod session;
mod single_prompt;
mod status;
pub mod style;
pub mod table;
mod window;

use std::io::IsTerminal;
use std::process::ExitCode;

pub use args::{
    AskArgs, CHAT_EXAMPLES, ChatArgs, ConversationArgs, EVALUATE_EXAMPLES, EvaluateArgs,
    RUN_EXAMPLES, RunArgs, ServerArgs,
};
pub use batch::{BATCH_EXAMPLES, BatchArgs};
pub use control_chars::clean;
pub use models::hub_name;
pub use pool_client::Defaults;
pub use quantity::{bytes, seconds, two_units};
pub use status::StatusLine;
pub use window::window;

use client::{ClientError, Settings};
use error::CommandError;
use pool_client::PoolClient;

/// Runs `model-pool chat MODEL`.
pub fn chat(args: &ChatArgs, defaults: &Defaults) -> ExitCode {
    let client = PoolClient::find(&args.server, defaults);
    end(&with_client(client, |runtime, client| {
        session::run(runtime, client, &args.conversation)
    }))
}

/// Runs `admin-client chat MODEL`. The key of `settings` may also register models.
pub fn chat_with(args: &ConversationArgs, settings: Settings) -> ExitCode {
    let admin_key = settings.key.clone();
    let client = PoolClient::new(settings, admin_key);
    end(&with_client(client, |runtime, client| {
        session::run(runtime, client, args)
    }))
}

/// Runs `model-pool run MODEL [PROMPT]`. Starts a conversation without a prompt if there is a terminal.
pub fn run(args: &RunArgs, defaults: &Defaults) -> ExitCode {
    let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if args.prompt.is_empty() && is_terminal && !args.json {
        return chat(&args.as_chat(), defaults);
    }
    let client = PoolClient::find(&args.server, defaults);
    end(&with_client(client, |runtime, client| {
        single_prompt::run(runtime, client, args)
    }))
}

/// Runs `model-pool evaluate MODEL… --file FILE`.
pub fn evaluate(args: &EvaluateArgs, defaults: &Defaults) -> ExitCode {
    let client = PoolClient::find(&args.server, defaults);
    end(&with_client(client, |runtime, client| {
        evaluate::run(runtime, client, args)
    }))
}

/// Runs `model-pool batch FILE`.
pub fn batch(args: &BatchArgs, defaults: &Defaults) -> ExitCode {
    let client = PoolClient::find(&args.server, defaults);
    end(&with_client(client, |runtime, client| {
        batch::run(runtime, client, args)
    }))
}

fn with_client(
    client: Result<PoolClient, ClientError>,
    work: impl FnOnce(&tokio::runtime::Runtime, &PoolClient) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(CommandError::Runtime)?;
    work(&runtime, &client?)
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
