//! The flags of `vllm serve` and of `sglang.launch_server`, from lists extracted from their parsers. Checks names and value types;
//! anything else is an error with status 2.

use std::path::PathBuf;

use clap::builder::{NonEmptyStringValueParser, ValueParser};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

const LIST: &str = include_str!("../../../fixtures/vllm_flags.txt");
const SGLANG_LIST: &str = include_str!("../../../fixtures/sglang_flags.txt");

/// The simulated engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Vllm,
    Sglang,
}

/// The flags that the double uses.
#[derive(Clone, Debug)]
pub struct Flags {
    pub form: Form,
    pub model: String,
    pub served: Vec<String>,
    pub port: u16,
    pub uds: Option<PathBuf>,
    pub tensor_parallel: usize,
    pub utilisation: f64,
    pub max_model_len: u64,
    pub max_num_seqs: u64,
    pub eager: bool,
    pub sleep: bool,
    /// True if it parses tool calls that the model chooses.
    pub reads_tools: bool,
    pub tool_parser: Option<String>,
    pub api_key: Option<String>,
    /// True if adapters can be loaded and unloaded at run time.
    pub takes_adapters: bool,
    pub max_loras: i64,
    /// The place among the processes of several nodes; `None` on one node.
    pub gang: Option<GangPlace>,
}

/// The place of this process among those of several nodes.
#[derive(Clone, Debug)]
pub struct GangPlace {
    pub nodes: i64,
    pub rank: i64,
    /// The address where the leader waits for the others.
    pub leader: String,
    pub headless: bool,
}

impl Flags {
    pub fn read(words: impl Iterator<Item = String>) -> Result<Flags, clap::Error> {
        let words: Vec<String> = words.collect();
        if let [_, module, name, ..] = words.as_slice()
            && module == "-m"
            && name == "sglang.launch_server"
        {
            let matches = sglang_command().try_get_matches_from(&words[2..])?;
            return Ok(Flags::of_sglang(&matches));
        }
        let words = words.into_iter();
        // vLLM accepts `_` for `-` in the names of flags.
        let words = words.map(|word| match word.strip_prefix("--") {
            Some(rest) => {
                let (name, value) = match rest.split_once('=') {
                    Some((name, value)) => (name, format!("={value}")),
                    None => (rest, String::new()),
                };
                format!("--{}{value}", name.replace('_', "-"))
            }
            None => word,
        });
        let matches = command().try_get_matches_from(words)?;
        let serve = matches
            .subcommand_matches("serve")
            .cloned()
            .unwrap_or_default();
        Ok(Flags::new(&serve))
    }

    fn new(all: &ArgMatches) -> Flags {
        let text = |name: &str| all.get_one::<String>(name).cloned();
        let whole = |name: &str| all.get_one::<i64>(name).copied();
        let model = text("model_tag")
            .or_else(|| text("model"))
            .unwrap_or_default();
        let served = all.get_many::<String>("served-model-name");
        let mut served: Vec<String> = match served {
            Some(names) => names.cloned().collect(),
            None => vec![model.clone()],
        };
        if all.get_flag("enable-lora") {
            let modules = all.get_many::<String>("lora-modules").into_iter().flatten();
            let names = modules.filter_map(|word| word.split_once('='));
            served.extend(names.map(|(name, _)| name.to_owned()));
        }
        Flags {
            form: Form::Vllm,
            served,
            model,
            port: whole("port")
                .and_then(|port| u16::try_from(port).ok())
                .unwrap_or(8000),
            uds: text("uds").map(PathBuf::from),
            tensor_parallel: whole("tensor-parallel-size")
                .and_then(|count| usize::try_from(count).ok())
                .unwrap_or(1),
            utilisation: all
                .get_one("gpu-memory-utilization")
                .copied()
                .unwrap_or(0.9),
            max_model_len: text("max-model-len")
                .as_deref()
                .and_then(count)
                .unwrap_or(4096),
            max_num_seqs: whole("max-num-seqs")
                .and_then(|count| u64::try_from(count).ok())
                .unwrap_or(256),
            eager: all.get_flag("enforce-eager"),
            sleep: all.get_flag("enable-sleep-mode"),
            reads_tools: all.get_flag("enable-auto-tool-choice")
                && text("tool-call-parser").is_some(),
            tool_parser: text("tool-call-parser"),
            api_key: text("api-key"),
            takes_adapters: all.get_flag("enable-lora")
                && std::env::var("VLLM_ALLOW_RUNTIME_LORA_UPDATING")
                    .is_ok_and(|value| ["1", "true"].contains(&value.to_lowercase().as_str())),
            max_loras: whole("max-loras").unwrap_or(1),
            gang: whole("nnodes")
                .filter(|nodes| *nodes > 1)
                .map(|nodes| GangPlace {
                    nodes,
                    rank: whole("node-rank").unwrap_or(0),
                    leader: format!(
                        "{}:{}",
                        text("master-addr").unwrap_or_default(),
                        whole("master-port").unwrap_or(0)
                    ),
                    headless: all.get_flag("headless"),
                }),
        }
    }

