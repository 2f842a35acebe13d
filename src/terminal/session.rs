//! `chat`: reads prompts and commands until the end, and keeps the conversation. At a terminal, a failure is shown and the
//! conversation continues; in a script, it ends the conversation.

use std::collections::BTreeSet;
use std::path::PathBuf;

use tokio::runtime::Runtime;

use super::args::ConversationArgs;
use super::command::{self, Command, HELP};
use super::conversation::Conversation;
use super::error::CommandError;
use super::input::{Input, Message};
use super::interrupt::interrupted;
use super::models;
use super::pool_client::PoolClient;
use super::request::{DisplayOptions, ask, with_status};
use super::save::save;
use super::screen::Screen;
use super::single_prompt::set;

struct Session<'a> {
    runtime: &'a Runtime,
    client: &'a PoolClient,
    screen: Screen,
    conversation: Conversation,
    is_verbose: bool,
    is_interactive: bool,
    /// Files this conversation has written; it may overwrite them.
    saved: BTreeSet<PathBuf>,
}

pub fn run(
    runtime: &Runtime,
    client: &PoolClient,
    args: &ConversationArgs,
) -> Result<(), CommandError> {
    let name = models::hub_name(&args.model);
    let mut input = Input::open(!args.no_history);
    let mut conversation = Conversation::new(&name, args.ask.system.clone());
    set(&mut conversation, &args.ask);
    let mut session = Session {
        runtime,
        client,
        screen: Screen::new(),
        conversation,
        is_verbose: args.ask.verbose,
        is_interactive: input.is_interactive(),
        saved: BTreeSet::new(),
    };
    session.ensure(&name)?;
    if session.is_interactive {
        session.screen.aside(&format!(
            "{name} at {}. /help lists the commands; Ctrl-D ends.",
            client.server()
        ));
    }
    loop {
        let done = match input.message()? {
            Message::End => return Ok(()),
            Message::Interrupted => {
                session
                    .screen
                    .aside("Ctrl-D or /exit ends the conversation.");
                Ok(false)
            }
            Message::Nothing => Ok(false),
            Message::Prompt(text) => {
                session.conversation.prompt(text);
                session.ask().map(|()| false)
            }
            Message::Command(line) => session.command(&line),
        };
        match done {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            // Without output or a terminal, the conversation cannot continue.
            Err(failure @ CommandError::Output(_)) => return Err(failure),
            Err(failure) if !session.is_interactive => return Err(failure),
            Err(failure) => {
                if let Some(text) = failure.explain() {
                    session.screen.note(&text);
                }
            }
        }
    }
}

impl Session<'_> {
    /// Checks that the pool has the model. Ctrl-C cancels the lookup.
    fn ensure(&mut self, name: &str) -> Result<(), CommandError> {
        let work = models::ensure(self.client, &mut self.screen, name);
        let stop = stop(self.is_interactive);
        self.runtime.block_on(async {
            tokio::select! {
                found = work => found,
                () = stop => Err(CommandError::Interrupted),
            }
        })
    }

    /// Requests a response to the pending prompt.
    fn ask(&mut self) -> Result<(), CommandError> {
        let body = self.conversation.request(true);
        let manner = DisplayOptions {
            is_streamed: true,
            is_verbose: self.is_verbose,
        };
        let stop = stop(self.is_interactive);
        let asking = ask(self.client, &body, &mut self.screen, manner, stop);
        let response = self.runtime.block_on(asking);
        let response =
            response.map_err(|failure| models::advised(failure, &self.conversation.model))?;
        self.conversation.add_response(&response.text);
        if response.is_interrupted {
            self.screen.aside("Stopped. /retry asks again.");
        } else if response.text.is_empty() {
            self.screen.aside("The answer is empty. /retry asks again.");
        }
        Ok(())
    }

    /// Executes a command. Returns true if it ends the conversation.
    fn command(&mut self, line: &str) -> Result<bool, CommandError> {
        let command = command::parse(line).map_err(CommandError::Usage)?;
        match command {
            Command::Exit => return Ok(true),
            Command::Help => self.screen.note(HELP),
            Command::System(None) => {
                let text = self.conversation.system.clone();
                let text = text.unwrap_or_else(|| "No instructions are set.".to_owned());
                self.screen.note(&text);
            }
            Command::System(Some(text)) => {
                let is_none = text.is_empty();
                self.conversation.system = (!is_none).then_some(text);
                self.screen.aside(if is_none {
                    "The instructions were removed."
                } else {
                    "The instructions are set."
                });
            }
            Command::Model(None) => self.list()?,
            Command::Model(Some(name)) => {
                let name = models::hub_name(&name);
                self.ensure(&name)?;
                self.screen.aside(&format!("Continuing with {name}."));
                self.conversation.model = name;
            }
            Command::Settings => {
                let text = self.conversation.parameters.describe();
                self.screen.note(&text);
            }
            Command::Set { name, value } => {
                let set = self.conversation.parameters.set(&name, &value);
                let name = set.map_err(CommandError::Usage)?;
                let now = self.conversation.parameters.as_map().get(name);
                let now = now.map_or("the server's default".to_owned(), ToString::to_string);
                self.screen.aside(&format!("{name} is {now}."));
            }
            Command::Verbose(is_verbose) => {
                self.is_verbose = is_verbose;
                self.screen.aside(if is_verbose {
                    "Times are shown after each answer."
                } else {
                    "Times are not shown."
                });
            }
            Command::Retry if self.conversation.retry() => self.ask()?,
            Command::Retry => {
                return Err(CommandError::Usage(
                    "there is no earlier prompt to repeat".to_owned(),
                ));
            }
            Command::Clear => {
                self.conversation.clear();
                self.screen.aside("The messages were removed.");
            }
            Command::Save(path) => {
                let replaces = self.saved.contains(&path);
                let written =
                    save(&self.conversation, &path, replaces).map_err(CommandError::Usage)?;
                self.screen
                    .aside(&format!("Saved to {}.", written.display()));
                self.saved.insert(path);
            }
            Command::Show => self.show(),
        }
        Ok(false)
    }

    fn list(&mut self) -> Result<(), CommandError> {
        let work = with_status(&mut self.screen, self.client.models());
        let stop = stop(self.is_interactive);
        let names = self.runtime.block_on(async {
            tokio::select! {
                names = work => names.map_err(CommandError::from),
                () = stop => Err(CommandError::Interrupted),
            }
        })?;
        let current = &self.conversation.model;
        let mark = |name: &String| if name == current { "*" } else { " " };
        let lines: Vec<String> = names
            .iter()
            .map(|name| format!("{} {name}", mark(name)))
            .collect();
        self.screen.note(&if lines.is_empty() {
            "The pool has no model that you may use.".to_owned()
        } else {
            lines.join("\n")
        });
        Ok(())
    }

    fn show(&mut self) {
        let conversation = &self.conversation;
        let system = conversation.system.as_deref().unwrap_or("none");
        let prompts = conversation.messages().len() / 2;
        let text = format!(
            "model         {}\nserver        {}\nprompts       {prompts}\ninstructions  {system}\n{}",
            conversation.model,
            self.client.server(),
            conversation.parameters.describe()
        );
        self.screen.note(&text);
    }
}

/// Completes on Ctrl-C at a terminal. In a script, the signal ends the program as usual.
async fn stop(is_interactive: bool) {
    if is_interactive {
        interrupted().await
    } else {
        std::future::pending().await
    }
}
