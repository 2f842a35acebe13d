//! Finds the server and the key: from options and their environment variables first, then from the key file of a pool on this
//! machine. The key is sent only to this server.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use reqwest::Url;

use crate::error::ClientError;

/// The default path of a pool's admin key, relative to its working directory.
pub const LOCAL_KEY_FILE: &str = "data/admin.key";

/// A secret that never shows in `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(pub String);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(hidden)")
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Key {
        Key(text.trim().to_owned())
    }
}

/// The kind of key that a program sends. Its variables and the advice for a refused key depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    User,
    Admin,
}

impl KeyKind {
    /// The variable with the key, and the variable with the path of its file.
    pub const fn variables(self) -> [&'static str; 2] {
        match self {
            KeyKind::User => ["MODEL_POOL_KEY", "MODEL_POOL_KEY_FILE"],
            KeyKind::Admin => ["MODEL_POOL_ADMIN_KEY", "MODEL_POOL_ADMIN_KEY_FILE"],
        }
    }
}

/// The server options of a command line. Environment variables are applied already.
#[derive(Clone, Copy, Debug)]
pub struct ServerOptions<'a> {
    pub server: &'a str,
    pub key: Option<&'a Key>,
    pub key_file: Option<&'a Path>,
    pub ca_file: Option<&'a Path>,
}

/// The server and the key for it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The URL with the base path, without a trailing slash: `http://127.0.0.1:8080/llm`.
    pub base: String,
    /// True if the server is on this machine.
    pub is_local: bool,
    pub key: Option<Key>,
    /// Certificates to trust in addition to the system's authorities.
    pub ca_file: Option<PathBuf>,
    /// The origin of the key, or the reason that no key was sent, with advice. For the message about a refused key.
    pub key_story: String,
}

impl Settings {
    /// # Errors
    /// `ClientError::Usage` if the URL is invalid, or a named key file cannot be read.
    pub fn find(options: ServerOptions<'_>, kind: KeyKind) -> Result<Settings, ClientError> {
        let [variable, file_variable] = kind.variables();
        let (base, is_local) = base_of(options.server)?;
        let explicit = options.key.filter(|key| !key.0.is_empty());
        let (key, origin) = match (explicit, options.key_file, kind) {
            (Some(key), ..) => (
                Some(key.clone()),
                format!("The key from --key or {variable} was sent"),
            ),
            (None, Some(file), _) => {
                let key = key_in(file).map_err(|error| {
                    ClientError::Usage(format!(
                        "cannot read the key file {} (--key-file or {file_variable}): {error}",
                        file.display()
                    ))
                })?;
                (Some(key), format!("The key in {} was sent", file.display()))
            }
            (None, None, KeyKind::User) => (None, "No key was sent".to_owned()),
            (None, None, KeyKind::Admin) if is_local => key_of_this_machine(kind),
            (None, None, KeyKind::Admin) => (
                None,
                format!(
                    "No key was sent: neither --key, {variable} nor {file_variable} is set, \
                     and ./{LOCAL_KEY_FILE} is only used for a server on this machine"
                ),
            ),
        };
        let advice = match (kind, &key) {
            (KeyKind::Admin, _) => ".",
            (KeyKind::User, Some(_)) => "; check it, or ask an administrator for a new one.",
            (KeyKind::User, None) => {
                ". Set MODEL_POOL_KEY, or MODEL_POOL_KEY_FILE to a file with the key; an administrator makes one with `admin-client keys create NAME --role user`."
            }
        };
        Ok(Settings {
            base,
            is_local,
            key,
            ca_file: options
                .ca_file
                .filter(|file| !file.as_os_str().is_empty())
                .map(Path::to_owned),
            key_story: origin + advice,
        })
    }
}

