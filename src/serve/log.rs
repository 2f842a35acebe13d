//! The service's log, with limits, because clients can cause log lines. Each kind of line (one place in the program) has a burst
//! and a rate per minute. Lines beyond them are counted and reported in one line; none is dropped silently. Long lines are cut, and
//! each entry is one line: text of engines and clients cannot look like an entry of the service.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

use config::{Config, LogFormat, LogLevel};

/// Burst of one kind: more lines than a start with many models logs of one kind.
const BURST: NonZeroU32 = NonZeroU32::new(1_000).expect("more than 0");
/// Rate of one kind, once the burst is used up.
const PER_MINUTE: NonZeroU32 = NonZeroU32::new(60).expect("more than 0");
/// Interval between reports of dropped lines.
const REPORT_EVERY: Duration = Duration::from_secs(10);
/// Maximum length of a line. Engines' last output and lists of models are shorter.
const LINE_BYTES_MAX: usize = 16 << 10;
/// Target of the lines that report dropped lines. The number of kinds bounds them.
const REPORT_TARGET: &str = "model_pool::left_out";

/// Changes the log level while the service runs. `None` if the variable `RUST_LOG` sets it.
pub(crate) struct LevelSwitch(Option<reload::Handle<EnvFilter, Registry>>);

impl LevelSwitch {
    /// Sets the level. Returns the reason if it has no effect.
    pub fn set(&self, level: LogLevel) -> Option<String> {
        let Some(handle) = &self.0 else {
            return Some("log.level has no effect while the variable RUST_LOG is set".to_owned());
        };
        let set = handle.reload(filter(level));
        set.err()
            .map(|error| format!("log.level is unchanged: {error}"))
    }
}

fn filter(level: LogLevel) -> EnvFilter {
    let level = level.as_str();
    // SQLite's statements and hyper's frames are unrelated to the pool.
    EnvFilter::new(format!(
        "{level},sqlx=warn,hyper=warn,hyper_util=warn,tokio_cron_scheduler=warn"
    ))
}

pub(crate) fn start(config: &Config) -> LevelSwitch {
    let from_variable = EnvFilter::try_from_default_env().ok();
    let is_fixed = from_variable.is_some();
    let first = from_variable.unwrap_or_else(|| filter(config.log.level));
    let (filter, handle) = reload::Layer::new(first);
    let kinds = Kinds::default();
    let text = config.log.format == LogFormat::Text;
    let coloured = io::stderr().is_terminal();
    let lines = fmt::layer()
        .with_writer(move || LineCutter {
            to: io::stderr(),
            text,
            coloured,
        })
        .with_ansi(coloured)
        .with_target(false);
    let all = tracing_subscriber::registry()
        .with(filter)
        .with(kinds.clone());
    if text {
        all.with(lines.map_event_format(NamingRequest)).init()
    } else {
        all.with(lines.json().map_event_format(NamingRequest))
            .init()
    }
    // Without this thread, dropped lines are not reported, but the limits still hold.
    let reporter = std::thread::Builder::new()
        .name("log-sums".to_owned())
        .spawn(move || kinds.report_dropped());
    if let Err(error) = reporter {
        tracing::warn!(%error, "cannot start the thread that reports dropped log lines; lines that come too fast are dropped silently");
    }
    LevelSwitch((!is_fixed).then_some(handle))
}

/// Writes log lines of a request's work in its span.
struct NamingRequest<F>(F);

impl<S, N, F> FormatEvent<S, N> for NamingRequest<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        http::in_request_span(|| self.0.format_event(context, writer, event))
    }
}

/// Every kind that has logged a line.
#[derive(Clone, Default)]
struct Kinds(Arc<Mutex<BTreeMap<usize, Kind>>>);

struct Kind {
    limiter: DefaultDirectRateLimiter,
    /// Dropped lines since the last report.
    dropped: u64,
    /// The first dropped line.
    like: String,
}

impl Kind {
    fn new() -> Kind {
        Kind {
            limiter: RateLimiter::direct(Quota::per_minute(PER_MINUTE).allow_burst(BURST)),
            dropped: 0,
            like: String::new(),
        }
    }
}

