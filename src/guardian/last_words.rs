//! Selects the last lines of an engine that explain why it ended, without the times, levels and names that logs put in front of
//! them. Pure.
//!
//! Knows the formats of Python's logging and tracebacks, vLLM, SGLang, TensorRT-LLM, uvicorn, llama.cpp, and Rust's tracing. Lines
//! in other formats are kept unchanged.

/// Maximum number of lines returned.
const LINES_MAX: usize = 5;
/// Maximum length of the result.
const BYTES_MAX: usize = 2_048;

/// The last recent line that names an error, with the lines that belong to it, or the last lines if there is none. Each line comes
/// with a flag that is true if it is recent: an error of an hour ago did not end the engine.
pub fn select<'a>(lines: impl Iterator<Item = (&'a str, bool)>) -> String {
    let lines: Vec<(LogLine<'_>, bool)> = lines
        .map(|(line, recent)| (LogLine::parse(line), recent))
        .collect();
    let is_error = |(line, recent): &(LogLine, bool)| *recent && line.names_error();
    let specific = |line: &(LogLine, bool)| is_error(line) && !line.0.is_general();
    let found = lines.iter().rposition(specific);
    let found = found.or_else(|| lines.iter().rposition(is_error));
    let lines: Vec<LogLine<'_>> = lines.into_iter().map(|(line, _)| line).collect();
    let chosen: Vec<&str> = match found {
        Some(nth) => {
            // Rust prints the message of a panic on the next line.
            let is_panic = lines[nth].text.contains("panicked at");
            let more = lines[nth + 1..].iter().enumerate();
            let more = more.take_while(|(n, line)| line.continues() || (*n == 0 && is_panic));
            std::iter::once(&lines[nth])
                .chain(more.map(|(_, line)| line))
                .take(LINES_MAX)
                .map(|line| line.text.trim_end())
                .collect()
        }
        None => {
            let mut last: Vec<&str> = lines
                .iter()
                .rev()
                .map(|line| line.text.trim_end())
                .filter(|text| !text.is_empty())
                .take(LINES_MAX)
                .collect();
            last.reverse();
            last
        }
    };
    let text = chosen.join("\n");
    let surplus = text.len().saturating_sub(BYTES_MAX);
    match found {
        // An error's message starts with the essential part.
        Some(_) => text[..text.floor_char_boundary(BYTES_MAX)].to_owned(),
        None => text[text.ceil_char_boundary(surplus)..].to_owned(),
    }
}

/// The information in a stream's lines about the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Evidence {
    /// No recent line names an error.
    None,
    /// A line says that something failed, and refers to another line for the cause.
    General,
    /// A line names the cause.
    Cause,
}

impl Evidence {
    pub fn new<'a>(lines: impl Iterator<Item = (&'a str, bool)>) -> Evidence {
        let errors = lines
            .filter(|(_, recent)| *recent)
            .map(|(line, _)| LogLine::parse(line))
            .filter(LogLine::names_error);
        let each = errors.map(|line| {
            if line.is_general() {
                Evidence::General
            } else {
                Evidence::Cause
            }
        });
        each.max().unwrap_or(Evidence::None)
    }
}

/// One line without its prefix.
struct LogLine<'a> {
    text: &'a str,
    /// The level in the prefix, if it had one.
    level: Option<Level>,
}

impl LogLine<'_> {
    fn parse(line: &str) -> LogLine<'_> {
        let mut text = line;
        let mut level = None;
        let mut is_dated = false;
        loop {
            let trimmed = text.trim_start();
            let rest = skip_colour(trimmed)
                .or_else(|| skip_process(trimmed))
                .or_else(|| skip_bracket(trimmed, &mut level))
                .or_else(|| skip_time(trimmed, level.is_some(), &mut is_dated))
                .or_else(|| skip_level(trimmed, is_dated, &mut level))
                .or_else(|| skip_separator(trimmed, is_dated || level.is_some()))
                .or_else(|| skip_origin(trimmed, level.is_some()));
            match rest {
                // One space belongs to the prefix; more are the indentation of the text.
                Some(rest) => text = rest.strip_prefix(' ').unwrap_or(rest),
                None => break,
            }
        }
        let is_blank = text.trim().is_empty();
        LogLine {
            // A line that consists only of a prefix is kept as the text.
            text: if is_blank { line.trim() } else { text },
            level,
        }
    }

    /// The line continues the previous one.
    fn continues(&self) -> bool {
        self.text.starts_with([' ', '\t']) || self.text.starts_with("Caused by")
    }

    fn names_error(&self) -> bool {
        let is_start = self.text.starts_with("Traceback (most recent call last)");
        if self.continues() || is_start || self.level == Some(Level::Other) {
            return false;
        }
        let lower = self.text.to_lowercase();
        self.level == Some(Level::Error)
            || is_exception(self.text)
            // The last line of the embedded engine.
            || self.text.starts_with("model-pool: ")
            || lower.starts_with("error")
            || lower.starts_with("fatal")
            || ERRORS.iter().any(|text| lower.contains(text))
    }

    /// The line says that something failed, and another line says what.
    fn is_general(&self) -> bool {
        let lower = self.text.to_lowercase();
        GENERAL.iter().any(|text| lower.contains(text))
    }
}

