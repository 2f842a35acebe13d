//! The command-line arguments of `chat`, `run` and `evaluate`.

use std::path::PathBuf;

use clap::Args;
use client::Key;

/// Default criteria for the judge.
const CRITERIA: &str = "correct, complete and clear";

/// Shown below the options of `chat --help`.
pub const CHAT_EXAMPLES: &str = "\
Examples:
  model-pool chat tiny-guide
  model-pool chat tiny-guide --system \"Answer in one sentence.\"
  MODEL_POOL_KEY=mp-… model-pool chat org/big --server https://gpu.example

In the conversation, /help lists the commands. Ctrl-C stops an answer, Ctrl-D ends the conversation.
Exit status: 0 done, 1 refused or failed, 2 wrong usage, 3 cannot reach the server.";

/// Shown below the options of `run --help`.
pub const RUN_EXAMPLES: &str = "\
Examples:
  model-pool run tiny-guide \"What is keep-hot?\"
  cat report.txt | model-pool run tiny-guide \"Summarize this:\"
  model-pool run tiny-guide --json \"Hello\" | jq .usage
  model-pool run org/small-GGUF:Q4_K_M \"Hello\"     # a model of the hub, by its quantization

Exit status: 0 done, 1 refused or failed, 2 wrong usage, 3 cannot reach the server, 130 stopped by Ctrl-C.";

/// Shown below the options of `evaluate --help`.
pub const EVALUATE_EXAMPLES: &str = "\
Examples:
  model-pool evaluate tiny-guide tiny-chat --file questions.txt
  model-pool evaluate org/small org/large --file questions.jsonl --max-tokens 200 --json > answers.json
  model-pool evaluate tiny-guide --file letters.txt --separator ----
  model-pool evaluate org/small org/large --file questions.txt --judge org/huge

A text file has one prompt a line, or with --separator parts between such lines. A file *.jsonl has one JSON object a line, with `prompt`.
The models are asked one after another, so that each is loaded once.
Exit status: 0 all answers came, 1 some did not, 2 wrong usage or broken lines, 3 cannot reach the server, 130 stopped by Ctrl-C.";

#[derive(Args, Clone, Debug)]
pub struct ServerArgs {
    /// The server's URL; the default is the listen address in the configuration, or http://127.0.0.1:8080
    #[arg(long, env = "MODEL_POOL_SERVER", value_name = "URL")]
    pub server: Option<String>,
    /// Your API key; a pool on this machine usually needs none. Prefer MODEL_POOL_KEY: other users can read
    /// the command line
    #[arg(
        long,
        env = "MODEL_POOL_KEY",
        value_name = "KEY",
        hide_env_values = true
    )]
    pub key: Option<Key>,
    /// The file with your API key
    #[arg(long, env = "MODEL_POOL_KEY_FILE", value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// A PEM file with certificate authorities to trust in addition to the system's, or with the server's own certificate
    #[arg(long, env = "MODEL_POOL_CA_FILE", value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// The configuration file whose listen address is used without --server
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
pub struct AskArgs {
    /// Instructions that come before the conversation
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    /// Randomness of the answer; 0 is lowest
    #[arg(long, value_name = "N", value_parser = temperature, allow_negative_numbers = true)]
    pub temperature: Option<f64>,
    /// Maximum length of an answer, in tokens
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
    pub max_tokens: Option<u32>,
    /// After each answer, show the time to its first token and its tokens per second
    #[arg(long)]
    pub verbose: bool,
}

/// The options of a conversation, whatever the server.
#[derive(Args, Clone, Debug)]
pub struct ConversationArgs {
    /// A model of the pool, or ORG/NAME[:QUANTIZATION] of the hub
    pub model: String,
    #[command(flatten)]
    pub ask: AskArgs,
    /// Do not read or write the file of earlier prompts
    #[arg(long)]
    pub no_history: bool,
}

#[derive(Args, Clone, Debug)]
pub struct ChatArgs {
    #[command(flatten)]
    pub conversation: ConversationArgs,
    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// A model of the pool, or ORG/NAME[:QUANTIZATION] of the hub
    pub model: String,
    /// The prompt. Text on standard input comes before it
    pub prompt: Vec<String>,
    #[command(flatten)]
    pub ask: AskArgs,
    /// Print the server's complete response as one JSON object
    #[arg(long)]
    pub json: bool,
    /// Print the answer when it is complete
    #[arg(long)]
    pub no_stream: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Args, Clone, Debug)]
pub struct EvaluateArgs {
    /// Models of the pool
    #[arg(required = true)]
    pub models: Vec<String>,
    /// The file with the prompts; - is standard input
    #[arg(long, value_name = "FILE")]
    pub file: PathBuf,
    /// The line that separates prompts of several lines in a text file
    #[arg(long, value_name = "LINE")]
    pub separator: Option<String>,
    /// Skip lines that cannot be used, instead of sending no requests
    #[arg(long)]
    pub skip_broken: bool,
    /// Number of requests per model that run at the same time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=64), allow_negative_numbers = true)]
    pub at_once: usize,
    #[command(flatten)]
    pub ask: AskArgs,
    /// Let this model of the pool rank the answers to each prompt; it does not learn which model wrote which
    #[arg(long, value_name = "MODEL")]
    pub judge: Option<String>,
    /// Criteria for the judge: the best answer is "most TEXT"
    #[arg(long, value_name = "TEXT", requires = "judge", default_value = CRITERIA)]
    pub criteria: String,
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

impl RunArgs {
    /// Converts the arguments of a `run` without a prompt, which starts a conversation.
    pub fn as_chat(&self) -> ChatArgs {
        let conversation = ConversationArgs {
            model: self.model.clone(),
            ask: self.ask.clone(),
            no_history: false,
        };
        ChatArgs {
            conversation,
            server: self.server.clone(),
        }
    }
}

fn temperature(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
        _ => Err("write a number from 0, such as 0.7".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        run: RunArgs,
    }

    #[test]
    fn options_may_follow_the_prompt_and_a_key_does_not_show() {
        let words = ["p", "m", "two", "words", "--json", "--key", "mp-secret"];
        let run = Program::try_parse_from(words).expect("parses").run;
        assert_eq!(run.prompt, ["two", "words"]);
        assert!(run.json && !format!("{run:?}").contains("secret"));
    }

    #[test]
    fn a_temperature_is_a_non_negative_number() {
        for wrong in ["hot", "NaN", "-1", "inf"] {
            let words = [
                "p".to_owned(),
                "m".to_owned(),
                format!("--temperature={wrong}"),
            ];
            assert!(Program::try_parse_from(words).is_err(), "{wrong}");
        }
    }
}
