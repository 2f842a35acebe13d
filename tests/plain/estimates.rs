//! What models need before anybody has measured them: from published figures, from files written
//! here in the forms of safetensors and GGUF, and from the words of commands.

mod broken_gguf;
mod commands;
mod forms;
mod gguf;
mod layouts;
mod published;

fn assert_has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is missing in: {text}");
    }
}
