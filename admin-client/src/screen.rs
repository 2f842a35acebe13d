//! Prints text and asks for confirmation. Detects terminals, their width and whether to use colours.

use std::io::{self, BufRead, IsTerminal, Write};
use std::pin::pin;
use std::time::Duration;

use crate::error::CommandError;
use crate::style::Style;

/// Responses that take longer are announced.
const ANNOUNCED_AFTER: Duration = Duration::from_secs(2);

/// Standard output or standard error.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    pub style: Style,
}

impl Screen {
    pub fn of_stdout() -> Screen {
        Screen {
            style: Style::of_stdout(),
        }
    }

    pub fn of_stderr() -> Screen {
        Screen {
            style: Style::of_stderr(),
        }
    }

    /// With `--wide`, lines may be longer than the terminal is wide.
    pub fn wide(mut self, wide: bool) -> Screen {
        self.style.wide = wide;
        self
    }

    /// Prints text to standard output, and a line end if the text lacks one.
    ///
    /// # Errors
    /// `CommandError::Output` if the output is closed or full.
    pub fn print(&self, text: &str) -> Result<(), CommandError> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())
            .and_then(|()| {
                if text.ends_with('\n') {
                    Ok(())
                } else {
                    out.write_all(b"\n")
                }
            })
            .and_then(|()| out.flush())
            .map_err(CommandError::Output)
    }
}

/// Prints a note to standard error. A closed standard error is not a failure.
pub fn note(text: &str) {
    let mut err = io::stderr().lock();
    let _closed = writeln!(err, "{text}");
}

/// Waits for a response. Prints `text` if it takes longer than `ANNOUNCED_AFTER`: a refusal comes sooner, and the text would be
/// wrong for it.
pub async fn announced<T>(response: impl Future<Output = T>, text: Option<&str>) -> T {
    let mut response = pin!(response);
    tokio::select! {
        response = &mut response => return response,
        () = tokio::time::sleep(ANNOUNCED_AFTER) => {}
    }
    if let Some(text) = text {
        note(text);
    }
    response.await
}

/// Returns true if a terminal is attached that can ask a question and read the reply.
pub fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks on standard error, which keeps standard output clean. Confirms without asking if there is no terminal, as in a script.
///
/// # Errors
/// `CommandError::Declined` unless the answer is `y` or `yes`.
pub fn confirm(question: &str) -> Result<(), CommandError> {
    if !can_ask() {
        return Ok(());
    }
    let mut err = io::stderr().lock();
    write!(err, "{question} [y/N] ")
        .and_then(|()| err.flush())
        .map_err(CommandError::Output)?;
    let mut response = String::new();
    io::stdin()
        .lock()
        .read_line(&mut response)
        .map_err(CommandError::Question)?;
    match response.trim().to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(CommandError::Declined),
    }
}
