//! Finds the server and the key: from flags, then from the environment, then from the key file of a pool on this machine. Reads no
//! other file, and sends the key only to the server.

use std::io;
use std::path::{Path, PathBuf};

use reqwest::Url;

use crate::cli::{Cli, Key};
use crate::error::CommandError;

/// The default path of a pool's admin key, relative to its working directory.
const DEFAULT_KEY_FILE: &str = "data/admin.key";

/// The server and the key for it.
#[derive(Debug)]
pub struct Settings {
    /// With the base path, without a trailing slash: `http://127.0.0.1:8080/llm`.
    pub base: String,
    /// True if the server is on this machine.
    pub local: bool,
    pub key: Option<Key>,
    /// Certificates to trust in addition to the system's authorities.
    pub ca_file: Option<PathBuf>,
    /// The source of the key, or the reason that no key was sent. For the message about a refused key.
    pub key_story: String,
}

impl Settings {
    /// Combines flags, environment and key file.
    ///
    /// # Errors
    /// `CommandError::Usage` if the URL is invalid or a named key file cannot be read.
    pub fn find(cli: &Cli) -> Result<Settings, CommandError> {
        let (base, local) = base_of(&cli.server)?;
        let explicit = cli.key.clone().filter(|key| !key.0.is_empty());
        let (key, key_story) = match (explicit, &cli.key_file) {
            (Some(key), _) => (
                Some(key),
                "the key from --key or MODEL_POOL_ADMIN_KEY was sent".to_owned(),
            ),
            (None, Some(file)) => {
                let key = read_key(file).map_err(|source| {
                    CommandError::Usage(format!(
                        "cannot read the key file {} (--key-file or MODEL_POOL_ADMIN_KEY_FILE): {source}",
                        file.display()
                    ))
                })?;
                (
                    Some(key),
                    format!("the key in {} was sent", file.display()),
                )
            }
            (None, None) if local => default_key(Path::new(DEFAULT_KEY_FILE)),
            (None, None) => (
                None,
                "no key was sent: neither --key, MODEL_POOL_ADMIN_KEY nor MODEL_POOL_ADMIN_KEY_FILE is set, \
                 and ./data/admin.key is only used for a server on this machine"
                    .to_owned(),
            ),
        };
        Ok(Settings {
            base,
            local,
            key,
            ca_file: cli
                .ca_file
                .clone()
                .filter(|file| !file.as_os_str().is_empty()),
            key_story,
        })
    }
}

/// The key of a pool on this machine. A missing key is not an error: the server may not require one.
fn default_key(file: &Path) -> (Option<Key>, String) {
    match read_key(file) {
        Ok(key) => (
            Some(key),
            format!("the key in ./{} was sent", file.display()),
        ),
        Err(error) => (
            None,
            format!(
                "no key was sent: --key, MODEL_POOL_ADMIN_KEY and MODEL_POOL_ADMIN_KEY_FILE are not set, \
                 and ./{} cannot be read ({error}). Run this in the server's working directory \
                 as the server's user, or set one of them",
                file.display()
            ),
        ),
    }
}

fn read_key(file: &Path) -> io::Result<Key> {
    let text = std::fs::read_to_string(PathBuf::from(file))?;
    match Key::from(text.as_str()) {
        key if key.0.is_empty() => Err(io::Error::new(io::ErrorKind::InvalidData, "it is empty")),
        key => Ok(key),
    }
}

/// The base URL of the API, and true if it is on this machine.
fn base_of(server: &str) -> Result<(String, bool), CommandError> {
    let wrong = |why: String| {
        CommandError::Usage(format!(
            "--server (MODEL_POOL_SERVER) {server:?} is not a URL: {why}; write it as http://host:8080"
        ))
    };
    let text = if server.contains("://") {
        server.to_owned()
    } else {
        format!("http://{server}")
    };
    let url = Url::parse(&text).map_err(|error| wrong(error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong("the scheme must be http or https".to_owned()));
    }
    let host = url
        .host_str()
        .ok_or_else(|| wrong("it has no host".to_owned()))?;
    let local = host == "localhost"
        || host
            .trim_matches(['[', ']'])
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback());
    let path = match url.path().trim_end_matches('/') {
        "" => "/llm",
        path => path,
    };
    Ok((
        format!("{}{path}", url.origin().ascii_serialization()),
        local,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_path_is_added_unless_the_address_has_one() {
        let base = |server| base_of(server).expect(server);
        assert_eq!(
            base("http://127.0.0.1:8080"),
            ("http://127.0.0.1:8080/llm".into(), true)
        );
        assert_eq!(
            base("gpu.example:9000/"),
            ("http://gpu.example:9000/llm".into(), false)
        );
        assert_eq!(
            base("https://gpu.example/pool/"),
            ("https://gpu.example/pool".into(), false)
        );
        assert_eq!(base("http://[::1]:80"), ("http://[::1]/llm".into(), true));
    }

    #[test]
    fn an_invalid_address_is_refused_with_its_text() {
        for server in ["", "ftp://h", "http://", "http://h:notaport"] {
            let failure = base_of(server).expect_err(server);
            assert_eq!(failure.exit_status(), 2);
            assert!(failure.to_string().contains(&format!("{server:?}")));
        }
    }

    #[test]
    fn an_empty_key_file_is_not_a_key() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("admin.key");
        std::fs::write(&file, " \n").expect("written");
        assert!(read_key(&file).is_err());
        std::fs::write(&file, "mp-1\n").expect("written");
        assert_eq!(read_key(&file).expect("read"), Key("mp-1".to_owned()));
    }
}
