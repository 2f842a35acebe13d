//! The input of a person or a script: lines with editing and a history at a terminal, plain lines otherwise, and multi-line texts
//! between `"""`.

use std::io::{self, BufRead, IsTerminal, Read};
use std::path::{Path, PathBuf};

use super::command::is_command;
use super::editor::{self, Editor, ReadlineError};
use super::error::CommandError;
use super::quotes::{QUOTES, closes, opens};

const PROMPT: &str = ">>> ";
const PROMPT_WITHIN: &str = "... ";
/// Maximum length of a line; servers refuse longer prompts anyway.
const LINE_MAX: u64 = 64 << 20;

/// One unit of input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    Prompt(String),
    Command(String),
    Nothing,
    /// Ctrl-C.
    Interrupted,
    End,
}

enum Line {
    Text(String),
    Interrupted,
    End,
}

pub struct Input {
    source: Source,
}

enum Source {
    Editor {
        editor: Box<Editor>,
        history: Option<PathBuf>,
    },
    Plain {
        shows_prompt: bool,
        lines: u64,
    },
}

impl Input {
    /// Opens the input, with a line editor if both input and output are terminals.
    pub fn open(keeps_history: bool) -> Input {
        let is_typed = io::stdin().is_terminal();
        let plain = Source::Plain {
            shows_prompt: is_typed,
            lines: 0,
        };
        if !is_typed || !io::stdout().is_terminal() {
            return Input { source: plain };
        }
        let history = keeps_history.then(history_file).flatten();
        let source = match editor::open(history.as_ref()) {
            Ok(editor) => Source::Editor {
                editor: Box::new(editor),
                history,
            },
            Err(_) => plain,
        };
        Input { source }
    }

    pub fn is_interactive(&self) -> bool {
        matches!(self.source, Source::Editor { .. })
    }

    /// Reads the next prompt or command.
    pub fn message(&mut self) -> Result<Message, CommandError> {
        let first = match self.line(PROMPT)? {
            Line::Text(text) => text,
            Line::Interrupted => return Ok(Message::Interrupted),
            Line::End => return Ok(Message::End),
        };
        if first.trim().is_empty() {
            return Ok(Message::Nothing);
        }
        let is_command = is_command(&first);
        let Some((before, opened)) = opens(&first) else {
            self.remember(&first);
            return Ok(if is_command {
                Message::Command(first)
            } else {
                Message::Prompt(first)
            });
        };
        let (before, mut text) = (before.to_owned(), opened.to_owned());
        while !closes(&mut text) {
            match self.line(PROMPT_WITHIN)? {
                Line::Text(line) => {
                    text.push('\n');
                    text.push_str(&line);
                }
                Line::Interrupted => return Ok(Message::Interrupted),
                Line::End if self.is_interactive() => return Ok(Message::End),
                Line::End => {
                    return Err(CommandError::Usage(format!(
                        "standard input ends within a text that {QUOTES} began; end it with {QUOTES}"
                    )));
                }
            }
            if text.len() as u64 > LINE_MAX {
                return Err(too_long());
            }
        }
        let text = text.trim_matches('\n');
        self.remember(&format!("{before}{QUOTES}{text}{QUOTES}"));
        Ok(match (is_command, text.trim().is_empty()) {
            (true, _) => Message::Command(format!("{before}{text}")),
            (false, true) => Message::Nothing,
            (false, false) => Message::Prompt(text.to_owned()),
        })
    }

    fn line(&mut self, prompt: &str) -> Result<Line, CommandError> {
        match &mut self.source {
            Source::Editor { editor, .. } => match editor.readline(prompt) {
                Ok(line) => Ok(Line::Text(line)),
                Err(ReadlineError::Interrupted) => Ok(Line::Interrupted),
                Err(ReadlineError::Eof) => Ok(Line::End),
                // The terminal was closed.
                Err(ReadlineError::Io(error)) => Err(CommandError::Output(error)),
                Err(error) => Err(CommandError::Output(io::Error::other(error.to_string()))),
            },
            Source::Plain {
                shows_prompt,
                lines,
            } => {
                if *shows_prompt {
                    eprint!("{prompt}");
                }
                *lines += 1;
                plain_line(&mut io::stdin().lock(), *lines)
            }
        }
    }

    fn remember(&mut self, text: &str) {
        let Source::Editor { editor, history } = &mut self.source else {
            return;
        };
        let _same_as_before = editor.add_history_entry(text);
        if let Some(file) = history
            && editor.append_history(file).is_err()
        {
            let _unwritable = editor.save_history(file);
        }
    }
}

fn plain_line(input: &mut impl BufRead, number: u64) -> Result<Line, CommandError> {
    let mut bytes = Vec::new();
    let mut limited = input.take(LINE_MAX + 1);
    let read = limited.read_until(b'\n', &mut bytes);
    let read =
        read.map_err(|error| CommandError::Usage(format!("cannot read standard input: {error}")))?;
    if read == 0 {
        return Ok(Line::End);
    }
    if bytes.len() as u64 > LINE_MAX {
        return Err(too_long());
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to() + 1;
        CommandError::Usage(format!(
            "line {number} of standard input is not UTF-8 text, from its byte {at} on; convert it, for example with iconv"
        ))
    })?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    Ok(Line::Text(
        text.strip_suffix('\r').unwrap_or(text).to_owned(),
    ))
}

fn too_long() -> CommandError {
    CommandError::Usage(format!("a prompt is longer than {} MiB", LINE_MAX >> 20))
}

/// Reads all of standard input.
pub fn all(input: &mut impl Read) -> Result<String, CommandError> {
    let mut bytes = Vec::new();
    let read = input.take(LINE_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| CommandError::Usage(format!("cannot read standard input: {error}")))?;
    if bytes.len() as u64 > LINE_MAX {
        return Err(too_long());
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
        CommandError::Usage(format!(
            "standard input is not UTF-8 text: byte {} (line {line}) is not part of a character; convert it, for example with iconv",
            good.len() + 1
        ))
    })
}

/// `$XDG_STATE_HOME/model-pool/chat_history`, in a folder only its owner can access.
fn history_file() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let state = variable("XDG_STATE_HOME").map(PathBuf::from);
    let state = state.or_else(|| Some(Path::new(&variable("HOME")?).join(".local/state")))?;
    let folder = state.join("model-pool");
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(&folder).ok()?;
    Some(folder.join("chat_history"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_lines_may_end_in_any_way_and_must_be_utf_8() {
        let mut input: &[u8] = b"one\r\ntwo\n\nlast";
        let mut lines = Vec::new();
        while let Line::Text(line) = plain_line(&mut input, 1).expect("text") {
            lines.push(line);
        }
        assert_eq!(lines, ["one", "two", "", "last"]);
        let mut broken: &[u8] = b"ab\xff\n";
        let failure = plain_line(&mut broken, 3).err().expect("no text");
        assert!(failure.to_string().contains("line 3"), "{failure}");
        assert!(failure.to_string().contains("byte 3"), "{failure}");
    }

    #[test]
    fn invalid_utf_8_on_standard_input_is_refused_with_its_position() {
        let failure = all(&mut &b"a\nb\xc3"[..]).expect_err("cut in a character");
        let text = failure.to_string();
        assert!(text.contains("byte 4 (line 2)"), "{text}");
        assert_eq!(failure.exit_status(), 2);
        assert_eq!(all(&mut "ä\n".as_bytes()).expect("text"), "ä\n");
    }
}