impl Kinds {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Kind>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report_dropped(&self) {
        loop {
            std::thread::sleep(REPORT_EVERY);
            for (count, like) in self.take_dropped() {
                match count - 1 {
                    0 => tracing::warn!(target: REPORT_TARGET, "{like}"),
                    more => {
                        tracing::warn!(target: REPORT_TARGET, "{like}, and {more} more like it")
                    }
                }
            }
        }
    }

    /// The number of dropped lines of each kind, with the first one.
    fn take_dropped(&self) -> Vec<(u64, String)> {
        let mut kinds = self.lock();
        let dropped = kinds.values_mut().filter(|kind| kind.dropped > 0);
        dropped
            .map(|kind| {
                let count = std::mem::take(&mut kind.dropped);
                (count, std::mem::take(&mut kind.like))
            })
            .collect()
    }
}

impl<S: Subscriber> Layer<S> for Kinds {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let place = event.metadata();
        if place.target() == REPORT_TARGET {
            return true;
        }
        // Each place has one static description, so its address identifies the kind.
        let address = std::ptr::from_ref(place).addr();
        let mut kinds = self.lock();
        let kind = kinds.entry(address).or_insert_with(Kind::new);
        if kind.limiter.check().is_ok() {
            return true;
        }
        if kind.dropped == 0 {
            event.record(&mut EventText(&mut kind.like));
        }
        kind.dropped = kind.dropped.saturating_add(1);
        false
    }
}

/// Collects the message and the fields of an event as one text.
struct EventText<'a>(&'a mut String);

impl Visit for EventText<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = match (field.name(), self.0.is_empty()) {
            ("message", _) => write!(self.0, "{value:?}"),
            (name, true) => write!(self.0, "{name}={value:?} "),
            (name, false) => write!(self.0, " {name}={value:?}"),
        };
    }
}

/// Cuts long lines, and puts each entry on one line.
struct LineCutter<W> {
    to: W,
    /// False if each line is one JSON value; a cut line is one too.
    text: bool,
    /// Keeps the service's own colours.
    coloured: bool,
}

/// Returns true if the escape sequence at the start of this text only sets colours or the weight of letters.
fn is_colour(text: &str) -> bool {
    let code = text.strip_prefix("\x1b[").unwrap_or_default();
    let end = code.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == ';');
    end.starts_with('m')
}

/// The entry on one line: replaces all line breaks but the last, in the widest sense of any terminal or reader of the log, and
/// escapes control sequences that fields may contain, such as a sequence that clears a line. The service's own colours stay if
/// `coloured`.
fn on_one_line(entry: &[u8], coloured: bool) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(entry);
    let content = text.strip_suffix('\n').unwrap_or(&text);
    let breaks = |letter: char| {
        (letter.is_control() && letter != '\t') || matches!(letter, '\u{2028}' | '\u{2029}')
    };
    if !content.contains(breaks) {
        return text;
    }
    let mut line = String::with_capacity(text.len() + 64);
    let mut before = 0;
    for (at, found) in content.match_indices(breaks) {
        if coloured && is_colour(&content[at..]) {
            continue;
        }
        line.push_str(&content[before..at]);
        match found {
            "\n" => line.push_str(" | "),
            other => line.extend(other.escape_default()),
        }
        before = at + found.len();
    }
    line.push_str(&content[before..]);
    line.push('\n');
    Cow::Owned(line)
}

