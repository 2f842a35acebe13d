//! The prompts of an evaluation: lines of a text, sections between separators, or lines of JSON. Lines that cannot be used are
//! reported.

use std::fmt;
use std::io::Read;
use std::path::Path;

use serde_json::Value;

use crate::error::CommandError;

/// Maximum size of a prompt file.
const FILE_MAX: u64 = 64 << 20;
const PROMPTS_MAX: usize = 10_000;
/// Keys of the prompt in a JSON line; the second is Aviary's.
const KEYS: [&str; 2] = ["prompt", "user_input"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// Line number of its beginning, from 1.
    pub line: usize,
    pub text: String,
}

/// A line that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptError {
    file: String,
    line: usize,
    problem: String,
}

impl fmt::Display for PromptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: line {}: {}", self.file, self.line, self.problem)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompts {
    pub prompts: Vec<Prompt>,
    pub flaws: Vec<PromptError>,
}

/// Reads a file of prompts; `-` is standard input.
pub fn read(file: &Path, separator: Option<&str>) -> Result<Prompts, CommandError> {
    let name = if file.as_os_str() == "-" {
        "standard input".to_owned()
    } else {
        file.display().to_string()
    };
    let usage = |problem: String| CommandError::Usage(format!("{name}: {problem}"));
    let mut bytes = Vec::new();
    let took = if file.as_os_str() == "-" {
        std::io::stdin().take(FILE_MAX + 1).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(file)
            .and_then(|opened| opened.take(FILE_MAX + 1).read_to_end(&mut bytes))
    };
    took.map_err(|error| usage(error.to_string()))?;
    if bytes.len() as u64 > FILE_MAX {
        return Err(usage(format!("is longer than {} MiB", FILE_MAX >> 20)));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let before = error.as_bytes()[..error.utf8_error().valid_up_to()].iter();
        let line = 1 + before.filter(|byte| **byte == b'\n').count();
        usage(format!("line {line}: is not UTF-8"))
    })?;
    let is_json = file
        .extension()
        .is_some_and(|extension| extension == "jsonl" || extension == "json");
    let read = match (is_json, separator) {
        (true, _) => of_json(&name, &text),
        (false, Some(separator)) => between(&text, separator),
        (false, None) => of_lines(&text),
    };
    match read.prompts.len() {
        0 if read.flaws.is_empty() => Err(usage(
            "contains no prompt; write one per line, or lines of JSON such as {\"prompt\": \"…\"} into a file *.jsonl".to_owned(),
        )),
        many if many > PROMPTS_MAX => Err(usage(format!(
            "holds {many} prompts; allowed: {PROMPTS_MAX}"
        ))),
        _ => Ok(read),
    }
}

fn of_lines(text: &str) -> Prompts {
    let lines = text.lines().enumerate();
    let prompts = lines.filter(|(_, line)| !line.trim().is_empty());
    Prompts {
        prompts: prompts
            .map(|(nth, line)| Prompt {
                line: nth + 1,
                text: line.trim().to_owned(),
            })
            .collect(),
        flaws: Vec::new(),
    }
}

/// Splits a text into sections at separator lines.
fn between(text: &str, separator: &str) -> Prompts {
    let mut read = Prompts::default();
    let mut part: Option<Prompt> = None;
    for (nth, line) in text.lines().enumerate() {
        if line.trim_end() == separator.trim_end() {
            read.prompts.extend(part.take());
            continue;
        }
        let part = part.get_or_insert_with(|| Prompt {
            line: nth + 1,
            text: String::new(),
        });
        part.text.push_str(line);
        part.text.push('\n');
    }
    read.prompts.extend(part);
    for prompt in &mut read.prompts {
        prompt.text = prompt.text.trim().to_owned();
    }
    read.prompts.retain(|prompt| !prompt.text.is_empty());
    read
}

fn of_json(name: &str, text: &str) -> Prompts {
    let mut read = Prompts::default();
    for (nth, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        match prompt_of(line) {
            Ok(text) => read.prompts.push(Prompt {
                line: nth + 1,
                text,
            }),
            Err(problem) => read.flaws.push(PromptError {
                file: name.to_owned(),
                line: nth + 1,
                problem,
            }),
        }
    }
    read
}

fn prompt_of(line: &str) -> Result<String, String> {
    let value: Value = serde_json::from_str(line).map_err(|error| {
        format!(
            "is not JSON (column {}); write {{\"prompt\": \"…\"}}",
            error.column()
        )
    })?;
    let found = match &value {
        Value::String(text) => Some(text),
        Value::Object(keys) => {
            let found = KEYS.iter().find_map(|key| keys.get(*key));
            match found {
                Some(Value::String(text)) => Some(text),
                _ => None,
            }
        }
        _ => None,
    };
    match found.map(|text| text.trim()) {
        Some("") => Err("its prompt is empty".to_owned()),
        Some(text) => Ok(text.to_owned()),
        None => Err(format!(
            "has no text `{}`; write {{\"prompt\": \"…\"}}",
            KEYS.join("` or `")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, bytes: &[u8]) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("written");
        (folder, path)
    }

    fn texts(read: &Prompts) -> Vec<(usize, &str)> {
        let prompts = read.prompts.iter();
        prompts
            .map(|prompt| (prompt.line, prompt.text.as_str()))
            .collect()
    }

    #[test]
    fn a_prompt_file_is_split_by_lines_or_by_a_separator() {
        let (_folder, path) = file("p.txt", b"one\n\n  two \n----\nthree\n");
        let read = read(&path, None).expect("prompts");
        assert_eq!(
            texts(&read),
            [(1, "one"), (3, "two"), (4, "----"), (5, "three")]
        );
        let parts = super::read(&path, Some("----")).expect("prompts");
        assert_eq!(texts(&parts), [(1, "one\n\n  two"), (5, "three")]);
    }

    #[test]
    fn broken_lines_of_json_are_named_and_the_others_are_read() {
        let text = "{\"prompt\": \"one\"}\n{\"prompt\": \n[1]\n{\"user_input\": \"two\"}\n{\"prompt\": \" \"}\n\"three\"\n{\"text\": \"x\"}\n";
        let (_folder, path) = file("p.jsonl", text.as_bytes());
        let read = read(&path, None).expect("prompts");
        assert_eq!(texts(&read), [(1, "one"), (4, "two"), (6, "three")]);
        let flaws: Vec<String> = read.flaws.iter().map(ToString::to_string).collect();
        let flaws = flaws.join("\n");
        for part in [
            "p.jsonl: line 2: is not JSON",
            "p.jsonl: line 3: has no text `prompt` or `user_input`",
            "p.jsonl: line 5: its prompt is empty",
            "p.jsonl: line 7: has no text",
        ] {
            assert!(flaws.contains(part), "`{part}` is missing in {flaws}");
        }
    }

    #[test]
    fn a_prompt_file_that_is_empty_or_not_utf_8_is_refused_by_name() {
        let (_folder, path) = file("p.txt", b"one\n\xff\n");
        let error = read(&path, None).expect_err("no text").to_string();
        assert!(error.contains("p.txt: line 2: is not UTF-8"), "{error}");
        let (_folder, path) = file("p.txt", b"\n \n");
        let error = read(&path, None).expect_err("empty").to_string();
        assert!(error.contains("contains no prompt"), "{error}");
    }
}
