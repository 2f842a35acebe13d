//! `chat`: a conversation with a model in the terminal. Takes the server and the key as every other command does.

use std::process::ExitCode;

use crate::cli::ChatArgs;
use crate::settings::Settings;

pub fn chat(args: &ChatArgs, settings: Settings) -> ExitCode {
    let server = terminal::ServerArgs {
        server: Some(settings.base),
        key: settings.key.map(|key| terminal::Key(key.0)),
        key_file: None,
        ca_file: settings.ca_file,
        config: None,
        key_story: Some(sentence(&settings.key_story)),
    };
    let args = terminal::ChatArgs {
        model: args.model.clone(),
        ask: args.ask.clone(),
        no_history: args.no_history,
        server,
    };
    terminal::chat(&args, &terminal::Defaults::default())
}

/// Capitalizes the text and adds a full stop, as in the terminal's other messages.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters
        .next()
        .map(|letter| letter.to_uppercase().to_string());
    format!("{}{}.", first.unwrap_or_default(), letters.as_str())
}
