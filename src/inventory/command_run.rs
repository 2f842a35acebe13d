//! Runs the program of provider `command`: bounded in time and output, without the secrets of the pool.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Far more than thousands of devices and processes need.
const OUTPUT_MAX: u64 = 1 << 20;
/// The part of an error's text that is shown.
const SHOWN_MAX: usize = 200;
/// Longer than any reading that is still useful.
const RUN_MAX: Duration = Duration::from_secs(5);
/// The program gets these variables only, because the others may hold secrets.
const ENVIRONMENT: [&str; 6] = ["PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "TMPDIR", "USER"];

/// The reason why the program gave no figures.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error("cannot start `{program}`: {source}; correct the path, or make the file executable")]
    Start {
        program: String,
        source: std::io::Error,
    },

    #[error("`{program}` did not end within {} s and was killed", RUN_MAX.as_secs())]
    Hangs { program: String },

    #[error("`{program}` printed more than {OUTPUT_MAX} bytes and was killed")]
    TooMuch { program: String },

    #[error("`{program}` failed with {status}: {output}")]
    Failed {
        program: String,
        status: String,
        output: String,
    },

    #[error(
        "`{program}` printed a document that cannot be read: {problem}; it begins with `{output}`"
    )]
    Garbage {
        program: String,
        problem: String,
        output: String,
    },

    #[error("`{program}` printed a wrong document: {problem}")]
    Wrong { program: String, problem: String },

    #[error("`{program}` does not report the device any more")]
    Missing { program: String },
}

/// Runs the program to its end and returns what it printed.
pub(super) fn output(argv: &[String]) -> Result<Vec<u8>, CommandError> {
    let program = argv.join(" ");
    let name = || program.clone();
    let words = argv.split_first();
    let start = |source| CommandError::Start {
        program: name(),
        source,
    };
    let (first, rest) = words.ok_or_else(|| start(std::io::ErrorKind::NotFound.into()))?;
    let kept = ENVIRONMENT.iter();
    let kept = kept.filter_map(|name| Some((name, std::env::var_os(name)?)));
    let child = Command::new(first)
        .args(rest)
        .env_clear()
        .envs(kept)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(start)?;
    let group = child.id();
    let (printed, errors, status) = collect(child).map_err(|end| {
        kill(group);
        match end {
            Cut::Late => CommandError::Hangs { program: name() },
            Cut::Long => CommandError::TooMuch { program: name() },
        }
    })?;
    if !status.success() {
        return Err(CommandError::Failed {
            program: name(),
            status: status.to_string(),
            output: shown(&errors),
        });
    }
    Ok(printed)
}

/// The reason why a program was not heard to its end.
enum Cut {
    Late,
    Long,
}

/// The findings of the thread that follows a program.
enum Piece {
    Output(Vec<u8>),
    Errors(Vec<u8>),
    Ended(ExitStatus),
}

/// The output, the errors and the end of a program.
#[expect(
    clippy::disallowed_methods,
    reason = "the time that a program takes is bounded here"
)]
fn collect(mut child: Child) -> Result<(Vec<u8>, Vec<u8>, ExitStatus), Cut> {
    let (sender, pieces) = mpsc::channel();
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    let follow = |find: Box<dyn FnOnce() -> Option<Piece> + Send>| {
        let sender = sender.clone();
        // A thread that cannot be started drops its sender, and the wait below ends at its limit.
        let run = move || drop(find().map(|piece| sender.send(piece)));
        drop(thread::Builder::new().name("devices".into()).spawn(run));
    };
    follow(Box::new(move || Some(Piece::Output(taken(output)))));
    follow(Box::new(move || Some(Piece::Errors(taken(errors)))));
    follow(Box::new(move || child.wait().ok().map(Piece::Ended)));
    let began = Instant::now();
    let (mut output, mut errors, mut status) = (None, None, None);
    loop {
        if let (Some(_), Some(_), Some(status)) = (&output, &errors, status) {
            return Ok((
                output.unwrap_or_default(),
                errors.unwrap_or_default(),
                status,
            ));
        }
        let rest = RUN_MAX.saturating_sub(began.elapsed());
        match pieces.recv_timeout(rest).map_err(|_| Cut::Late)? {
            Piece::Output(bytes) | Piece::Errors(bytes) if bytes.len() as u64 > OUTPUT_MAX => {
                return Err(Cut::Long);
            }
            Piece::Output(bytes) => output = Some(bytes),
            Piece::Errors(bytes) => errors = Some(bytes),
            Piece::Ended(ended) => status = Some(ended),
        }
    }
}

/// The first bytes from a pipe, and one more than is allowed.
fn taken(pipe: Option<impl Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        let _ = pipe.take(OUTPUT_MAX + 1).read_to_end(&mut bytes);
    }
    bytes
}

/// Ends the program and everything that it started.
fn kill(group: u32) {
    let group = i32::try_from(group).ok();
    if let Some(group) = group.and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
}

pub(super) fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text: String = text.trim().chars().take(SHOWN_MAX).collect();
    text.escape_debug().to_string()
}
