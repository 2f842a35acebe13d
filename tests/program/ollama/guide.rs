//! The commands of docs/guides/ollama.md, run unchanged.

use std::fs;
use std::process::Command;

use super::demo;

const GUIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/guides/ollama.md");
/// Address of the pool in the guide.
const ADDRESS: &str = "127.0.0.1:8080";

#[test]
fn every_request_in_the_ollama_guide_is_served() {
    let guide = fs::read_to_string(GUIDE).unwrap();
    let commands: Vec<&str> = guide
        .lines()
        .filter(|line| line.starts_with("curl "))
        .collect();
    assert!(commands.len() >= 8, "{commands:?}");
    let pool = demo();
    for command in commands {
        assert!(command.contains(ADDRESS), "{command}");
        let asked = command.replace(ADDRESS, pool.address());
        let asked = asked.replacen("curl ", "curl -sS --fail-with-body --max-time 60 ", 1);
        let ran = Command::new("sh").args(["-c", &asked]).output().unwrap();
        let text = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success(), "{command}\n{text}{ran:?}");
        assert!(
            text.starts_with('{') && !text.contains("\"error\""),
            "{command}\n{text}"
        );
    }
}