    fn of_sglang(all: &ArgMatches) -> Flags {
        let text = |name: &str| all.get_one::<String>(name).cloned();
        let whole = |name: &str| all.get_one::<i64>(name).copied();
        let model = text("model-path").unwrap_or_default();
        Flags {
            form: Form::Sglang,
            served: vec![text("served-model-name").unwrap_or_else(|| model.clone())],
            model,
            port: whole("port")
                .and_then(|port| u16::try_from(port).ok())
                .unwrap_or(30000),
            uds: None,
            tensor_parallel: whole("tp-size")
                .and_then(|count| usize::try_from(count).ok())
                .unwrap_or(1),
            utilisation: all.get_one("mem-fraction-static").copied().unwrap_or(0.88),
            max_model_len: text("context-length")
                .as_deref()
                .and_then(count)
                .unwrap_or(4096),
            max_num_seqs: whole("max-running-requests")
                .and_then(|count| u64::try_from(count).ok())
                .unwrap_or(256),
            eager: true,
            sleep: false,
            reads_tools: text("tool-call-parser").is_some(),
            tool_parser: text("tool-call-parser"),
            api_key: text("api-key"),
            takes_adapters: all.get_flag("enable-lora"),
            max_loras: whole("max-loaded-loras").unwrap_or(1),
            gang: None,
        }
    }
}

fn command() -> Command {
    let serve = Command::new("serve").arg(Arg::new("model_tag").value_parser(text()));
    Command::new("vllm")
        .subcommand_required(true)
        .subcommand(with_flags(serve, LIST))
}

fn sglang_command() -> Command {
    with_flags(Command::new("sglang.launch_server"), SGLANG_LIST)
}

fn with_flags(mut command: Command, list: &str) -> Command {
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        let Some(kind) = words.pop() else { continue };
        command = command.args(args(&words, kind));
    }
    command
}

/// A flag, with `--no-…` as a separate flag; the last one wins.
fn args(spellings: &[&str], kind: &str) -> Vec<Arg> {
    let long = |word: &&&str| word.starts_with("--");
    let (negative, positive): (Vec<&str>, Vec<&str>) = spellings
        .iter()
        .filter(long)
        .map(|word| word.trim_start_matches("--"))
        .partition(|name| name.starts_with("no-"));
    let Some((name, aliases)) = positive.split_first() else {
        return Vec::new();
    };
    let name = (*name).to_owned();
    let arg = Arg::new(name.clone()).long(name.clone()).aliases(
        aliases
            .iter()
            .map(|alias| (*alias).to_owned())
            .collect::<Vec<_>>(),
    );
    // clap does not support short flags of several letters, and the pool writes none.
    let arg = match kind {
        "-" => arg.action(ArgAction::SetTrue),
        "INT" => arg
            .value_parser(value_parser!(i64))
            .allow_negative_numbers(true),
        "FLOAT" => arg
            .value_parser(value_parser!(f64))
            .allow_negative_numbers(true),
        "COUNT" => arg.value_parser(human_count),
        "JSON" => arg.value_parser(json),
        "WORDS" => arg.num_args(1..).value_parser(text()),
        _ => arg.value_parser(text()).allow_hyphen_values(true),
    };
    let no = negative.iter().map(|no| {
        Arg::new((*no).to_owned())
            .long((*no).to_owned())
            .action(ArgAction::SetTrue)
            .overrides_with(name.clone())
    });
    no.chain([arg]).collect()
}

fn text() -> ValueParser {
    NonEmptyStringValueParser::new().into()
}

fn human_count(value: &str) -> Result<String, String> {
    if value == "auto" || value == "-1" || count(value).is_some() {
        Ok(value.to_owned())
    } else {
        Err(format!("invalid int value: '{value}'"))
    }
}

/// `8192`, `8k` (thousands), `8K` (1024).
fn count(text: &str) -> Option<u64> {
    let (digits, factor) = match text.chars().next_back()? {
        'k' => (&text[..text.len() - 1], 1e3),
        'K' => (&text[..text.len() - 1], 1024.0),
        'm' => (&text[..text.len() - 1], 1e6),
        'M' => (&text[..text.len() - 1], 1024.0 * 1024.0),
        'g' => (&text[..text.len() - 1], 1e9),
        'G' => (&text[..text.len() - 1], 1024.0 * 1024.0 * 1024.0),
        _ => (text, 1.0),
    };
    let number: f64 = digits.parse().ok()?;
    (number > 0.0).then_some((number * factor) as u64)
}

fn json(value: &str) -> Result<String, String> {
    match serde_json::from_str::<serde_json::Value>(value) {
        Ok(_) => Ok(value.to_owned()),
        Err(error) => Err(format!(
            "Value {value} cannot be converted to JSON: {error}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Flags, String> {
        let words = format!("vllm serve {line}");
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        Flags::read(words.into_iter()).map_err(|error| error.to_string())
    }

    #[test]
    fn flags_are_known_in_both_spellings_and_their_values_are_typed() {
        let flags = read(
            "/m --served-model-name a b --tensor_parallel_size=2 --max-model-len 8k --no-enable-prefix-caching --enforce-eager --port 1234",
        );
        let flags = flags.expect("flags");
        assert_eq!(
            (flags.model.as_str(), flags.tensor_parallel, flags.port),
            ("/m", 2, 1234)
        );
        assert_eq!((flags.max_model_len, flags.eager), (8000, true));
        assert_eq!(flags.served, ["a", "b"]);
    }

    #[test]
    fn wrong_flags_are_refused() {
        for line in [
            "/m --tensor-parallel 2",
            "/m --port x",
            "/m --max-model-len many",
            "/m --hf-overrides {",
            "/m --gpu-memory-utilization",
        ] {
            assert!(read(line).is_err(), "{line}");
        }
    }
}