impl<W: Write> Write for LineCutter<W> {
    fn write(&mut self, entry: &[u8]) -> io::Result<usize> {
        let line = if self.text {
            on_one_line(entry, self.coloured)
        } else {
            String::from_utf8_lossy(entry)
        };
        let line = line.as_bytes();
        if line.len() <= LINE_BYTES_MAX {
            return self.to.write_all(line).map(|()| entry.len());
        }
        let begins = String::from_utf8_lossy(&line[..LINE_BYTES_MAX / 2]);
        let cut = if self.text {
            format!("{begins} … (cut from {} bytes)\n", line.len())
        } else {
            let cut = serde_json::json!({ "cut_from_bytes": line.len(), "begins": begins });
            format!("{cut}\n")
        };
        self.to.write_all(cut.as_bytes())?;
        Ok(entry.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output of a subscriber with these limits.
    #[derive(Clone, Default)]
    struct CapturedOutput(Arc<Mutex<Vec<u8>>>);

    impl Write for CapturedOutput {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl CapturedOutput {
        fn by(&self, kinds: &Kinds, log: impl FnOnce()) -> String {
            self.with_colours(false, kinds, log)
        }

        fn with_colours(&self, coloured: bool, kinds: &Kinds, log: impl FnOnce()) -> String {
            let to = self.clone();
            let writer = move || LineCutter {
                to: to.clone(),
                text: true,
                coloured,
            };
            let lines = fmt::layer().with_writer(writer).with_ansi(coloured);
            let all = tracing_subscriber::registry()
                .with(kinds.clone())
                .with(lines);
            tracing::subscriber::with_default(all, log);
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    #[test]
    fn a_flood_of_one_message_is_limited_and_counted_and_other_messages_are_logged() {
        let kinds = Kinds::default();
        let text = CapturedOutput::default().by(&kinds, || {
            for number in 0..16_000 {
                tracing::warn!(number, "a client did it again");
            }
            tracing::info!("something else");
        });
        let lines = text.lines().count();
        assert!((1_001..1_100).contains(&lines), "{lines} lines");
        assert!(text.contains("something else"), "{text}");
        let sums = kinds.take_dropped();
        let (dropped, like) = &sums[0];
        assert_eq!((sums.len(), lines as u64 - 1 + dropped), (1, 16_000));
        assert!(like.contains("a client did it again"), "{like}");
        assert!(kinds.take_dropped().is_empty(), "reported once");
    }

    const FORGED: &str = "the end\n2026-01-01T00:00:00Z  INFO all is well\r\u{2028}\u{b}\u{85}\x1b[2K\x1b[1A\x1b]0;title\x07";

    fn log_forged() {
        let error = io::Error::other(FORGED);
        let field: &(dyn std::error::Error + 'static) = &error;
        tracing::warn!(shown = %FORGED, debugged = ?FORGED, plain = FORGED, error = field, "{FORGED}");
        tracing::info!("another");
    }

    #[test]
    fn text_with_line_breaks_stays_on_one_log_line_in_fields_and_message() {
        let text = CapturedOutput::default().by(&Kinds::default(), log_forged);
        let lines: Vec<&str> = text
            .split_inclusive(['\n', '\r', '\u{2028}', '\u{b}'])
            .collect();
        let [first, second] = lines.as_slice() else {
            panic!("{lines:?}");
        };
        assert!(first.contains("the end | 2026-01-01"), "{first}");
        assert!(!text.contains(['\u{85}', '\x1b', '\x07']), "{text:?}");
        assert!(second.ends_with("another\n"), "{second}");
    }

    #[test]
    fn on_a_terminal_only_colour_escape_sequences_are_kept() {
        let text = CapturedOutput::default().with_colours(true, &Kinds::default(), log_forged);
        assert!(text.contains("\x1b[33m"), "a warning is yellow: {text:?}");
        let escapes: Vec<&str> = text.split('\x1b').skip(1).collect();
        let colours = |escape: &&str| is_colour(&format!("\x1b{escape}"));
        assert!(escapes.iter().all(colours), "{text:?}");
        assert_eq!(text.lines().count(), 2, "{text:?}");
    }

    #[test]
    fn a_long_line_is_truncated_and_a_json_line_stays_valid_json() {
        let long = "ü".repeat(10 << 20);
        let text = CapturedOutput::default().by(&Kinds::default(), || {
            tracing::warn!(model = long, "no such model")
        });
        assert!(text.len() < LINE_BYTES_MAX, "{} bytes", text.len());
        assert!(text.contains("cut from 2097"), "{text}");
        let mut bytes = Vec::new();
        let mut json = LineCutter {
            to: &mut bytes,
            text: false,
            coloured: false,
        };
        json.write_all(format!("{{\"model\":\"{long}\"}}\n").as_bytes())
            .unwrap();
        let line: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        assert!(
            line["begins"]
                .as_str()
                .unwrap()
                .starts_with("{\"model\":\"ü")
        );
        assert!(bytes.len() <= LINE_BYTES_MAX + 100, "{} bytes", bytes.len());
    }
}
