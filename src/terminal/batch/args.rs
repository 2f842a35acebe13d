//! The command-line arguments of `batch`.

use std::path::PathBuf;

use clap::Args;

use crate::args::ServerArgs;

/// Shown below the options of `batch --help`.
pub const BATCH_EXAMPLES: &str = "\
Examples:
  model-pool batch prompts.jsonl
  model-pool batch prompts.jsonl --window 90m --output answers.jsonl
  model-pool batch texts.jsonl.gz --endpoint /v1/embeddings --no-wait
  model-pool batch prompts.jsonl --resume batch_5c1f8e0b7a9d4e62b3c4a1d2e3f40516

Each line of the file is a request: {\"custom_id\": \"1\", \"method\": \"POST\", \"url\": \"/v1/chat/completions\", \"body\": {\"model\": …}}.
Ctrl-C ends the wait, and the batch continues on the server.
Exit status: 0 all requests completed, 1 some failed, expired or were cancelled, 2 wrong usage, 3 cannot reach the server, 130 stopped by Ctrl-C.";

#[derive(Args, Clone, Debug)]
pub struct BatchArgs {
    /// The file of requests, one JSON object a line; it may be compressed with gzip. With --resume, only the names of the results
    /// come from it
    #[arg(value_name = "FILE", required_unless_present = "resume")]
    pub file: Option<PathBuf>,
    /// Wait for this batch, and create none
    #[arg(long, value_name = "ID", conflicts_with_all = ["endpoint", "window", "no_wait"])]
    pub resume: Option<String>,
    /// The route of all requests
    #[arg(long, value_name = "ROUTE", default_value = "/v1/chat/completions")]
    pub endpoint: String,
    /// Time after which the rest of the requests expires, such as 90m; 1s to 30d
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = completion_window, allow_hyphen_values = true)]
    pub window: String,
    /// The file for the responses; the default is FILE.output.jsonl
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The file for the requests that failed; the default is FILE.errors.jsonl
    #[arg(long, value_name = "FILE")]
    pub errors: Option<PathBuf>,
    /// Replace files with results that exist
    #[arg(long)]
    pub force: bool,
    /// Print the id of the batch, and do not wait for its results
    #[arg(long)]
    pub no_wait: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

impl BatchArgs {
    /// The files for the responses and for the errors.
    pub fn results(&self) -> [PathBuf; 2] {
        let resumed = self.resume.as_deref().map(PathBuf::from);
        let stem = self.file.clone().or(resumed).unwrap_or_default();
        let named = |kind: &str| {
            let mut name = stem.as_os_str().to_owned();
            name.push(format!(".{kind}.jsonl"));
            PathBuf::from(name)
        };
        let output = self.output.clone();
        let errors = self.errors.clone();
        [
            output.unwrap_or_else(|| named("output")),
            errors.unwrap_or_else(|| named("errors")),
        ]
    }
}

/// Checked here, because the server would refuse it only after the upload.
fn completion_window(text: &str) -> Result<String, String> {
    const SECONDS_MAX: u64 = 30 * 24 * 3_600;
    let (number, unit_seconds) = match text.char_indices().next_back() {
        Some((end, 's')) => (&text[..end], 1),
        Some((end, 'm')) => (&text[..end], 60),
        Some((end, 'h')) => (&text[..end], 3_600),
        Some((end, 'd')) => (&text[..end], 24 * 3_600),
        _ => (text, 0),
    };
    let seconds = number
        .parse::<u64>()
        .map(|number| number.saturating_mul(unit_seconds));
    match seconds {
        Ok(1..=SECONDS_MAX) => Ok(text.to_owned()),
        _ => Err("write a time from 1s to 30d, such as 90m, 24h or 7d".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::path::Path;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        batch: BatchArgs,
    }

    fn parse(line: &str) -> Result<BatchArgs, clap::Error> {
        Program::try_parse_from(line.split_whitespace()).map(|program| program.batch)
    }

    #[test]
    fn results_are_named_after_the_file_or_the_batch() {
        let results = |line: &str| parse(line).expect(line).results();
        let plain = results("p a/b.jsonl");
        assert_eq!(plain[0], Path::new("a/b.jsonl.output.jsonl"));
        assert_eq!(plain[1], Path::new("a/b.jsonl.errors.jsonl"));
        let resumed = results("p --resume batch_1 --errors e");
        assert_eq!(resumed[0], Path::new("batch_1.output.jsonl"));
        assert_eq!(resumed[1], Path::new("e"));
    }

    #[test]
    fn a_file_or_a_batch_is_needed_and_a_window_is_within_its_range() {
        assert!(parse("p").is_err());
        assert!(parse("p --resume b --no-wait").is_err());
        assert!(parse("p --resume b").is_ok());
        for window in ["1s", "90m", "24h", "30d"] {
            assert!(parse(&format!("p f --window {window}")).is_ok(), "{window}");
        }
        for wrong in [
            "0m",
            "-3m",
            "31d",
            "24",
            "h",
            "soon",
            "1.5h",
            "9999999999999999999d",
        ] {
            let refused = parse(&format!("p f --window {wrong}"));
            let problem = refused.expect_err(wrong).to_string();
            assert!(problem.contains("from 1s to 30d"), "{wrong}: {problem}");
        }
    }
}
