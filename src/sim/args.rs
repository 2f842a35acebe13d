//! Parses the words of a story's line: options, times, sizes, numbers.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use pool::{Bytes, Priority, Span};

/// `key value` pairs, bare flags, and `x4` for a count.
pub(super) struct Options<'a> {
    pub(super) pairs: BTreeMap<&'a str, &'a str>,
    pub(super) flags: Vec<&'a str>,
    pub(super) times: Option<u32>,
}

const FLAGS: [&str; 11] = [
    "force",
    "nowait",
    "now",
    "idle",
    "measured",
    "fixed",
    "absent",
    "guessed",
    "loopback",
    "evict",
    "deadline_evicts",
];

impl<'a> Options<'a> {
    pub(super) fn from_args(args: &[&'a str]) -> Result<Options<'a>, String> {
        let mut options = Options {
            pairs: BTreeMap::new(),
            flags: Vec::new(),
            times: None,
        };
        let mut args = args.iter();
        while let Some(&word) = args.next() {
            if let Some(count) = word.strip_prefix('x').and_then(|count| count.parse().ok()) {
                options.times = Some(count);
            } else if FLAGS.contains(&word) {
                options.flags.push(word);
            } else {
                let value = args
                    .next()
                    .ok_or_else(|| format!("`{word}` requires a value"))?;
                options.pairs.insert(word, value);
            }
        }
        Ok(options)
    }

    pub(super) fn get(&self, key: &str) -> Option<&'a str> {
        self.pairs.get(key).copied()
    }

    pub(super) fn number(&self, key: &str) -> Result<Option<u64>, String> {
        self.get(key).map(|text| number(Some(&text))).transpose()
    }

    pub(super) fn has(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }
}

pub(super) fn number(text: Option<&&str>) -> Result<u64, String> {
    let text = *text.ok_or("a number is missing")?;
    text.trim_start_matches(['r', 't'])
        .parse()
        .map_err(|_| format!("`{text}` is not a number"))
}

pub(super) fn span(text: &str) -> Result<Span, String> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let amount: u64 = text[..text.len() - unit.len()]
        .parse()
        .map_err(|_| format!("`{text}` is not a time"))?;
    let factor = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(format!("`{text}` is not a time in ms, s, m or h")),
    };
    Ok(Span(amount * factor))
}

/// `1=10s`: the target of a priority.
pub(super) fn target(text: &str) -> Result<(Priority, Span), String> {
    let (priority, target) = text.split_once('=').ok_or("a target is written `1=10s`")?;
    Ok((Priority(number(Some(&priority))? as u32), span(target)?))
}

pub(super) fn bytes(text: &str) -> Result<Bytes, String> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let amount: u64 = text[..text.len() - unit.len()]
        .parse()
        .map_err(|_| format!("`{text}` is not a size"))?;
    match unit {
        "GiB" => Ok(Bytes(amount * Bytes::GIB)),
        "MiB" => Ok(Bytes(amount * Bytes::MIB)),
        _ => Err(format!("`{text}` is not a size in GiB or MiB")),
    }
}