/// Lower-case parts of lines that name an error.
const ERRORS: &[&str] = &[
    ": error:",
    ": error ",
    " error: ",
    "panicked at",
    "failed to ",
    "terminate called",
    "segmentation fault",
    "out of memory",
    "core dumped",
    "no such file or directory",
    "cannot ",
    "couldn't ",
];

/// Lower-case parts of lines that follow the cause.
const GENERAL: &[&str] = &[
    "see root cause above",
    "see stack trace above",
    "see stack trace (above)",
    "see stack trace for root cause",
    "workerproc initialization failed",
    "workerproc failed to start",
    "check the stack trace above",
    "enginecore encountered a",
    "output_handler failed",
    "engine core initialization failed",
    "enginecore failed to start",
    "engine core proc",
    "engineprocess",
    "exiting due to",
    "failed to load model",
    "failed to initialize the context",
    "cleaning up before exit",
    "application startup failed",
    "shutting down",
    "exited unexpectedly",
    "process group has not been destroyed",
    "destroy_process_group",
    "resource_tracker",
    "leaked",
    "shardcannotstart",
    "shard complete standard error output",
    "the above exception was",
    "childfailederror",
    "scheduler hit an exception",
    "received sigquit",
    "for more information, try",
    "note: run with",
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Error,
    Other,
}

fn level_of(word: &str) -> Option<Level> {
    match word {
        "ERROR" | "CRITICAL" | "FATAL" => Some(Level::Error),
        "INFO" | "WARN" | "WARNING" | "DEBUG" | "TRACE" | "NOTICE" => Some(Level::Other),
        _ => None,
    }
}

/// `module.OutOfMemoryError: …`, `KeyboardInterrupt`.
fn is_exception(text: &str) -> bool {
    let name = text.split(':').next().unwrap_or_default();
    let is_name = |c: char| c.is_ascii_alphanumeric() || "._".contains(c);
    let ends = ["Error", "Exception", "Interrupt", "Exit"];
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(is_name)
        && ends.iter().any(|end| name.ends_with(end))
}

/// Colours in their escaped form: `\u{1b}[1;36m`.
fn skip_colour(text: &str) -> Option<&str> {
    let rest = text.strip_prefix("\\u{1b}[")?;
    let end = rest.find('m')?;
    let is_code = |c: char| c.is_ascii_digit() || c == ';';
    rest[..end].chars().all(is_code).then(|| &rest[end + 1..])
}

/// `(EngineCore_0 pid=123)`.
fn skip_process(text: &str) -> Option<&str> {
    let rest = text.strip_prefix('(')?;
    let (inside, after) = rest.split_once(')')?;
    inside.contains("pid=").then_some(after)
}

/// `[core.py:700]`, `[rank0]:`, `[2026-11-21 12:00:00 TP0]`, `[TensorRT-LLM]`, `[E]`.
fn skip_bracket<'a>(text: &'a str, level: &mut Option<Level>) -> Option<&'a str> {
    let (inside, after) = text.strip_prefix('[')?.split_once(']')?;
    let after = after.strip_prefix(':').unwrap_or(after);
    let letter = match inside {
        "E" | "F" => Some(Level::Error),
        "I" | "W" | "D" | "T" => Some(Level::Other),
        word => level_of(word),
    };
    if letter.is_some() {
        *level = letter;
        return Some(after);
    }
    let is_rank = inside
        .strip_prefix("rank")
        .is_some_and(|rank| !rank.is_empty() && rank.bytes().all(|b| b.is_ascii_digit()));
    let is_program = matches!(inside, "TensorRT-LLM" | "TRT-LLM");
    let first = inside.split(' ').next().unwrap_or_default();
    if let Some(found) = level_of_day(first) {
        *level = Some(found);
        return Some(after);
    }
    let is_dated = is_time(first);
    (is_rank || is_program || is_dated || is_origin(inside)).then_some(after)
}

/// `W1121` or `W928`, as glog writes level, month and day.
fn level_of_day(word: &str) -> Option<Level> {
    let level = match word.chars().next()? {
        'E' | 'F' => Level::Error,
        'I' | 'W' | 'D' => Level::Other,
        _ => return None,
    };
    matches!(shape(&word[1..]).as_str(), "ddd" | "dddd").then_some(level)
}

