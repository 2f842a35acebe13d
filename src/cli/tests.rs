//! Tests of `cli.rs`.

use std::any::TypeId;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Arg, Command as Program, CommandFactory};

use super::Cli;

/// Value names of quantities, for options that take a text.
const QUANTITIES: &[&str] = &["N", "TIME", "SHARE", "DEVICES", "PER_SECOND"];

fn is_number(option: &Arg) -> bool {
    let numbers = [
        TypeId::of::<u16>(),
        TypeId::of::<u32>(),
        TypeId::of::<u64>(),
        TypeId::of::<usize>(),
        TypeId::of::<f64>(),
    ];
    let kind = option.get_value_parser().type_id();
    numbers.iter().any(|number| kind == *number)
}

fn is_text_of_a_quantity(option: &Arg) -> bool {
    let names = option.get_value_names().unwrap_or_default();
    let is_named = names.iter().any(|name| QUANTITIES.contains(&name.as_str()));
    is_named || option.get_value_parser().type_id() == TypeId::of::<Duration>()
}

/// The command lines that give each option for a quantity a negative value.
fn command_lines(program: &Program, path: &[String], found: &mut Vec<Vec<String>>) {
    for option in program.get_arguments() {
        let Some(name) = option.get_long().filter(|_| !option.is_hide_set()) else {
            continue;
        };
        if !option.get_action().takes_values() {
            continue;
        }
        let value = if is_number(option) {
            "-3"
        } else if is_text_of_a_quantity(option) {
            "-3m"
        } else {
            continue;
        };
        let own = [format!("--{name}"), value.to_owned()];
        found.push([path, &own[..]].concat());
    }
    for command in program
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
    {
        let path = [path, &[command.get_name().to_owned()][..]].concat();
        command_lines(command, &path, found);
    }
}

#[test]
fn a_negative_quantity_is_parsed_as_the_value_of_its_option() {
    let mut lines = Vec::new();
    command_lines(&Cli::command(), &["model-pool".to_owned()], &mut lines);
    for line in &lines {
        // A number out of range is a separate error; the command checks texts.
        let parsed = Cli::command().try_get_matches_from(line);
        let kind = parsed.err().map(|error| error.kind());
        assert_ne!(kind, Some(ErrorKind::UnknownArgument), "{line:?}");
    }
    let all: Vec<String> = lines.iter().map(|line| line.join(" ")).collect();
    for known in [
        "model-pool run --temperature -3",
        "model-pool simulate --capacity -3m",
        "model-pool bench --duration -3m",
        "model-pool pull --limit -3",
    ] {
        assert!(all.iter().any(|line| line == known), "{known}: {all:?}");
    }
}
