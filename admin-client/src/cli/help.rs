//! The program's help, with the commands in groups, and suggestions for misspelled commands.

use std::io::Write;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches};

use super::Cli;
use crate::render::fold::wrapped;
use crate::screen::Screen;
use crate::style::{Style, width};

/// Every command, in the order of the help.
const GROUPS: [(&str, &[&str]); 6] = [
    (
        "Look",
        &[
            "models",
            "show",
            "devices",
            "queue",
            "groups",
            "batches",
            "events",
            "why",
            "report",
            "usage",
            "leaderboard",
            "logs",
            "top",
            "chat",
        ],
    ),
    (
        "Load and unload",
        &["load", "plan", "unload", "set", "cleanup", "reset"],
    ),
    (
        "Models and settings",
        &["register", "remove", "reload", "config"],
    ),
    (
        "Devices and machines in and out of service",
        &["cordon", "uncordon", "nodes"],
    ),
    ("Access", &["keys", "audit"]),
    ("Shells", &["completions"]),
];

/// Names of similar commands in other programs, for suggestions.
const SYNONYMS: [(&str, &[&str]); 17] = [
    ("models", &["ls", "list", "ps", "status"]),
    ("load", &["start", "run", "pull", "up"]),
    ("unload", &["stop", "kill", "evict", "down"]),
    ("remove", &["rm", "delete", "unregister"]),
    ("register", &["add", "create", "new"]),
    ("devices", &["gpus", "gpu", "nvidia-smi", "memory"]),
    ("events", &["history", "watch"]),
    ("why", &["explain", "reason"]),
    ("report", &["summary", "stats"]),
    ("usage", &["bill", "cost", "ledger", "account"]),
    ("chat", &["ask", "talk"]),
    ("leaderboard", &["votes", "ranking", "elo"]),
    ("show", &["get", "describe", "inspect", "info"]),
    ("set", &["edit", "update", "priority", "lease"]),
    ("cordon", &["drain", "disable"]),
    ("uncordon", &["undrain", "enable"]),
    ("cleanup", &["clean", "prune", "evening"]),
];

/// The program's command line with its help.
pub fn command() -> clap::Command {
    let command = Cli::command();
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}Options:\n{{options}}{{after-help}}",
        grouped(&command)
    );
    command.help_template(template)
}

