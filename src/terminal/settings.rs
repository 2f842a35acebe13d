//! Finds the server and the keys: from options first, then the environment, then this machine's configuration. The admin key is
//! used only to register models of the hub.

use std::io;
use std::path::{Path, PathBuf};

use reqwest::Url;

use super::args::{Key, ServerArgs};
use super::error::CommandError;

/// The settings of this machine's own pool, from its configuration.
#[derive(Clone, Debug)]
pub struct Defaults {
    /// The server's URL.
    pub server: String,
    pub admin_key_file: PathBuf,
}

impl Default for Defaults {
    fn default() -> Defaults {
        Defaults {
            server: "http://127.0.0.1:8080".to_owned(),
            admin_key_file: PathBuf::from("data/admin.key"),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Settings {
    /// The URL with the base path, without a trailing slash: `http://127.0.0.1:8080/llm`.
    pub base: String,
    /// The server runs on this machine.
    pub is_local: bool,
    pub key: Option<Key>,
    /// Certificates to trust in addition to the system's authorities.
    pub ca_file: Option<PathBuf>,
    /// The origin of the key, or the reason no key was sent, with advice.
    pub key_story: String,
    pub admin_key: Option<Key>,
}

impl Settings {
    /// # Errors
    /// `CommandError::Usage` if the URL is invalid, or a named key file cannot be read.
    pub fn find(args: &ServerArgs, defaults: &Defaults) -> Result<Settings, CommandError> {
        let server = args.server.as_deref().unwrap_or(&defaults.server);
        let (base, is_local) = base_of(server)?;
        let key_option = args.key.clone().filter(|key| !key.0.is_empty());
        let (key, key_story) = match (key_option, &args.key_file) {
            (Some(key), _) => (
                Some(key),
                "The key from --key or MODEL_POOL_KEY was sent; check it, or ask an administrator for a new one."
                    .to_owned(),
            ),
            (None, Some(file)) => {
                let key = read_key(file).map_err(|error| {
                    CommandError::Usage(format!(
                        "cannot read the key file {} (--key-file or MODEL_POOL_KEY_FILE): {error}",
                        file.display()
                    ))
                })?;
                let story = format!("The key in {} was sent; check it, or ask an administrator for a new one.", file.display());
                (Some(key), story)
            }
            (None, None) => (
                None,
                "No key was sent. Set MODEL_POOL_KEY, or MODEL_POOL_KEY_FILE to a file with the key; an administrator makes one with `admin-client keys create NAME --role user`."
                    .to_owned(),
            ),
        };
        let admin_file = is_local.then_some(defaults.admin_key_file.as_path());
        Ok(Settings {
            admin_key: admin_key(admin_file).or_else(|| key.clone()),
            base,
            is_local,
            key,
            ca_file: args
                .ca_file
                .clone()
                .filter(|file| !file.as_os_str().is_empty()),
            key_story: args.key_story.clone().unwrap_or(key_story),
        })
    }
}

/// Finds the key like admin-client does. Without one, the user's own key may be an administrator's.
fn admin_key(file: Option<&Path>) -> Option<Key> {
    let variable = |name: &str| {
        std::env::var(name)
            .ok()
            .filter(|value| !value.trim().is_empty())
    };
    if let Some(text) = variable("MODEL_POOL_ADMIN_KEY") {
        return Some(Key::from(text.as_str()));
    }
    let named = variable("MODEL_POOL_ADMIN_KEY_FILE").map(PathBuf::from);
    read_key(named.as_deref().or(file)?).ok()
}

fn read_key(file: &Path) -> io::Result<Key> {
    let text = std::fs::read_to_string(file)?;
    match Key::from(text.as_str()) {
        key if key.0.is_empty() => Err(io::Error::new(io::ErrorKind::InvalidData, "it is empty")),
        key => Ok(key),
    }
}

/// The base URL of the API, and whether it is on this machine.
fn base_of(server: &str) -> Result<(String, bool), CommandError> {
    let wrong = |why: &str| {
        CommandError::Usage(format!(
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
        return Err(wrong("it has a user or a password; set MODEL_POOL_KEY"));
    }
    let host = url.host_str().ok_or_else(|| wrong("it has no host"))?;
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    let is_local = host == "localhost" || address.is_ok_and(|address| address.is_loopback());
    let path = match url.path().trim_end_matches('/') {
        "" => "/llm",
        // The address for OpenAI clients.
        path => path.strip_suffix("/v1").unwrap_or(path),
    };
    let origin = url.origin().ascii_serialization();
    Ok((format!("{origin}{path}"), is_local))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(server: &str) -> ServerArgs {
        ServerArgs {
            ca_file: None,
            server: Some(server.to_owned()),
            key: None,
            key_file: None,
            config: None,
            key_story: None,
        }
    }

    fn base(server: &str) -> (String, bool) {
        base_of(server).expect(server)
    }

    #[test]
    fn the_base_path_is_added_unless_the_address_has_one() {
        assert_eq!(
            base("gpu.example:9000/"),
            ("http://gpu.example:9000/llm".to_owned(), false)
        );
        assert_eq!(
            base("https://gpu.example/pool/"),
            ("https://gpu.example/pool".to_owned(), false)
        );
        assert_eq!(
            base("http://[::1]:80"),
            ("http://[::1]/llm".to_owned(), true)
        );
        assert_eq!(
            base("http://localhost:1/llm/v1").0,
            "http://localhost:1/llm"
        );
        assert_eq!(base("http://localhost:1/v1").0, "http://localhost:1");
    }

    #[test]
    fn an_address_that_is_none_is_wrong_usage() {
        for server in [
            "",
            "ftp://h",
            "http://",
            "http://h:port",
            "http://ann:secret@h",
        ] {
            let failure = base_of(server).expect_err(server);
            assert_eq!(failure.exit_status(), 2, "{server}");
        }
    }

    #[test]
    fn a_key_comes_from_the_option_or_its_file() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("key");
        std::fs::write(&file, "mp-1\n").expect("written");
        let mut args = args("http://h:1");
        args.key_file = Some(file.clone());
        let defaults = Defaults::default();
        let found = Settings::find(&args, &defaults).expect("found");
        assert_eq!(found.key, Some(Key("mp-1".to_owned())));
        args.key = Some(Key("mp-2".to_owned()));
        let found = Settings::find(&args, &defaults).expect("found");
        assert_eq!(found.key, Some(Key("mp-2".to_owned())));
        args.key = None;
        std::fs::write(&file, " \n").expect("written");
        let failure = Settings::find(&args, &defaults).expect_err("an empty file");
        assert_eq!(failure.exit_status(), 2);
    }
}