/// `core.py:700`, `src/main.rs:42`.
fn is_origin(text: &str) -> bool {
    let Some((file, line)) = text.rsplit_once(':') else {
        return false;
    };
    let is_source = [".py", ".rs", ".cpp", ".cu", ".h", ".cc"];
    !line.is_empty()
        && line.bytes().all(|b| b.is_ascii_digit())
        && is_source.iter().any(|end| file.ends_with(end))
        && !file.contains(' ')
}

fn skip_time<'a>(text: &'a str, after_level: bool, is_dated: &mut bool) -> Option<&'a str> {
    let end = text.find([' ', '\\'])?;
    let word = text[..end].trim_end_matches(',');
    // vLLM writes `11-21` after the level; in other lines that may be anything.
    if is_time(word) || (after_level && shape(word) == "dd-dd") {
        *is_dated = true;
        return Some(&text[end..]);
    }
    None
}

/// Every digit as `d`.
fn shape(word: &str) -> String {
    let letter = |c: char| if c.is_ascii_digit() { 'd' } else { c };
    word.chars().take(40).map(letter).collect()
}

/// A date, a time of day, both, or llama.cpp's `0.00.123.456`.
fn is_time(word: &str) -> bool {
    let shape = shape(word);
    let base = shape.trim_end_matches('Z');
    let (date, time) = match base.split_once('T') {
        Some((date, time)) => (date, Some(time)),
        None => (base, None),
    };
    match time {
        Some(time) => is_date(date) && is_time_of_day(time),
        None => {
            let both = date.split_once('-').filter(|(day, _)| *day == "dd/dd/dddd");
            is_date(date)
                || is_time_of_day(date)
                || both.is_some_and(|(_, time)| is_time_of_day(time))
                || matches!(date, "d.dd.ddd.ddd" | "dd.dd.ddd.ddd" | "ddd.dd.ddd.ddd")
        }
    }
}

fn is_date(shape: &str) -> bool {
    matches!(shape, "dddd-dd-dd" | "dddd/dd/dd" | "dd/dd/dddd")
}

/// `dd:dd:dd`, followed by a fraction or a zone.
fn is_time_of_day(shape: &str) -> bool {
    let rest = shape.strip_prefix("dd:dd:dd");
    let is_more = |c: char| "d.,:+-".contains(c);
    rest.is_some_and(|rest| {
        rest.chars().all(is_more) && rest.starts_with(|c: char| c != 'd' && c != ':')
            || rest.is_empty()
    })
}

fn skip_level<'a>(text: &'a str, is_dated: bool, level: &mut Option<Level>) -> Option<&'a str> {
    if level.is_some() {
        return None;
    }
    let end = text.find([' ', ':', '\\']).unwrap_or(text.len());
    let word = &text[..end];
    let found = match (level_of(word), is_dated, word) {
        (Some(found), ..) => found,
        // llama.cpp and glog write one letter.
        (None, true, "E" | "F") => Level::Error,
        (None, true, "I" | "W" | "D") => Level::Other,
        _ => return None,
    };
    let rest = &text[end..];
    // `ERROR:` and Python's `ERROR:name:`.
    let rest = match rest.strip_prefix(':') {
        Some(rest) => {
            let name = rest.find(':').filter(|end| {
                let is_name = |c: char| c.is_ascii_alphanumeric() || "._".contains(c);
                *end > 0 && rest[..*end].chars().all(is_name)
            });
            // Some loggers pad the level: those spaces are not indentation.
            name.map_or(rest, |end| &rest[end + 1..]).trim_start()
        }
        None if rest.is_empty() || rest.starts_with([' ', '\\']) => rest,
        None => return None,
    };
    *level = Some(found);
    Some(rest)
}

/// `- `, `| ` or `: ` between the parts of a prefix, and Python's `name - ERROR - `.
fn skip_separator(text: &str, in_prefix: bool) -> Option<&str> {
    if !in_prefix {
        return None;
    }
    if let Some(rest) = ["- ", "| ", ": "]
        .iter()
        .find_map(|mark| text.strip_prefix(mark))
    {
        return Some(rest);
    }
    let (name, rest) = text.split_once(" - ")?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || "._".contains(c);
    let next = rest.split(' ').next().unwrap_or_default();
    (!name.is_empty() && name.chars().all(is_name) && level_of(next).is_some()).then_some(rest)
}

/// The module and the source line that Rust's tracing writes after the level: `candle_engine::serve:`, `router/src/lib.rs:200:`.
fn skip_origin(text: &str, behind_level: bool) -> Option<&str> {
    if !behind_level {
        return None;
    }
    let (word, rest) = text.split_once(": ")?;
    let is_path = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_:".contains(c);
    let is_module = word.contains("::") || word.contains('_');
    let is_module = is_module && !word.is_empty() && word.chars().all(is_path);
    (is_module || is_origin(word)).then_some(rest)
}

#[cfg(test)]
mod tests;
