//! Compares the pool's list of llama-server's flags with the real program: its `--help` and its parser. A flag that a version
//! removed, renamed or added fails the test by name. No model is loaded.

use std::path::Path;
use std::process::Command;

use model_pool::catalog::{
    Engine, EngineAddress, LaunchContext, PlacedDevice, ServerRecipe, find_engine,
};
use model_pool::pool::Bytes;
use serde_json::json;

use super::llama_server;
use crate::flag_lists::{Flags, difference, flags_of_list};
use crate::vllm::flags::{sample, words};

const LIST: &str = include_str!("../../fixtures/llama_server_flags.txt");
/// Column at which the description starts in `--help`; the description of a longer flag is on the next line.
const TEXT_COLUMN: usize = 40;
const GAP: &str = "   ";
/// Words that are not flags of llama-server: it exits at the first one and never starts. If it exits at a later one, the preceding
/// flag has taken the first as its value.
const ENDS: [&str; 3] = ["--no-flag-1", "--no-flag-2", "--no-flag-3"];

/// The parser's verdict on some words.
enum Verdict {
    Taken,
    /// It knows the flag, and rejects the sample value.
    ValueRefused(String),
    Wrong(String),
}

fn engine() -> &'static Engine {
    find_engine("LlamaCppEngine").expect("llama.cpp")
}

/// Without variables and files that also set flags.
fn command(program: &Path, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .current_dir(folder)
        .env("HOME", folder)
        .env_remove("XDG_CONFIG_HOME");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("LLAMA_") {
            command.env_remove(name);
        }
    }
    command
}

fn help(program: &Path, folder: &Path) -> String {
    let done = command(program, folder).arg("--help").output();
    let done = done.expect("llama-server runs");
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{}: {errors}", done.status);
    text
}

/// Spellings of flags; true if a value follows.
fn flags_of_help(text: &str) -> Flags {
    let is_flag = |line: &&str| line.starts_with('-') && !line.starts_with("-----");
    let mut flags = Flags::new();
    for line in text.lines().filter(is_flag) {
        let flag = match line.get(TEXT_COLUMN - GAP.len()..TEXT_COLUMN) {
            Some(GAP) => &line[..TEXT_COLUMN - GAP.len()],
            _ => line,
        };
        let mut parts = flag.split_whitespace();
        let mut spellings = Vec::new();
        for part in parts.by_ref() {
            spellings.push(part.trim_end_matches(',').to_owned());
            if !part.ends_with(',') {
                break;
            }
        }
        let takes_value = parts.next().is_some();
        flags.extend(spellings.into_iter().map(|flag| (flag, takes_value)));
    }
    flags
}

fn parse(program: &Path, folder: &Path, words: &[String]) -> Verdict {
    let done = command(program, folder).args(words).args(ENDS).output();
    let done = done.expect("llama-server runs");
    let text = String::from_utf8_lossy(&done.stderr);
    let after = |mark: &str| text.lines().find_map(|line| line.strip_prefix(mark));
    if let Some(word) = after("error: invalid argument: ") {
        return match word.trim() {
            word if word == ENDS[0] => Verdict::Taken,
            word if ENDS.contains(&word) => Verdict::Wrong("it takes one more word".to_owned()),
            word => Verdict::Wrong(format!("it does not know {word}")),
        };
    }
    match after("error while handling argument ") {
        Some(why) => Verdict::ValueRefused(why.to_owned()),
        None => Verdict::Wrong(format!("{}: {text}", done.status)),
    }
}

/// A key's flag with a valid value; both forms of a switch.
fn lines_of(key: &str, folder: &Path) -> Vec<Vec<String>> {
    let path = folder.join("file").display().to_string();
    let samples = match key {
        // The only flag with two values.
        "control_vector_layer_range" => vec![json!([1, 2])],
        _ => vec![
            json!({"type": "object"}),
            json!(true),
            json!(1),
            json!(0.5),
            json!(path),
        ],
    };
    let on = sample(engine(), key, &samples).unwrap_or_else(|| panic!("no sample of {key}"));
    let off = words(engine(), key, &json!(false)).ok();
    // Only for switches: other flags are refused, or are text.
    let off = off.filter(|words| words.len() == 1);
    [on].into_iter().chain(off).collect()
}

