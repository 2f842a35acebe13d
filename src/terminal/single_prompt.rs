//! `run` with a prompt: prints one response to standard output.

use std::io::{self, IsTerminal};

use tokio::runtime::Runtime;

use super::args::{AskArgs, RunArgs};
use super::conversation::Conversation;
use super::error::CommandError;
use super::input;
use super::interrupt::interrupted;
use super::models::{advised, hub_name, register};
use super::pool_client::PoolClient;
use super::request::{DisplayOptions, ask, with_status};
use super::screen::Screen;

pub fn run(runtime: &Runtime, client: &PoolClient, args: &RunArgs) -> Result<(), CommandError> {
    let name = hub_name(&args.model);
    let mut conversation = Conversation::new(&name, args.ask.system.clone());
    set(&mut conversation, &args.ask);
    conversation.prompt(prompt(&args.prompt)?);
    let mut screen = Screen::new();
    let work = async {
        match print_response(client, args, &conversation, &mut screen).await {
            Err(failure) if failure.is_unknown_model() => {
                register(client, &mut screen, &name, failure).await?;
                let again = print_response(client, args, &conversation, &mut screen).await;
                again.map_err(|failure| advised(failure, &name))
            }
            result => result,
        }
    };
    let outcome = runtime.block_on(work);
    let refusal = outcome.as_ref().err().and_then(CommandError::refusal);
    if let Some(refusal) = refusal.filter(|_| args.json) {
        screen.print(&format!("{}\n", refusal.body.trim_end()))?;
    }
    outcome
}

/// Sets the parameters given as options.
pub fn set(conversation: &mut Conversation, args: &AskArgs) {
    if let Some(temperature) = args.temperature {
        conversation.parameters.put("temperature", temperature);
    }
    if let Some(most) = args.max_tokens {
        conversation.parameters.put("max_tokens", most);
    }
}

/// Joins standard input, unless it is a terminal, and the words on the command line.
fn prompt(arguments: &[String]) -> Result<String, CommandError> {
    let mut parts = Vec::new();
    if !io::stdin().is_terminal() {
        parts.push(input::all(&mut io::stdin().lock())?);
    }
    parts.extend(arguments.iter().cloned());
    parts.retain(|part| !part.trim().is_empty());
    if parts.is_empty() {
        Err(CommandError::Usage(
            "no prompt is given; write it after the model's name, or on standard input".to_owned(),
        ))
    } else {
        Ok(parts.join(" "))
    }
}

async fn print_response(
    client: &PoolClient,
    args: &RunArgs,
    conversation: &Conversation,
    screen: &mut Screen,
) -> Result<(), CommandError> {
    if args.json {
        let body = conversation.request(false);
        let work = with_status(screen, client.complete(&body));
        let response = tokio::select! {
            response = work => response?,
            () = interrupted() => return Err(CommandError::Interrupted),
        };
        return screen.print(&format!("{}\n", response.text.trim_end()));
    }
    let manner = DisplayOptions {
        is_streamed: !args.no_stream,
        is_verbose: args.ask.verbose,
    };
    let body = conversation.request(true);
    let response = ask(client, &body, screen, manner, interrupted()).await?;
    if response.is_interrupted {
        Err(CommandError::Interrupted)
    } else {
        Ok(())
    }
}
