//! From an engine's pipe to lines of its log. It owns what a line may be: at most 8 KiB, valid
//! text, no control characters. It never waits for more than the pipe gives.

use tokio::io::{AsyncRead, AsyncReadExt};

use super::log::{LogStream, ReplicaLog};

const LINE_BYTES_MAX: usize = 8 << 10;
const CHUNK_BYTES: usize = 16 << 10;

/// Reads the pipe to its end. What has been read when this is dropped early is in the log too.
pub(super) async fn pump(mut pipe: impl AsyncRead + Unpin, log: &ReplicaLog, stream: LogStream) {
    let mut lines = Lines::new(log, stream);
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match pipe.read(&mut chunk).await {
            Ok(0) => return,
            Ok(count) => lines.push(&chunk[..count]),
            Err(error) => {
                tracing::warn!(%stream, %error, "cannot read the output of an engine");
                return;
            }
        }
    }
}

struct Lines<'a> {
    log: &'a ReplicaLog,
    stream: LogStream,
    /// The line so far, at most [`LINE_BYTES_MAX`].
    line: Vec<u8>,
    /// Whether the line went on beyond that.
    cut: bool,
    /// Whether the last byte was a carriage return, which a line feed may follow.
    returned: bool,
}

impl<'a> Lines<'a> {
    fn new(log: &'a ReplicaLog, stream: LogStream) -> Lines<'a> {
        Lines {
            log,
            stream,
            line: Vec::new(),
            cut: false,
            returned: false,
        }
    }

    /// A carriage return ends a line too: progress bars never send anything else.
    fn push(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            match byte {
                b'\n' if self.returned => {}
                b'\n' | b'\r' => self.end(),
                _ if self.line.len() == LINE_BYTES_MAX => self.cut = true,
                _ => self.line.push(byte),
            }
            self.returned = byte == b'\r';
        }
    }

    fn end(&mut self) {
        let mut text = escape(&String::from_utf8_lossy(&self.line));
        if self.cut {
            text.push_str(" … (cut)");
        }
        self.log.push(self.stream, &text);
        self.line.clear();
        self.cut = false;
    }
}

impl Drop for Lines<'_> {
    fn drop(&mut self) {
        if !self.line.is_empty() {
            self.end();
        }
    }
}

/// What a terminal would obey is shown instead: an engine's output is read with `tail` too.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        let obeyed = character.is_control() && character != '\t';
        let misleads = matches!(character, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        match obeyed || misleads {
            true => escaped.extend(character.escape_default()),
            false => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(chunks: &[&[u8]]) -> Vec<String> {
        let log = ReplicaLog::in_memory();
        let mut lines = Lines::new(&log, LogStream::Stderr);
        for chunk in chunks {
            lines.push(chunk);
        }
        drop(lines);
        let all = log.tail(usize::MAX).into_iter();
        all.map(|line| line.text.to_string()).collect()
    }

    #[test]
    fn lines_are_put_together_from_chunks_and_the_unfinished_last_one_is_kept() {
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
    fn control_characters_and_broken_text_are_made_harmless() {
        assert_eq!(
            lines_of(&[b"\x1b[2Jred\x07\tb\xffd\n"]),
            ["\\u{1b}[2Jred\\u{7}\tb\u{fffd}d"]
        );
    }

    #[test]
    fn a_line_without_end_is_cut_at_its_bound() {
        let flood = vec![b'x'; 100_000];
        let lines = lines_of(&[&flood, &flood, b"\nnext\n"]);
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0], "x".repeat(LINE_BYTES_MAX) + " … (cut)");
        assert_eq!(lines[1], "next");
    }
}
