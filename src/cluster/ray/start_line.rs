//! The line in a job's log with which a node's script reports its start.

const LINE: &str = "model-pool: the job starts at ";

/// The command that prints the line.
pub(super) fn command() -> String {
    format!("echo \"{LINE}$(date +%s)\"")
}

/// The start in seconds since 1970, if the log has it. Ray also writes the script itself into the log, where no number follows the
/// text.
pub(super) fn of_log(log: &str) -> Option<u64> {
    let mut lines = log.lines().filter_map(|line| line.strip_prefix(LINE));
    lines.find_map(|rest| rest.trim().parse().ok())
}

pub(super) fn is_line(line: &str) -> bool {
    line.starts_with(LINE)
}
