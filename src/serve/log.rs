//! The service's own log, and its bounds: anybody can cause lines, so that of each kind, a place in the program,
//! so many come at once and so many a minute; the others are counted and told as one line. No line is
//! longer than a bound. It leaves out nothing without a word.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, fmt};

use config::{Config, LogFormat};

/// Lines of one kind at once: more than a start with many models has to say of one thing.
const AT_ONCE: NonZeroU32 = NonZeroU32::new(1_000).expect("more than 0");
/// And again, once those are used up.
const A_MINUTE: NonZeroU32 = NonZeroU32::new(60).expect("more than 0");
/// How often the others are told.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// Engines' last words and lists of models are shorter.
const LINE_BYTES_MAX: usize = 16 << 10;
/// The lines that tell of others; bounded by the number of kinds.
const OF_OTHERS: &str = "model_pool::left_out";

pub(super) fn start(config: &Config) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| {
        let level = config.log.level.as_str();
        // SQLite's statements and hyper's frames are not the pool's own words.
        EnvFilter::new(format!(
            "{level},sqlx=warn,hyper=warn,hyper_util=warn,tokio_cron_scheduler=warn"
        ))
    });
    let kinds = Kinds::default();
    let text = config.log.format == LogFormat::Text;
    let lines = fmt::layer()
        .with_writer(move || Short {
            to: io::stderr(),
            text,
        })
        .with_ansi(io::stderr().is_terminal())
        .with_target(false);
    let all = tracing_subscriber::registry()
        .with(filter)
        .with(kinds.clone());
    match text {
        true => all.with(lines).init(),
        false => all.with(lines.json()).init(),
    }
    // Without it nothing is told of what is left out; the bounds hold all the same.
    let told = std::thread::Builder::new()
        .name("log-sums".to_owned())
        .spawn(move || kinds.tell());
    if let Err(error) = told {
        tracing::warn!(%error, "lines that come too fast are left out without a word");
    }
}

/// Every place that has spoken.
#[derive(Clone, Default)]
struct Kinds(Arc<Mutex<BTreeMap<usize, Kind>>>);

struct Kind {
    limiter: DefaultDirectRateLimiter,
    /// Since it was last told.
    left_out: u64,
    /// The first of them.
    like: String,
}

impl Kind {
    fn new() -> Kind {
        Kind {
            limiter: RateLimiter::direct(Quota::per_minute(A_MINUTE).allow_burst(AT_ONCE)),
            left_out: 0,
            like: String::new(),
        }
    }
}

impl Kinds {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Kind>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self) {
        loop {
            std::thread::sleep(TELL_EVERY);
            for (count, like) in self.take_left_out() {
                match count - 1 {
                    0 => tracing::warn!(target: OF_OTHERS, "{like}"),
                    more => tracing::warn!(target: OF_OTHERS, "{like}, and {more} more like it"),
                }
            }
        }
    }

    /// How many were left out of each kind, with the first of them.
    fn take_left_out(&self) -> Vec<(u64, String)> {
        let mut kinds = self.lock();
        let left_out = kinds.values_mut().filter(|kind| kind.left_out > 0);
        left_out
            .map(|kind| {
                let count = std::mem::take(&mut kind.left_out);
                (count, std::mem::take(&mut kind.like))
            })
            .collect()
    }
}

impl<S: Subscriber> Layer<S> for Kinds {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let place = event.metadata();
        if place.target() == OF_OTHERS {
            return true;
        }
        // One place has one description, which stays where it is.
        let address = std::ptr::from_ref(place).addr();
        let mut kinds = self.lock();
        let kind = kinds.entry(address).or_insert_with(Kind::new);
        if kind.limiter.check().is_ok() {
            return true;
        }
        if kind.left_out == 0 {
            event.record(&mut Words(&mut kind.like));
        }
        kind.left_out = kind.left_out.saturating_add(1);
        false
    }
}

/// The message of an event, with its fields, as one text.
struct Words<'a>(&'a mut String);

impl Visit for Words<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // Writing to a text cannot fail.
        let _ = match (field.name(), self.0.is_empty()) {
            ("message", _) => write!(self.0, "{value:?}"),
            (name, true) => write!(self.0, "{name}={value:?} "),
            (name, false) => write!(self.0, " {name}={value:?}"),
        };
    }
}

/// Lines that are too long are cut.
struct Short<W> {
    to: W,
    /// Otherwise each line is one JSON value, and stays one.
    text: bool,
}

impl<W: Write> Write for Short<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if line.len() <= LINE_BYTES_MAX {
            return self.to.write(line);
        }
        let begins = String::from_utf8_lossy(&line[..LINE_BYTES_MAX / 2]);
        let cut = match self.text {
            true => format!("{begins} … (cut from {} bytes)\n", line.len()),
            false => {
                let cut = serde_json::json!({ "cut_from_bytes": line.len(), "begins": begins });
                format!("{cut}\n")
            }
        };
        self.to.write_all(cut.as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a subscriber of these bounds lets through.
    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Written {
        fn by(&self, kinds: &Kinds, speak: impl FnOnce()) -> String {
            let to = self.clone();
            let writer = move || Short {
                to: to.clone(),
                text: true,
            };
            let lines = fmt::layer().with_writer(writer).with_ansi(false);
            let all = tracing_subscriber::registry()
                .with(kinds.clone())
                .with(lines);
            tracing::subscriber::with_default(all, speak);
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    #[test]
    fn a_flood_of_one_kind_is_a_bounded_number_of_lines_and_a_sum_and_others_are_heard() {
        let kinds = Kinds::default();
        let text = Written::default().by(&kinds, || {
            for number in 0..16_000 {
                tracing::warn!(number, "a client did it again");
            }
            tracing::info!("something else");
        });
        let lines = text.lines().count();
        assert!((1_001..1_100).contains(&lines), "{lines} lines");
        assert!(text.contains("something else"), "{text}");
        let sums = kinds.take_left_out();
        let (left_out, like) = &sums[0];
        assert_eq!((sums.len(), lines as u64 - 1 + left_out), (1, 16_000));
        assert!(like.contains("a client did it again"), "{like}");
        assert!(kinds.take_left_out().is_empty(), "told once");
    }

    #[test]
    fn a_long_line_is_cut_and_one_of_json_stays_json() {
        let long = "ü".repeat(10 << 20);
        let text = Written::default().by(&Kinds::default(), || {
            tracing::warn!(model = long, "no such model")
        });
        assert!(text.len() < LINE_BYTES_MAX, "{} bytes", text.len());
        assert!(text.contains("cut from 2097"), "{text}");
        let mut bytes = Vec::new();
        let mut json = Short {
            to: &mut bytes,
            text: false,
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