/// The admin key of a pool on this machine. A missing key is not an error: the server may not require one.
fn key_of_this_machine(kind: KeyKind) -> (Option<Key>, String) {
    let [variable, file_variable] = kind.variables();
    match key_in(Path::new(LOCAL_KEY_FILE)) {
        Ok(key) => (Some(key), format!("The key in ./{LOCAL_KEY_FILE} was sent")),
        Err(error) => (
            None,
            format!(
                "No key was sent: --key, {variable} and {file_variable} are not set, \
                 and ./{LOCAL_KEY_FILE} cannot be read ({error}). Run this in the server's working directory \
                 as the server's user, or set one of them"
            ),
        ),
    }
}

/// Reads a key file.
///
/// # Errors
/// If the file cannot be read, or is empty.
pub fn key_in(file: &Path) -> io::Result<Key> {
    let text = std::fs::read_to_string(file)?;
    match Key::from(text.as_str()) {
        key if key.0.is_empty() => Err(io::Error::new(io::ErrorKind::InvalidData, "it is empty")),
        key => Ok(key),
    }
}

/// The base URL of the API, and true if it is on this machine.
fn base_of(server: &str) -> Result<(String, bool), ClientError> {
    let wrong = |why: &str| {
        ClientError::Usage(format!(
            "--server (MODEL_POOL_SERVER) {server:?} is not a URL: {why}; write it as http://host:8080"
        ))
    };
    let text = if server.contains("://") {
        server.to_owned()
    } else {
        format!("http://{server}")
    };
    let url = Url::parse(&text).map_err(|error| wrong(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong("the scheme must be http or https"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(ClientError::Usage(
            "--server (MODEL_POOL_SERVER) has a user or a password; give a key instead, with --key-file"
                .to_owned(),
        ));
    }
    let host = url.host_str().ok_or_else(|| wrong("it has no host"))?;
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    let is_local = host == "localhost" || address.is_ok_and(|address| address.is_loopback());
    let path = match url.path().trim_end_matches('/') {
        "" => "/llm",
        // The URL for OpenAI clients.
        path => path.strip_suffix("/v1").unwrap_or(path),
    };
    let origin = url.origin().ascii_serialization();
    Ok((format!("{origin}{path}"), is_local))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_path_is_added_unless_the_address_has_one() {
        for (server, base, is_local) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080/llm", true),
            ("gpu.example:9000/", "http://gpu.example:9000/llm", false),
            (
                "https://gpu.example/pool/",
                "https://gpu.example/pool",
                false,
            ),
            ("http://[::1]:80", "http://[::1]/llm", true),
            ("http://localhost:1/llm/v1", "http://localhost:1/llm", true),
            ("http://localhost:1/v1", "http://localhost:1", true),
        ] {
            assert_eq!(base_of(server).expect(server), (base.to_owned(), is_local));
        }
    }

    #[test]
    fn an_invalid_address_is_refused_with_its_text_but_not_with_a_password() {
        for server in ["", "ftp://h", "http://", "http://h:notaport"] {
            let failure = base_of(server).expect_err(server);
            assert_eq!(failure.exit_status(), 2);
            assert!(failure.to_string().contains(&format!("{server:?}")));
        }
        let failure = base_of("http://ann:secret@h").expect_err("a password");
        assert_eq!(failure.exit_status(), 2);
        assert!(!failure.to_string().contains("secret"), "{failure}");
    }

    #[test]
    fn a_key_is_read_from_the_option_or_its_non_empty_file() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("key");
        std::fs::write(&file, "mp-1\n").expect("written");
        let named = Key::from("mp-2");
        let find = |key| {
            let options = ServerOptions {
                server: "http://h:1",
                key,
                key_file: Some(&file),
                ca_file: None,
            };
            Settings::find(options, KeyKind::User)
        };
        assert_eq!(find(None).expect("found").key, Some(Key::from("mp-1")));
        assert_eq!(find(Some(&named)).expect("found").key, Some(named.clone()));
        std::fs::write(&file, " \n").expect("written");
        assert_eq!(find(None).expect_err("empty").exit_status(), 2);
    }
}
