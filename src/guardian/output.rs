//! Splits an engine's output into lines (at most 8 KiB, valid text, no control characters). Keeps the newest lines in memory, all
//! lines in the file, and the last lines of each stream, from which the last words are taken. Never blocks, and does not read the
//! pipes itself.

use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

use super::last_words::{self, Evidence};
use super::log_file::LogFile;
use super::masking::Masking;
use super::protocol::{Launch, Line, OsText, Stream};

const LINE_BYTES_MAX: usize = 8 << 10;
/// Lines kept for a later controller.
const RECENT_LINES_MAX: usize = 1_000;
const RECENT_BYTES_MAX: usize = 256 << 10;
/// Lines kept of each stream for the last words: an engine may print two tracebacks after the line that names the cause.
const LAST_LINES_MAX: usize = 128;
const LAST_BYTES_MAX: usize = 64 << 10;
/// An error printed longer ago than this did not end the engine.
const CAUSE_AGE_MS: u64 = 60_000;

/// Unix time in milliseconds.
pub fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(now.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

/// All output of one engine.
#[derive(Default)]
pub struct Output {
    stdout: PartialLine,
    stderr: PartialLine,
    next_sequence: u64,
    recent: VecDeque<Line>,
    recent_bytes: usize,
    /// Separate for each stream: neither can push out the lines of the other.
    last_stdout: LastLines,
    last_stderr: LastLines,
    pub file: Option<LogFile>,
    /// The secrets to mask in the file and for a controller.
    pub masking: Masking,
}

impl Output {
    /// Prepares for a launch, before the engine is started.
    pub fn begin(&mut self, launch: &Launch) {
        let words = launch.argv.iter().filter_map(OsText::text);
        let words: Vec<String> = words.map(str::to_owned).collect();
        self.masking = Masking::new(&launch.env, &words);
        // Without the file, the log is kept only in memory.
        let path = launch.log_file.clone();
        self.file = path.and_then(|path| LogFile::open(path).ok());
    }

    /// Adds a chunk of a pipe. Returns the lines that it completes.
    pub fn take(&mut self, stream: Stream, bytes: &[u8]) -> Vec<Line> {
        let unfinished = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        let texts = unfinished.push(bytes);
        texts
            .into_iter()
            .map(|text| self.keep(stream, text))
            .collect()
    }

    /// Ends both streams. Unfinished text becomes a line too.
    pub fn finish(&mut self) -> Vec<Line> {
        let rests = [
            (Stream::Stdout, self.stdout.rest()),
            (Stream::Stderr, self.stderr.rest()),
        ];
        let rests = rests.into_iter();
        rests
            .filter_map(|(stream, text)| Some(self.keep(stream, text?)))
            .collect()
    }

    pub fn recent(&self) -> impl Iterator<Item = &Line> {
        self.recent.iter()
    }

    /// The last words on stderr, or on stdout if that has more information: vLLM logs the cause on stdout, and writes to stderr
    /// only that its core could not start. At most 5 lines and 2 KiB.
    pub fn last_words(&self) -> String {
        let (stdout, stderr) = (&self.last_stdout, &self.last_stderr);
        let evidence = |lines: &LastLines| Evidence::new(lines.with_recency());
        let is_on_stdout = stderr.lines.is_empty() || evidence(stdout) > evidence(stderr);
        let last = if is_on_stdout { stdout } else { stderr };
        last_words::select(last.with_recency())
    }

    fn keep(&mut self, stream: Stream, text: String) -> Line {
        let text = self.masking.mask(&text).unwrap_or(text);
        let line = Line {
            sequence: self.next_sequence,
            at_ms: now_ms(),
            stream,
            text,
        };
        match stream {
            Stream::Stdout => self.last_stdout.push(&line),
            Stream::Stderr => self.last_stderr.push(&line),
        }
        self.next_sequence += 1;
        self.recent_bytes += line.text.len();
        self.recent.push_back(line.clone());
        while self.recent.len() > RECENT_LINES_MAX || self.recent_bytes > RECENT_BYTES_MAX {
            let Some(oldest) = self.recent.pop_front() else {
                break;
            };
            self.recent_bytes -= oldest.text.len();
        }
        // A full disk costs only the file; the engine continues.
        if let Some(file) = &mut self.file
            && file.write(&line).is_err()
        {
            self.file = None;
        }
        line
    }
}

/// The last non-empty lines of a stream, with their times.
#[derive(Default)]
struct LastLines {
    lines: VecDeque<(u64, String)>,
    bytes: usize,
}

impl LastLines {
    /// The lines, each with a flag that is true if it is recent.
    fn with_recency(&self) -> impl Iterator<Item = (&str, bool)> {
        let now_ms = now_ms();
        let is_recent = move |at_ms: u64| now_ms.saturating_sub(at_ms) <= CAUSE_AGE_MS;
        let lines = self.lines.iter();
        lines.map(move |(at_ms, text)| (text.as_str(), is_recent(*at_ms)))
    }

    fn push(&mut self, line: &Line) {
        if line.text.trim().is_empty() {
            return;
        }
        self.bytes += line.text.len();
        self.lines.push_back((line.at_ms, line.text.clone()));
        while self.lines.len() > LAST_LINES_MAX || self.bytes > LAST_BYTES_MAX {
            let Some((_, oldest)) = self.lines.pop_front() else {
                break;
            };
            self.bytes -= oldest.len();
        }
    }
}

/// The unfinished line of a stream.
#[derive(Default)]
struct PartialLine {
    /// At most [`LINE_BYTES_MAX`].
    line: Vec<u8>,
    /// True if the line was longer.
    cut: bool,
    /// True if the last byte was a carriage return, which a line feed may follow.
    returned: bool,
}

impl PartialLine {
    /// Adds bytes and returns the completed lines. A carriage return ends a line too, because progress bars send nothing else.
    fn push(&mut self, mut bytes: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        while let Some(end) = memchr::memchr2(b'\n', b'\r', bytes) {
            self.add(&bytes[..end]);
            // A line feed after a carriage return does not end another line.
            if !(bytes[end] == b'\n' && end == 0 && self.returned) {
                lines.push(self.end());
            }
            self.returned = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
        }
        self.add(bytes);
        lines
    }

    fn add(&mut self, bytes: &[u8]) {
        let room = LINE_BYTES_MAX - self.line.len();
        self.line.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.cut |= bytes.len() > room;
        self.returned &= bytes.is_empty();
    }

    fn rest(&mut self) -> Option<String> {
        (!self.line.is_empty()).then(|| self.end())
    }

    fn end(&mut self) -> String {
        let mut text = escape(&String::from_utf8_lossy(&self.line));
        if self.cut {
            text.push_str(" … (cut)");
        }
        self.line.clear();
        self.cut = false;
        text
    }
}

/// Escapes characters that a terminal would interpret, because the output is also read with `tail`.
fn escape(text: &str) -> String {
    let is_harmful = |character: char| {
        let obeyed = character.is_control() && character != '\t';
        let misleads = matches!(character, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        obeyed || misleads
    };
    if !text.contains(is_harmful) {
        return text.to_owned();
    }
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if is_harmful(character) {
            escaped.extend(character.escape_default())
        } else {
            escaped.push(character)
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_appears_in_neither_the_lines_nor_the_last_words_nor_the_log_file() {
        let home = tempfile::tempdir().expect("a folder");
        let env = [("HF_TOKEN".to_owned(), "secret-of-mine".to_owned())];
        let path = home.path().join("m.log");
        let mut output = Output {
            file: Some(LogFile::open(path.clone()).expect("a file")),
            masking: Masking::new(&env.into(), &[]),
            ..Output::default()
        };
        let lines = output.take(Stream::Stderr, b"login with secret-of-mine failed\n");
        let file = std::fs::read_to_string(path).expect("a file");
        let all = format!("{file}{}{}", output.last_words(), lines[0].text);
        assert!(!all.contains("secret-of-mine"), "{all}");
        assert_eq!(all.matches("login with [masked] failed").count(), 3);
    }

    #[test]
    fn a_full_disk_stops_the_log_file_but_not_the_lines() {
        let full = LogFile::open("/dev/full".into()).expect("there");
        let mut output = Output {
            file: Some(full),
            ..Output::default()
        };
        let lines = output.take(Stream::Stderr, b"one\ntwo\n");
        assert_eq!(
            (lines.len(), output.last_words()),
            (2, "one\ntwo".to_owned())
        );
        assert!(output.file.is_none(), "it is not tried for each line");
    }

    #[test]
    fn an_error_on_stdout_is_preferred_to_a_shutdown_message_on_stderr() {
        let mut output = Output::default();
        output.take(
            Stream::Stdout,
            b"(Worker pid=3) ERROR 11-23 13:53:34 [multiproc_executor.py:1063] RuntimeError: Unsupported head_dim=16\n\
              (EngineCore pid=2) ERROR 11-23 13:53:34 [core.py:1512] EngineCore encountered a fatal error.\n\
              (APIServer pid=1) ERROR 11-23 13:53:34 [async_llm.py:906] AsyncLLM output_handler failed.\n\
              (APIServer pid=1) ERROR 11-23 13:53:34 [async_llm.py:906] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.\n\
              (APIServer pid=1) INFO 11-23 13:53:35 [core_client.py:777] [shutdown] MPClient: complete\n",
        );
        output.take(
            Stream::Stderr,
            b"INFO:     Shutting down\nINFO:     Finished server process [1]\n",
        );
        assert_eq!(output.last_words(), "RuntimeError: Unsupported head_dim=16");
    }

    #[test]
    fn a_cause_on_stdout_is_preferred_to_a_reference_to_it_on_stderr() {
        let mut output = Output::default();
        // The output of vLLM 0.32 when a file of weights is cut off.
        output.take(
            Stream::Stdout,
            b"(Worker pid=3) ERROR 11-25 18:41:18 [multiproc_executor.py:953] WorkerProc failed to start.\n\
              (Worker pid=3) ERROR 11-25 18:41:18 [multiproc_executor.py:953] Traceback (most recent call last):\n\
              (Worker pid=3) ERROR 11-25 18:41:18 [multiproc_executor.py:953]     self.worker.load_model()\n\
              (Worker pid=3) ERROR 11-25 18:41:18 [multiproc_executor.py:953] safetensors._safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, file not fully covered\n\
              (EngineCore pid=2) ERROR 11-25 18:41:24 [core.py:1510] EngineCore failed to start.\n\
              (EngineCore pid=2) ERROR 11-25 18:41:24 [core.py:1510]     raise e from None\n\
              (EngineCore pid=2) ERROR 11-25 18:41:24 [core.py:1510] Exception: WorkerProc initialization failed due to an exception in a background process. See stack trace for root cause.\n\
              (APIServer pid=1) INFO 11-25 18:41:29 [utils.py:628] [shutdown] Process manager: send sigterm to process EngineCore\n",
        );
        output.take(
            Stream::Stderr,
            b"Process EngineCore:\nTraceback (most recent call last):\n\
              Exception: WorkerProc initialization failed due to an exception in a background process. See stack trace for root cause.\n\
              Traceback (most recent call last):\n\
              RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n",
        );
        assert_eq!(
            output.last_words(),
            "safetensors._safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, file not fully covered"
        );
    }

    fn lines_of(chunks: &[&[u8]]) -> Vec<String> {
        let mut output = Output::default();
        let mut lines = Vec::new();
        for chunk in chunks {
            lines.extend(output.take(Stream::Stderr, chunk));
        }
        lines.extend(output.finish());
        lines.into_iter().map(|line| line.text).collect()
    }

    #[test]
    fn lines_are_assembled_from_chunks_and_an_unfinished_last_line_is_kept() {
        assert_eq!(
            lines_of(&[b"one\r", b"\ntw", b"o\n\nthree"]),
            ["one", "two", "", "three"]
        );
    }

    #[test]
    fn a_progress_bar_gives_a_line_for_each_step() {
        assert_eq!(lines_of(&[b" 10%\r 20%\r 30%\n"]), [" 10%", " 20%", " 30%"]);
    }

    #[test]
    fn control_characters_and_invalid_utf_8_are_escaped() {
        assert_eq!(
            lines_of(&[b"\x1b[2Jred\x07\tb\xffd\n"]),
            ["\\u{1b}[2Jred\\u{7}\tb\u{fffd}d"]
        );
    }

    #[test]
    fn an_endless_line_is_truncated() {
        let flood = vec![b'x'; 100_000];
        let lines = lines_of(&[&flood, &flood, b"\nnext\n"]);
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0], "x".repeat(LINE_BYTES_MAX) + " … (cut)");
        assert_eq!(lines[1], "next");
    }

    #[test]
    fn a_flood_on_stdout_does_not_displace_the_last_words() {
        let mut output = Output::default();
        for number in 0..8 {
            output.take(Stream::Stderr, format!("error {number}\n").as_bytes());
        }
        output.take(Stream::Stderr, b"  \n");
        for _ in 0..5_000 {
            output.take(Stream::Stdout, b"noise\n");
        }
        assert_eq!(output.last_words(), "error 7");
        assert!(output.recent().count() <= RECENT_LINES_MAX);
        for _ in 0..1_000 {
            output.take(Stream::Stderr, ("ü".repeat(3_000) + "\n").as_bytes());
        }
        assert!(output.last_stderr.bytes <= LAST_BYTES_MAX);
        assert!(output.last_words().ends_with(&"ü".repeat(1_000)));
    }
}
