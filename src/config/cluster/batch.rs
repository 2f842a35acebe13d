//! Checks of the keys common to Slurm and PBS.

use std::path::Path;

use super::text::{argument_problem, is_line};
use crate::values::Length;
use pool::Span;

const TIMEOUT: (Span, Span) = (Span::from_secs(1), Span::from_secs(600));
const GRACE: (Span, Span) = (Span::from_secs(1), Span::from_secs(3600));
const SETUP_BYTES_MAX: usize = 64 << 10;
pub(super) const LIST_MAX: usize = 1000;

/// The values of these keys, and examples for the messages.
pub(crate) struct BatchKeys<'a> {
    pub bin_dir: Option<&'a Path>,
    pub log_dir: Option<&'a Path>,
    pub options: &'a [String],
    pub setup: &'a str,
    pub grace: Length,
    pub timeout: Length,
    pub bin_dir_example: &'a str,
    /// An example for `options`.
    pub option_example: &'a str,
}

/// Calls `wrong` with the key and the message of each problem.
pub(crate) fn problems(keys: &BatchKeys<'_>, mut wrong: impl FnMut(&str, String)) {
    for (index, option) in keys.options.iter().enumerate() {
        let is_option = option.starts_with('-') && is_line(option) && !option.contains('#');
        if !is_option || index >= LIST_MAX {
            let message = format!("is `{option}`; write {}", keys.option_example);
            wrong(&format!("options[{index}]"), message);
        }
    }
    if let Some(folder) = keys.bin_dir
        && !folder.is_absolute()
    {
        let message = format!(
            "is `{}`; write an absolute path such as {}",
            folder.display(),
            keys.bin_dir_example
        );
        wrong("bin_dir", message);
    }
    if let Some(folder) = keys.log_dir
        && !(folder.is_absolute() && argument_problem(&folder.to_string_lossy()).is_none())
    {
        let message = format!(
            "is `{}`; write an absolute path without spaces, in a folder that the nodes share",
            folder.display()
        );
        wrong("log_dir", message);
    }
    if keys.setup.len() > SETUP_BYTES_MAX || keys.setup.contains('\0') {
        wrong(
            "setup",
            format!("is longer than {SETUP_BYTES_MAX} bytes; move the lines to a file and call it"),
        );
    }
    for (key, length, (least, most), allowed) in [
        ("grace", keys.grace, GRACE, "1s to 1h"),
        ("timeout", keys.timeout, TIMEOUT, "1s to 10m"),
    ] {
        if !(least..=most).contains(&length.0) {
            wrong(key, format!("is {length}; allowed: {allowed}"));
        }
    }
}
