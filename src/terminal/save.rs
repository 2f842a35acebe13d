//! Writes a conversation to a file, as the JSON of a request or as Markdown.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::conversation::Conversation;

/// Writes the file. An existing file is replaced only if `replaces`.
///
/// # Errors
/// The reason the file cannot be written, with a remedy.
pub fn save(conversation: &Conversation, path: &Path, replaces: bool) -> Result<PathBuf, String> {
    let path = with_home(path);
    let is_json = path
        .extension()
        .is_some_and(|extension| extension == "json");
    let text = if is_json {
        let request = conversation.request(false);
        serde_json::to_string_pretty(&request).map_err(|error| error.to_string())? + "\n"
    } else {
        markdown(conversation)
    };
    let mut options = OpenOptions::new();
    if replaces {
        options.write(true).create(true).truncate(true)
    } else {
        options.write(true).create_new(true)
    };
    let written = options
        .open(&path)
        .and_then(|mut file| file.write_all(text.as_bytes()));
    match written {
        Ok(()) => Ok(path),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(format!(
            "{} is there already; choose another name, or remove it",
            path.display()
        )),
        Err(error) => Err(format!("cannot write {}: {error}", path.display())),
    }
}

/// Expands `~/` to the home folder, as in a shell.
fn with_home(path: &Path) -> PathBuf {
    match (path.strip_prefix("~"), std::env::var_os("HOME")) {
        (Ok(rest), Some(home)) => Path::new(&home).join(rest),
        _ => path.to_owned(),
    }
}

fn markdown(conversation: &Conversation) -> String {
    let mut text = format!("# Conversation with {}\n", conversation.model);
    if let Some(system) = &conversation.system {
        text.push_str(&format!("\n## system\n\n{system}\n"));
    }
    for message in conversation.messages() {
        let body = message.text.trim_end();
        text.push_str(&format!("\n## {}\n\n{body}\n", message.role.name()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conversation() -> Conversation {
        let mut conversation = Conversation::new("tiny", Some("Be short.".to_owned()));
        conversation.prompt("Hello".to_owned());
        conversation.add_response("Hi\x1b[0m");
        conversation
    }

    #[test]
    fn a_conversation_is_saved_as_a_json_request_or_as_markdown_by_extension() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("c.json");
        save(&conversation(), &path, false).expect("written");
        let text = std::fs::read_to_string(&path).expect("read");
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(json, conversation().request(false));
        let path = folder.path().join("c.md");
        save(&conversation(), &path, false).expect("written");
        let text = std::fs::read_to_string(&path).expect("read");
        assert_eq!(
            text,
            "# Conversation with tiny\n\n## system\n\nBe short.\n\n## user\n\nHello\n\n## assistant\n\nHi\x1b[0m\n"
        );
    }

    #[test]
    fn an_existing_file_is_overwritten_only_if_this_conversation_wrote_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("kept.md");
        std::fs::write(&path, "mine").expect("written");
        let refused = save(&conversation(), &path, false).expect_err("it is there");
        assert!(refused.contains("kept.md is there already"), "{refused}");
        assert_eq!(std::fs::read_to_string(&path).expect("read"), "mine");
        save(&conversation(), &path, true).expect("replaced");
        let missing = folder.path().join("no/such/c.md");
        let refused = save(&conversation(), &missing, false).expect_err("no folder");
        assert!(refused.contains("no/such/c.md"), "{refused}");
    }
}
