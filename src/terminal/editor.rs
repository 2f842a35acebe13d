//! The line editor for terminals: editing, a history file, multi-line texts, and completion of commands with Tab.

use std::path::PathBuf;

use rustyline::completion::Completer;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{CompletionType, Config, Context, Helper};

use super::command::NAMES;
use super::quotes::is_open;

pub use rustyline::error::ReadlineError;

pub type Editor = rustyline::Editor<Assistant, DefaultHistory>;

const HISTORY_MAX: usize = 1000;

/// Opens an editor with the history in this file, if it exists.
pub fn open(history: Option<&PathBuf>) -> rustyline::Result<Editor> {
    let config = Config::builder()
        .max_history_size(HISTORY_MAX)?
        .history_ignore_dups(true)?
        .history_ignore_space(true)
        .completion_type(CompletionType::List)
        .build();
    let mut editor = Editor::with_config(config)?;
    editor.set_helper(Some(Assistant));
    if let Some(file) = history {
        // The file does not exist at first.
        let _missing = editor.load_history(file);
    }
    Ok(editor)
}

/// The editor's callbacks.
pub struct Assistant;

impl Validator for Assistant {
    fn validate(&self, context: &mut ValidationContext) -> rustyline::Result<ValidationResult> {
        Ok(if is_open(context.input()) {
            ValidationResult::Incomplete
        } else {
            ValidationResult::Valid(None)
        })
    }
}

impl Completer for Assistant {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let word = line.get(..position).unwrap_or_default();
        let names = NAMES.iter().filter(|name| name.starts_with(word));
        let names = names.map(|name| (*name).to_owned());
        Ok((
            0,
            if word.starts_with('/') {
                names.collect()
            } else {
                Vec::new()
            },
        ))
    }
}

impl Hinter for Assistant {
    type Hint = String;
}

impl Highlighter for Assistant {}

impl Helper for Assistant {}
