//! What models need before there are measurements: from published figures, from safetensors and GGUF files written
//! here, and from the arguments of commands.

mod broken_gguf;
mod commands;
mod damage;
mod forms;
mod gguf;
mod layouts;
mod published;

fn assert_has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is missing in: {text}");
    }
}
