//! The protocol between a controller and a guardian: one JSON object per line, over a Unix socket. Unknown fields are ignored and
//! unknown messages become [`Order::Unknown`] and [`News::Unknown`], which lets a controller of another version adopt an engine.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Increased for changes that the other side cannot safely ignore.
pub const VERSION: u32 = 1;
/// Longer lines are not messages.
pub const MESSAGE_BYTES_MAX: usize = 8 << 20;
/// Marks a guardian in its environment, with its token: a process number alone is not unique.
pub const MARK: &str = "MODEL_POOL_GUARDIAN";

/// Identifies a process uniquely: its number and its start time, in clock ticks since the system started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    pub pid: u32,
    pub started: u64,
}

/// An argument of a command line, which need not be valid text.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OsText {
    Text(String),
    Bytes(Vec<u8>),
}

impl From<&OsStr> for OsText {
    fn from(word: &OsStr) -> OsText {
        match word.to_str() {
            Some(text) => OsText::Text(text.to_owned()),
            None => OsText::Bytes(word.as_bytes().to_owned()),
        }
    }
}

impl OsText {
    /// An argument that is not valid text cannot contain a readable secret.
    pub fn text(&self) -> Option<&str> {
        match self {
            OsText::Text(text) => Some(text),
            OsText::Bytes(_) => None,
        }
    }
}

impl From<OsText> for OsString {
    fn from(word: OsText) -> OsString {
        match word {
            OsText::Text(text) => text.into(),
            OsText::Bytes(bytes) => OsString::from_vec(bytes),
        }
    }
}

/// The launch of an engine, as its guardian needs it.
#[derive(Clone, Serialize, Deserialize)]
pub struct Launch {
    pub replica: u64,
    pub token: String,
    /// Contains at least the program.
    pub argv: Vec<OsText>,
    /// The complete environment.
    pub env: BTreeMap<String, String>,
    pub working_dir: PathBuf,
    /// True if the engine's standard input is a pipe held by the guardian; otherwise it is empty.
    pub lifeline: bool,
    /// The guardian's socket for later controllers, relative to its working directory.
    pub socket: PathBuf,
    pub log_file: Option<PathBuf>,
    /// The journal's file and the engine's socket, removed when the guardian ends without a controller.
    pub remove_at_end: Vec<PathBuf>,
    /// The command that removes the engine's container when the guardian ends without a controller; empty without a container.
    #[serde(default)]
    pub clean_up: Vec<String>,
    /// True if a ready engine outlives its controller, for `adopt_within_ms`.
    pub keep: bool,
    pub adopt_within_ms: u64,
    /// Time between SIGTERM and SIGKILL if no controller has taken over.
    pub grace_ms: u64,
}

/// A message from the controller.
#[derive(Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum Order {
    Launch(Box<Launch>),
    /// The engine is ready; from now on it may be adopted.
    Ready,
    /// The engine's use: `busy` while it serves requests, and the end of its last request in Unix milliseconds.
    Used {
        busy: bool,
        last_end_ms: Option<u64>,
    },
    /// SIGTERM, then SIGKILL after the grace period; without a grace period, SIGKILL immediately.
    Stop {
        grace_ms: u64,
    },
    /// This connection will end and another controller will take over: the engine stays, whatever the rules of its launch.
    Successor {
        within_ms: u64,
    },
    /// Sent by a later controller, which takes the engine over under its own rules.
    Adopt {
        version: u32,
        keep: bool,
        adopt_within_ms: u64,
        grace_ms: u64,
    },
    #[serde(other)]
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    Stdout,
    Stderr,
}

/// One line of the engine's output, without its newline and without control characters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line {
    /// Counts from 0. A gap means that the controller was too slow, and the lines are only in the file.
    pub sequence: u64,
    pub at_ms: u64,
    pub stream: Stream,
    pub text: String,
}

/// The end of an engine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct End {
    /// For example `exit status 1` or `signal 9`.
    pub status: String,
    pub last_words: String,
    /// Processes that even SIGKILL did not end.
    pub left: Vec<u32>,
}

/// The state of a guardian, sent to every later controller that connects.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hello {
    pub version: u32,
    pub guardian: ProcessId,
    pub token: String,
    pub replica: u64,
    pub engine: Option<ProcessId>,
    pub ready: bool,
    pub stopping: bool,
    /// Unix milliseconds at which the last controller left.
    pub alone_since_ms: Option<u64>,
    pub busy: bool,
    pub last_end_ms: Option<u64>,
    pub end: Option<End>,
}

/// A message from the guardian.
#[derive(Serialize, Deserialize)]
#[serde(tag = "news", rename_all = "snake_case")]
pub enum News {
    Hello(Box<Hello>),
    /// Another controller owns the engine.
    Taken,
    Started {
        engine: ProcessId,
    },
    NotStarted {
        /// The system's error number, if there is one.
        code: Option<i32>,
        message: String,
    },
    Line(Line),
    Exited(End),
    #[serde(other)]
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_and_messages_of_another_version_are_skipped() {
        let order = serde_json::from_str(r#"{"order":"stop","grace_ms":5,"why":"later"}"#);
        assert!(matches!(order, Ok(Order::Stop { grace_ms: 5 })));
        let order = serde_json::from_str(r#"{"order":"freeze"}"#);
        assert!(matches!(order, Ok(Order::Unknown)));
        let news = serde_json::from_str(r#"{"news":"temperature","celsius":71}"#);
        assert!(matches!(news, Ok(News::Unknown)));
    }

    #[test]
    fn a_non_utf_8_argument_survives_serialization() {
        let word = OsStr::from_bytes(b"caf\xe9");
        let text = serde_json::to_string(&OsText::from(word)).expect("a word");
        let back: OsText = serde_json::from_str(&text).expect("the word");
        assert_eq!(OsString::from(back), word);
    }
}
