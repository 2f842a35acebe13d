//! Checks texts of the section `cluster` for use in scripts, job names and file names.

/// Returns true for letters, digits, `-` and `_`: safe in a job name, a file name and a shell.
pub(super) fn is_name(text: &str) -> bool {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    (1..=40).contains(&text.len()) && text.chars().all(allowed)
}

/// Returns true for text that fits on one line of a script.
pub(super) fn is_line(text: &str) -> bool {
    !text.is_empty() && text.len() <= 4096 && !text.chars().any(char::is_control)
}

/// The problem with a text that would follow an option of `sbatch` or `qsub` in a script.
pub(super) fn argument_problem(text: &str) -> Option<String> {
    let is_special =
        |letter: char| letter.is_whitespace() || matches!(letter, '\'' | '"' | '\\' | '#');
    let is_wrong = !is_line(text) || text.contains(is_special) || text.starts_with('-');
    is_wrong.then(|| {
        format!("is `{text}`; write it without spaces, quotes, `#`, `\\` and a leading `-`")
    })
}
