//! What models need before anybody has measured them: from published figures, from files written
//! here in the forms of safetensors and GGUF, and from the words of commands.

#[path = "estimates/broken_gguf.rs"]
mod broken_gguf;
#[path = "estimates/commands.rs"]
mod commands;
#[path = "estimates/forms.rs"]
mod forms;
#[path = "estimates/gguf.rs"]
mod gguf;
#[path = "estimates/layouts.rs"]
mod layouts;
#[path = "estimates/published.rs"]
mod published;

fn assert_has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is missing in: {text}");
    }
}
