//! Reads secrets from externally created files, such as a mounted Kubernetes Secret.

use std::io::Read as _;
use std::path::Path;

use store::KeyText;

const FILE_BYTES_MAX: u64 = 4096;

/// Reads the secret, without the line end.
///
/// # Errors
/// A description of the problem, without any part of the file.
pub fn secret_in(file: &Path) -> Result<KeyText, String> {
    let shown = file.display();
    let failed = |error: std::io::Error| format!("{shown} cannot be read: {error}");
    let mut text = String::new();
    let opened = std::fs::File::open(file).map_err(failed)?;
    let read = opened.take(FILE_BYTES_MAX).read_to_string(&mut text);
    read.map_err(failed)?;
    KeyText::given(text.trim()).ok_or_else(|| {
        format!(
            "{shown} contains no secret of 32 to 256 letters, digits and signs; create one with `openssl rand -hex 32`"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_must_be_long_and_without_spaces() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("secret");
        let read = |text: &str| {
            std::fs::write(&file, text).expect("written");
            secret_in(&file).map(|secret| secret.reveal().to_owned())
        };
        let secret = "0123456789abcdef".repeat(2);
        assert_eq!(read(&format!("{secret}\n")), Ok(secret.clone()));
        for wrong in [
            "",
            "short-secret",
            &secret.replace('7', " "),
            &secret.repeat(9),
        ] {
            let error = read(wrong).expect_err("no secret");
            assert!(error.contains("openssl rand"), "{error}");
            assert!(wrong.is_empty() || !error.contains(wrong), "{error}");
        }
        assert!(secret_in(&folder.path().join("none")).is_err());
    }
}