#[test]
fn llama_servers_help_matches_the_list_of_flags() {
    let Some(program) = llama_server() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let text = help(&program, folder.path());
    let (there, listed) = (flags_of_help(&text), flags_of_list(LIST));
    assert!(there.len() > 300, "{text}");
    let about = LIST.lines().take_while(|line| line.starts_with('#'));
    let about: Vec<&str> = about.collect();
    if let Some(difference) = difference(&there, &listed) {
        panic!(
            "{} and tests/fixtures/llama_server_flags.txt differ. {difference} Change the list and src/catalog/engines/llama_cpp.rs.\n{}",
            program.display(),
            about.join("\n")
        );
    }
}

#[test]
fn llama_servers_own_parser_accepts_every_flag_of_the_table() {
    let Some(program) = llama_server() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let (mut wrong, mut refused, mut count) = (Vec::new(), Vec::new(), 0);
    for key in engine().flags.keys() {
        for words in lines_of(key, folder.path()) {
            count += 1;
            match parse(&program, folder.path(), &words) {
                Verdict::Taken => {}
                Verdict::ValueRefused(why) if words.len() > 1 => {
                    refused.push(format!("{words:?}: {why}"));
                }
                Verdict::ValueRefused(why) | Verdict::Wrong(why) => {
                    wrong.push(format!("{words:?}: {why}"));
                }
            }
        }
    }
    println!("{count} lines, of which llama-server refuses the sample's value: {refused:#?}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn llama_servers_own_parser_accepts_the_arguments_the_pool_writes() {
    let Some(program) = llama_server() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let help = help(&program, folder.path());
    let gpu = |index| PlacedDevice {
        index,
        uuid: None,
        is_gpu: true,
        total: Bytes(24 * Bytes::GIB),
    };
    let gpus = [gpu(0), gpu(1)];
    let example = LaunchContext::example(Bytes(Bytes::GIB));
    let on_gpus = LaunchContext {
        devices: &gpus,
        ..example
    };
    let at_socket = LaunchContext {
        at: EngineAddress::Socket(Path::new("/run/m.sock")),
        ..example
    };
    let local = ServerRecipe {
        context: Some(512),
        ..ServerRecipe::new(engine(), "/models/m.gguf")
    };
    let of_hub = ServerRecipe {
        is_local: false,
        ..ServerRecipe::new(engine(), "lab/m-GGUF")
    };
    for (recipe, place) in [
        (&local, &on_gpus),
        (&local, &at_socket),
        (&of_hub, &example),
    ] {
        let made = recipe.command(place).expect("a command");
        let words = &made.argv[1..];
        match parse(&program, folder.path(), words) {
            Verdict::Taken => {}
            Verdict::ValueRefused(why) | Verdict::Wrong(why) => panic!("{words:?}: {why}"),
        }
        for name in made.env.keys() {
            assert!(help.contains(&format!("(env: {name})")), "{name}: {help}");
        }
    }
}

#[test]
fn flags_are_parsed_from_help_with_every_spelling_and_whether_they_take_a_value() {
    let text = "----- common params -----\n\n\
        -h,    --help, --usage                  print usage and exit\n\
        -t,    --threads N                      number of CPU threads to use during generation (default: -1)\n                                        (env: LLAMA_ARG_THREADS)\n\
        --poll <0...100>                        use polling level to wait for work (0 - no polling, default: 50)\n\
        -cb,   --cont-batching, -nocb, --no-cont-batching\n                                        whether to enable continuous batching\n\
        -ot,   --override-tensor <tensor name pattern>=<buffer type>,...\n                                        - override tensor buffer type\n";
    let takes = |names: &[&str], value: bool| {
        let names = names.iter().map(|name| ((*name).to_owned(), value));
        names.collect::<Vec<_>>()
    };
    let expected: Flags = [
        takes(&["-h", "--help", "--usage"], false),
        takes(&["-t", "--threads", "--poll"], true),
        takes(
            &["-cb", "--cont-batching", "-nocb", "--no-cont-batching"],
            false,
        ),
        takes(&["-ot", "--override-tensor"], true),
    ]
    .concat()
    .into_iter()
    .collect();
    assert_eq!(flags_of_help(text), expected);
}