fn grouped(command: &clap::Command) -> String {
    let mut out = String::new();
    for (title, names) in GROUPS {
        out.push_str(&format!("{title}:\n"));
        for name in names {
            let about = command
                .find_subcommand(name)
                .and_then(clap::Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            out.push_str(&format!("  {name:<11} {about}\n"));
        }
        out.push('\n');
    }
    out
}

/// Parses the arguments of the process. Prints help or an error and exits if they ask for help or are invalid.
pub fn parse() -> Cli {
    let parsed = command()
        .try_get_matches()
        .and_then(|matches| Cli::from_arg_matches(&matches));
    match parsed {
        Ok(cli) => cli,
        // A server set in the environment hides missing arguments from clap's `arg_required_else_help`.
        Err(error) if error.kind() == ErrorKind::MissingSubcommand => {
            let _closed = write!(std::io::stderr(), "{}", help_for(std::env::args().skip(1)));
            std::process::exit(error.exit_code())
        }
        Err(error) => {
            let error = meant(error);
            let text = error.render().to_string();
            match folded(&text, Screen::of_stderr().style) {
                Some(folded) if error.use_stderr() => {
                    let _closed = write!(std::io::stderr(), "{folded}");
                    std::process::exit(error.exit_code())
                }
                _ => error.exit(),
            }
        }
    }
}

/// Wraps the message if a line is wider than the terminal.
fn folded(text: &str, style: Style) -> Option<String> {
    let limit = style.limit()?;
    let is_wide = text.lines().any(|line| width(line) > limit);
    is_wide.then(|| wrapped(text, Some(limit), usize::MAX - 1).join("\n") + "\n")
}

/// The help of the command that the arguments name, or of the program.
fn help_for(arguments: impl Iterator<Item = String>) -> String {
    let mut command = command();
    command.build();
    for argument in arguments {
        if let Some(inner) = command.find_subcommand_mut(&argument) {
            return inner.render_help().to_string();
        }
    }
    command.render_help().to_string()
}

/// Suggests the command that is known by this name in other programs, instead of commands with similar names.
fn meant(mut error: clap::Error) -> clap::Error {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return error;
    }
    let Some(ContextValue::String(named)) = error.get(ContextKind::InvalidSubcommand) else {
        return error;
    };
    let named = named.to_lowercase();
    let found = SYNONYMS
        .iter()
        .find(|(_, others)| others.contains(&named.as_str()));
    if let Some((name, _)) = found {
        let names = ContextValue::Strings(vec![(*name).to_owned()]);
        error.insert(ContextKind::SuggestedSubcommand, names);
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_command_is_in_one_group_of_the_help() {
        let grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        let command = Cli::command();
        let known: BTreeSet<&str> = command
            .get_subcommands()
            .map(clap::Command::get_name)
            .collect();
        assert_eq!(grouped.len(), known.len(), "{grouped:?}");
        assert_eq!(BTreeSet::from_iter(grouped), known);
    }

    #[test]
    fn every_command_has_one_example_that_parses() {
        fn examples(command: &clap::Command, found: &mut Vec<String>) {
            for inner in command.get_subcommands() {
                let help = inner.get_after_help().map(ToString::to_string);
                let help = help.unwrap_or_else(|| panic!("{} has no example", inner.get_name()));
                let example = help.strip_prefix("Example: ").expect("an example");
                assert!(!example.contains('\n'), "one example: {example}");
                found.push(example.to_owned());
                examples(inner, found);
            }
        }
        let mut found = Vec::new();
        examples(&Cli::command(), &mut found);
        for example in found {
            let words = words(&example);
            let parsed = command().try_get_matches_from(&words);
            assert!(parsed.is_ok(), "{example}: {parsed:?}");
        }
    }

    /// Splits a line into words as a shell does, up to a redirection.
    fn words(line: &str) -> Vec<String> {
        let mut words = Vec::new();
        for (nth, part) in line.split('\'').enumerate() {
            match nth % 2 {
                0 => words.extend(part.split_whitespace().map(str::to_owned)),
                _ => words.push(part.to_owned()),
            }
        }
        let end = words.iter().position(|word| word == ">");
        words.truncate(end.unwrap_or(words.len()));
        words
    }

    #[test]
    fn the_list_of_commands_fits_80_columns() {
        let text = grouped(&Cli::command());
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }

    fn expected(line: &str) -> String {
        let error = command()
            .try_get_matches_from(line.split_whitespace())
            .expect_err(line);
        meant(error).to_string()
    }

    #[test]
    fn a_mistyped_command_suggests_the_intended_one() {
        for (line, name) in [
            ("admin-client lod m", "'load'"),
            ("admin-client event", "'events'"),
            ("admin-client ps", "'models'"),
            ("admin-client stop m", "'unload'"),
            ("admin-client gpus", "'devices'"),
        ] {
            let text = expected(line);
            assert!(
                text.contains("similar") && text.contains(name),
                "{line}: {text}"
            );
        }
        assert!(!expected("admin-client xyzzy").contains("similar"));
    }

    #[test]
    fn without_a_command_the_help_is_shown() {
        let help = |words: &[&str]| help_for(words.iter().map(|word| (*word).to_owned()));
        let whole = help(&["--wide"]);
        assert!(whole.contains("Load and unload:\n  load "), "{whole}");
        assert!(whole.contains("--server"), "{whole}");
        let keys = help(&["--json", "keys"]);
        assert!(
            keys.contains("revoke") && keys.contains("Example: "),
            "{keys}"
        );
    }

    #[test]
    fn a_message_wider_than_the_terminal_is_wrapped_between_words() {
        let text = expected("admin-client load m --priority -1");
        let narrow = folded(&text, Style::terminal(40)).expect("folded");
        assert!(narrow.lines().all(|line| width(line) <= 40), "{narrow}");
        assert_eq!(folded(&text, Style::terminal(200)), None);
        assert_eq!(folded(&text, Style::PLAIN), None);
    }

    #[test]
    fn a_negative_priority_is_refused_with_the_allowed_range() {
        let text = expected("admin-client load m --priority -1");
        assert!(
            text.contains("a priority is 0 or more; 0 is the default"),
            "{text}"
        );
    }
}
