//! The commands of a conversation: lines that begin with a slash. Pure.

use std::path::PathBuf;

use reading::nearest;

pub const HELP: &str =
    "  /system TEXT     set the instructions; without TEXT, show them; none removes them
  /model NAME      go on with another model; without NAME, list the models
  /set NAME VALUE  set a parameter, such as temperature 0.2; none removes it
  /set             show all parameters
  /set verbose     show times and tokens per second after answers; /set quiet ends it
  /retry           ask the last prompt again (also /regenerate)
  /clear           forget the messages; instructions and parameters stay
  /save FILE       write the conversation: JSON if FILE ends in .json, or Markdown
  /show            the model, instructions and parameters
  /help            this list (also /?)
  /exit            end (also /bye, /quit, Ctrl-D)

  \"\"\" begins a text of several lines, and \"\"\" ends it. Ctrl-C stops an answer.";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// `None` shows the instructions; an empty text removes them.
    System(Option<String>),
    Model(Option<String>),
    Settings,
    Set {
        name: String,
        value: String,
    },
    Verbose(bool),
    Retry,
    Clear,
    Save(PathBuf),
    Show,
    Help,
    Exit,
}

/// Every command but `/?`.
pub const NAMES: [&str; 14] = [
    "/system",
    "/model",
    "/models",
    "/list",
    "/set",
    "/retry",
    "/regenerate",
    "/clear",
    "/save",
    "/show",
    "/help",
    "/exit",
    "/bye",
    "/quit",
];

/// Returns true if the line is a command. A path such as `/etc/hosts` is the beginning of a prompt.
pub fn is_command(line: &str) -> bool {
    let word = line.split_whitespace().next().unwrap_or_default();
    word.starts_with('/') && !word[1..].contains('/')
}

/// # Errors
/// The problem, with the command that was probably meant.
pub fn parse(line: &str) -> Result<Command, String> {
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    let text = || (!rest.is_empty()).then(|| rest.to_owned());
    let alone = |command: Command| match rest {
        "" => Ok(command),
        _ => Err(format!("{word} takes nothing after it")),
    };
    match word {
        "/system" => Ok(system(text())),
        "/model" => Ok(Command::Model(text())),
        "/models" | "/list" => alone(Command::Model(None)),
        "/set" => set(rest),
        "/retry" | "/regenerate" => alone(Command::Retry),
        "/clear" => alone(Command::Clear),
        "/save" => match text() {
            Some(path) => Ok(Command::Save(PathBuf::from(path))),
            None => Err("name a file: /save conversation.md".to_owned()),
        },
        // Other programs have `/show info`.
        "/show" => Ok(Command::Show),
        "/help" | "/?" => Ok(Command::Help),
        "/exit" | "/bye" | "/quit" => alone(Command::Exit),
        _ => {
            let near = nearest(word, NAMES.into_iter());
            let near = near.map_or_else(String::new, |near| format!("did you mean {near}? "));
            Err(format!("unknown command {word}; {near}/help lists all"))
        }
    }
}

fn system(text: Option<String>) -> Command {
    Command::System(text.map(|text| match text.as_str() {
        "none" | "\"\"" => String::new(),
        _ => text,
    }))
}

/// Accepts `temperature 0.2` and `temperature=0.2`, optionally after the keywords of other programs: `parameter`, `system`.
fn set(rest: &str) -> Result<Command, String> {
    let (name, value) = rest
        .split_once(|letter: char| letter.is_whitespace() || letter == '=')
        .unwrap_or((rest, ""));
    let value = value.trim();
    match (name, value) {
        ("", _) | ("parameter", "") => Ok(Command::Settings),
        ("parameter", rest) => set(rest),
        ("system", "") => Ok(Command::System(None)),
        ("system", text) => Ok(system(Some(text.to_owned()))),
        ("verbose", "") => Ok(Command::Verbose(true)),
        ("quiet", "") => Ok(Command::Verbose(false)),
        (name, "") => Err(format!("give {name} a value, or none: /set {name} 0.2")),
        (name, value) => Ok(Command::Set {
            name: name.to_owned(),
            value: value.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_also_parsed_by_their_aliases() {
        let set = |name: &str, value: &str| Command::Set {
            name: name.to_owned(),
            value: value.to_owned(),
        };
        let cases = [
            (
                "/system  Be short. ",
                Command::System(Some("Be short.".to_owned())),
            ),
            ("/system", Command::System(None)),
            ("/system none", Command::System(Some(String::new()))),
            (
                "/set system Be short.",
                Command::System(Some("Be short.".to_owned())),
            ),
            ("/system a\nb", Command::System(Some("a\nb".to_owned()))),
            (
                "/model org/m:Q4_K_M",
                Command::Model(Some("org/m:Q4_K_M".to_owned())),
            ),
            ("/list", Command::Model(None)),
            ("/set temperature 0.2", set("temperature", "0.2")),
            ("/set temperature=0.2", set("temperature", "0.2")),
            ("/set parameter top_k 40", set("top_k", "40")),
            ("/set", Command::Settings),
            ("/set quiet", Command::Verbose(false)),
            ("/regenerate", Command::Retry),
            ("/save a b.md", Command::Save(PathBuf::from("a b.md"))),
            ("/show info", Command::Show),
            ("/?", Command::Help),
            ("/bye", Command::Exit),
        ];
        for (line, command) in cases {
            assert_eq!(parse(line), Ok(command), "{line}");
        }
    }

    #[test]
    fn a_wrong_command_gets_the_right_one_suggested() {
        let wrong = |line: &str| parse(line).expect_err(line);
        assert!(wrong("/sytem x").contains("did you mean /system?"));
        assert!(wrong("/frobnicate").contains("/help"));
        assert!(wrong("/save").contains("/save conversation.md"));
        assert!(wrong("/set top_p").contains("none"));
        assert!(wrong("/exit now").contains("nothing after it"));
    }

    #[test]
    fn a_path_is_not_a_command() {
        assert!(!is_command("/etc/hosts: what is it?"));
        assert!(!is_command("what is /help"));
        assert!(is_command("/help") && is_command("/hlep me") && is_command("/"));
    }

    #[test]
    fn the_help_has_every_command() {
        for name in NAMES
            .iter()
            .filter(|name| !["/models", "/list"].contains(name))
        {
            assert!(HELP.contains(name), "{name}");
        }
        assert!(HELP.starts_with("  /"), "the first line is indented, too");
    }
}
