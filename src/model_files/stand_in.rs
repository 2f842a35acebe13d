//! Recognises files that a download left in place of a model's file: a Git LFS pointer, or a web page.

use std::io::Read;
use std::path::Path;

use crate::error::FileError;
use crate::regular_file::open_regular;

/// Enough for a Git LFS pointer, and for the beginning of a web page.
const LOOKED_AT_BYTES: u64 = 1024;

/// The error for a file that is a pointer or a web page; `None` for other files.
pub(crate) fn stand_in(path: &Path) -> Option<FileError> {
    let file = open_regular(path).ok()?;
    let length = file.metadata().ok()?.len();
    let mut bytes = Vec::new();
    file.take(LOOKED_AT_BYTES).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let text = text.trim_start_matches('\u{feff}').trim_start();
    if text.starts_with("version https://git-lfs.github.com/spec/") {
        let size = text.lines().find_map(|line| line.strip_prefix("size "));
        let stands_for =
            size.map_or_else(String::new, |size| format!(" for a file of {size} bytes"));
        return Some(FileError::StandIn {
            path: path.to_owned(),
            problem: format!(
                "it is a Git LFS pointer ({length} bytes){stands_for}, not the file itself"
            ),
            advice: "run `git lfs install` and `git lfs pull` in its folder, or download it with `model-pool pull`",
        });
    }
    let begin = text.get(..15).unwrap_or(text).to_ascii_lowercase();
    let is_page = ["<!doctype html", "<html", "<?xml", "<head"];
    let is_page = is_page.iter().any(|tag| begin.starts_with(tag));
    is_page.then(|| FileError::StandIn {
        path: path.to_owned(),
        problem: format!("it is a web page ({length} bytes), not a model: the link leads to a web page, or requires a login"),
        advice: "download the file itself, with `model-pool pull` or from an address with /resolve/",
    })
}

#[cfg(test)]
mod tests {
    use crate::gguf::Gguf;
    use crate::weights_of;

    #[test]
    fn git_lfs_pointers_and_html_pages_are_refused_with_advice() {
        let folder = tempfile::tempdir().expect("a folder");
        let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 12345\n";
        let page = "\n<!DOCTYPE html><html><body>Log in</body></html>";
        for (text, parts) in [
            (pointer, ["Git LFS pointer", "12345 bytes", "git lfs pull"]),
            (page, ["web page", "login", "/resolve/"]),
        ] {
            let gguf = folder.path().join("m.gguf");
            std::fs::write(&gguf, text).expect("written");
            let safetensors = folder.path().join("m.safetensors");
            std::fs::write(&safetensors, text).expect("written");
            let errors = [
                Gguf::read(&gguf).expect_err("no weights").to_string(),
                weights_of(&safetensors)
                    .expect_err("no weights")
                    .to_string(),
            ];
            for error in errors {
                for part in parts {
                    assert!(error.contains(part), "{part}: {error}");
                }
            }
        }
    }
}
