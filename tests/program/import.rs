//! `model-pool import`: configurations of llama-swap and LiteLLM become model files that the program checks and serves.

mod litellm;
mod llama_swap;

use std::fs;
use std::path::Path;

use support::table::rows_of;

use super::commands::{CommandOutput, model_pool};

/// Imports this text into a new folder.
fn import(
    kind: &str,
    text: &str,
    words: &[&str],
    env: &[(&str, &str)],
) -> (tempfile::TempDir, CommandOutput) {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("theirs.yaml"), text).expect("written");
    let words: Vec<&str> = ["import", kind, "theirs.yaml"]
        .into_iter()
        .chain(words.iter().copied())
        .collect();
    let ended = model_pool(folder.path(), &words, env);
    (folder, ended)
}

/// Adds the memory needs that the models' files do not contain.
fn check(folder: &Path, reference: &str) -> CommandOutput {
    fs::write(folder.join("reference.json"), reference).expect("written");
    let env = [
        ("MODEL_POOL__CATALOG__MODEL_REFERENCE", "reference.json"),
        ("MODEL_POOL__INVENTORY__PROVIDER", "fixed"),
        (
            "MODEL_POOL__INVENTORY__DEVICES",
            "[{name: gpu0, memory: 80GiB}, {name: gpu1, memory: 80GiB}]",
        ),
    ];
    let words = ["check", "--config", "imported/model-pool.yaml"];
    model_pool(folder, &words, &env)
}

fn files(folder: &Path) -> Vec<(String, String)> {
    let entries = fs::read_dir(folder.join("imported/models"))
        .expect("a folder")
        .flatten();
    let file = |path: std::path::PathBuf| {
        let name = path
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        (name, fs::read_to_string(path).expect("read"))
    };
    let mut files: Vec<_> = entries.map(|entry| file(entry.path())).collect();
    files.sort();
    files
}

fn file<'a>(files: &'a [(String, String)], name: &str) -> &'a str {
    let file = files.iter().find(|(file, _)| file == name);
    &file.expect(name).1
}

/// The text of all files and the output.
fn all_text(files: &[(String, String)], stdout: &str) -> String {
    let texts = files.iter().map(|(_, text)| text.as_str());
    texts.chain([stdout]).collect()
}

/// A program | its file | a part of the message
const UNREADABLE: &str = r"
    llama-swap | models:\n  a:\n   cmd: [x\n | theirs.yaml: line
    llama-swap | models:\n  a: {cmd: x}\n  a: {cmd: y}\n | `a` is given twice
    llama-swap | macros:\n  a: ${b}\n  b: ${a}\nmodels: {}\n | line 2: macros.a: the macros refer to themselves: a → b → a
    llama-swap | models: {}\n | there is no model in it
    llama-swap | globalTTL: soon\nmodels: {}\n | line 1: globalTTL: a whole number
    llama-swap | - a\n | keys with values are expected
    litellm | model_list: []\n | model_list: is missing or empty
    litellm | model_list:\n  - a: [\n | theirs.yaml: line
";

#[test]
fn a_file_that_cannot_be_read_writes_nothing_and_names_the_line() {
    for [kind, text, words] in rows_of(UNREADABLE) {
        let (folder, ended) = import(kind, text, &[], &[]);
        let ended = ended.refused(&["theirs.yaml", words]);
        assert!(ended.stdout.is_empty(), "{ended:?}");
        assert!(!folder.path().join("imported").exists(), "{text}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    model_pool(folder.path(), &["import", "litellm", "none.yaml"], &[])
        .refused(&["cannot read none.yaml"]);
}

#[test]
fn an_import_replaces_files_only_with_force() {
    let text = "models: {a: {cmd: 'server --port ${PORT}'}}\n";
    let (folder, ended) = import("llama-swap", text, &["--into", "here"], &[]);
    ended.done();
    let again = |words: &[&str]| {
        let words: Vec<&str> = ["import", "llama-swap", "theirs.yaml", "--into", "here"]
            .into_iter()
            .chain(words.iter().copied())
            .collect();
        model_pool(folder.path(), &words, &[])
    };
    again(&[]).refused(&["here/model-pool.yaml exists", "--force"]);
    again(&["--force"]).done();
}
