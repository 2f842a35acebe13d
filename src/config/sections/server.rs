//! The `server` section: the listen address, what the service accepts from the network, and its timeouts. Values are checked here;
//! named files are not opened.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use pool::{Bytes, Span};

use crate::problems::Problem;
use crate::values::units::written_as_text;
use crate::values::{BasePath, Length, Listen, ParseValueError, Size, SocketMode, WebOrigin};

/// The HTTP server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServerSection {
    /// Address and port, or `unix:` and the path of a socket. Port 0 takes any free port.
    pub listen: Listen,
    /// The permissions of a Unix socket, in octal; null: `660` with a `socket_group`, otherwise `600`.
    pub socket_mode: Option<SocketMode>,
    /// The group of a Unix socket, by name in /etc/group or by number; null: the group of the process.
    pub socket_group: Option<String>,
    /// The prefix of every route; `/v1` and `/metrics` also exist without it.
    pub base_path: BasePath,
    /// Maximum size of a request body, 1KiB to 1GiB; a larger one gets 413.
    pub body_limit: Size,
    /// Interval of comment lines to a streaming client that waits for a load, 100ms to 10m (Q2).
    pub keep_alive_comment: Length,
    /// Names by which clients call this service, without ports. On a loopback address, `localhost` and the loopback addresses are
    /// always allowed and requests with any other name are refused; on other addresses an empty list allows any name.
    pub hosts: Vec<HostName>,
    /// Serve over TLS with this certificate; null: without TLS.
    pub tls: Option<TlsFiles>,
    /// Web origins that may call the inference routes; null: none.
    pub cors: Option<CorsSection>,
    /// Proxies, by address or network, whose `X-Forwarded-For` and `Forwarded` headers are trusted.
    pub trusted_proxies: Vec<Network>,
    /// One JSON line per request: `off`, `stderr`, or the path of a file.
    pub access_log: AccessLog,
    /// The size at which that file is renamed to `….1`, replacing the previous one; 0B: never.
    pub access_log_max: Size,
    /// Also write metrics under the names of vLLM (`vllm:num_requests_waiting` and others), with the label `model_name`.
    pub vllm_metrics: bool,
    /// Maximum simultaneous connections, 1 to 1000000; further ones get 503 and are closed.
    pub connections_max: u32,
    /// The same limit per address, with IPv6 per `/64` network; an address never has more than half of what the others leave.
    /// Trusted proxies and this machine are exempt.
    pub connections_per_address: Option<u32>,
    /// Time that a connection without a request stays open, 1s or more.
    pub idle_timeout: Length,
    /// Time limit for receiving a request body, 100ms or more, plus one second per 16 KiB of a large body. A slower one gets 408.
    pub body_timeout: Length,
    /// Memory for the bodies of all requests together, at least `body_limit`.
    pub bodies_memory: Size,
    /// Maximum size of all recordings in engines together, at least twice `body_limit`; a caller has at most half.
    pub recordings_max: Size,
    /// Time after which a client that stops reading its response is disconnected, 100ms or more; 10 s if other requests wait for
    /// the model.
    pub write_timeout: Length,
    /// Maximum completions of a request, 1 to 100000: its prompts times `n` or `best_of`.
    pub sequences_max: u32,
    /// Long bodies to parse simultaneously, 1 to 256; null: half the number of cores.
    pub reading_workers: Option<u32>,
    /// The same for checking texts against the rule of a model's file (`pool_config.validation`).
    pub validation_workers: Option<u32>,
    /// The same for counting the tokens of texts, where that rule limits tokens.
    pub token_workers: Option<u32>,
}

impl Default for ServerSection {
    fn default() -> ServerSection {
        ServerSection {
            listen: Listen::default(),
            socket_mode: None,
            socket_group: None,
            base_path: BasePath::standard(),
            body_limit: Size(Bytes(10 * Bytes::MIB)),
            keep_alive_comment: Length::from_secs(10),
            hosts: Vec::new(),
            tls: None,
            cors: None,
            trusted_proxies: Vec::new(),
            access_log: AccessLog::Off,
            access_log_max: Size(Bytes(Bytes::GIB)),
            vllm_metrics: false,
            connections_max: 20_000,
            connections_per_address: None,
            idle_timeout: Length::from_secs(75),
            body_timeout: Length::from_secs(30),
            bodies_memory: Size(Bytes(256 * Bytes::MIB)),
            recordings_max: Size(Bytes(4 * Bytes::GIB)),
            write_timeout: Length::from_secs(300),
            sequences_max: 256,
            reading_workers: None,
            validation_workers: None,
            token_workers: None,
        }
    }
}

/// A certificate and its key. Both are reloaded when they change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// The certificate in PEM, followed by its issuers' certificates.
    pub cert: PathBuf,
    /// Its private key in PEM.
    pub key: PathBuf,
}

/// Web pages that may call the inference routes from a browser.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CorsSection {
    /// Origins such as `https://lab.example.org`, `http://localhost:*` for every port, `app://obsidian.md` or
    /// `chrome-extension://ID` for a desktop program or an extension, `vscode-webview://*`; or only `*` for all. Cookies are never
    /// allowed.
    pub origins: Vec<WebOrigin>,
    /// Time that a browser may cache the permission.
    #[serde(default = "cors_max_age")]
    pub max_age: Length,
}

impl CorsSection {
    /// Returns true if pages of this origin are listed.
    pub fn allows(&self, origin: &str) -> bool {
        self.origins.iter().any(|listed| listed.matches(origin))
    }
}

fn cors_max_age() -> Length {
    Length::from_secs(3600)
}

/// A host name of letters, digits, `-` and `.`, or an IP address. In lower case, without a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostName(String);

impl HostName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for HostName {
    type Err = ParseValueError;

    fn from_str(text: &str) -> Result<HostName, ParseValueError> {
        let text = text.trim().trim_end_matches('.').to_ascii_lowercase();
        let bare = text.trim_start_matches('[').trim_end_matches(']');
        if let Ok(address) = bare.parse::<IpAddr>() {
            return Ok(HostName(address.to_string()));
        }
        let label = |label: &str| {
            (1..=63).contains(&label.len())
                && label
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        };
        if text.len() <= 253 && text.split('.').all(label) {
            Ok(HostName(text))
        } else {
            Err(ParseValueError(format!(
                "`{text}` is not a host name; write one like llm.example.org, without a port and without http://"
            )))
        }
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

written_as_text!(
    HostName,
    "a host name, such as \"llm.example.org\"",
    ["llm.example.org"]
);

/// An address or a network of addresses: `10.0.0.7`, `10.0.0.0/8`, `fd00::/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(ipnet::IpNet);

impl Network {
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

impl FromStr for Network {
    type Err = ParseValueError;

    fn from_str(text: &str) -> Result<Network, ParseValueError> {
        let text = text.trim();
        let one = || text.parse::<IpAddr>().ok().map(ipnet::IpNet::from);
        let network = text.parse::<ipnet::IpNet>().ok().or_else(one);
        network.map(|network| Network(network.trunc())).ok_or_else(|| {
            ParseValueError(format!(
                "`{text}` is neither an address nor a network; write one like 10.0.0.7, 10.0.0.0/8 or fd00::/8"
            ))
        })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.prefix_len() == self.0.max_prefix_len() {
            self.0.addr().fmt(f)
        } else {
            self.0.fmt(f)
        }
    }
}

written_as_text!(
    Network,
    "an address or a network such as \"10.0.0.0/8\"",
    ["10.0.0.7", "10.0.0.0/8", "fd00::/8"]
);

/// The destination of the access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLog {
    Off,
    Stderr,
    File(PathBuf),
}

impl FromStr for AccessLog {
    type Err = ParseValueError;

    fn from_str(text: &str) -> Result<AccessLog, ParseValueError> {
        match text.trim() {
            "off" => Ok(AccessLog::Off),
            "stderr" => Ok(AccessLog::Stderr),
            "" => Err(ParseValueError(
                "the access log is empty; write off, stderr, or the path of a file".to_owned(),
            )),
            path => Ok(AccessLog::File(PathBuf::from(path))),
        }
    }
}

impl fmt::Display for AccessLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AccessLog::Off => f.write_str("off"),
            AccessLog::Stderr => f.write_str("stderr"),
            AccessLog::File(path) => path.display().fmt(f),
        }
    }
}

written_as_text!(
    AccessLog,
    "off, stderr, or the path of a file",
    ["off", "stderr", "/var/log/model-pool/access.log"]
);

const CONNECTIONS_MAX: u32 = 1_000_000;
const SEQUENCES_MAX: u32 = 100_000;
const WORKERS_MAX: u32 = 256;
const IDLE_MIN: Span = Span::from_secs(1);
const PATIENCE_MIN: Span = Span(100);
/// Browsers do not cache the permission for longer.
const CORS_AGE_MAX: Span = Span::from_secs(86_400);

/// All problems of this section.
pub(crate) fn problems(server: &ServerSection) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut unless = |holds: bool, key: &str, message: String| {
        if !holds {
            problems.push(Problem::new(format!("server.{key}"), message));
        }
    };
    let most = server.connections_max;
    unless(
        (1..=CONNECTIONS_MAX).contains(&most),
        "connections_max",
        format!("is {most}; allowed: 1 to {CONNECTIONS_MAX}"),
    );
    let sequences = server.sequences_max;
    unless(
        (1..=SEQUENCES_MAX).contains(&sequences),
        "sequences_max",
        format!("is {sequences}; allowed: 1 to {SEQUENCES_MAX}"),
    );
    unless(
        server.connections_per_address != Some(0),
        "connections_per_address",
        "is 0; allowed: 1 and more, or null".to_owned(),
    );
    for (key, workers) in [
        ("reading_workers", server.reading_workers),
        ("validation_workers", server.validation_workers),
        ("token_workers", server.token_workers),
    ] {
        let count = workers.unwrap_or(1);
        unless(
            (1..=WORKERS_MAX).contains(&count),
            key,
            format!("is {count}; allowed: 1 to {WORKERS_MAX}, or null"),
        );
    }
    let idle = server.idle_timeout;
    unless(
        idle.0 >= IDLE_MIN,
        "idle_timeout",
        format!("is {idle}; allowed: 1s and more"),
    );
    for (key, length) in [
        ("body_timeout", server.body_timeout),
        ("write_timeout", server.write_timeout),
    ] {
        unless(
            length.0 >= PATIENCE_MIN,
            key,
            format!("is {length}; allowed: 100ms and more"),
        );
    }
    let (memory, one) = (server.bodies_memory, server.body_limit);
    unless(
        memory.0.0 / 4 * 3 >= one.0.0,
        "bodies_memory",
        format!(
            "is {memory}, three quarters of which are for large bodies, but server.body_limit is {one}; one body must fit"
        ),
    );
    let recordings = server.recordings_max;
    unless(
        recordings.0.0 / 2 >= one.0.0,
        "recordings_max",
        format!(
            "is {recordings}, half of which is for one caller, but server.body_limit is {one}; one recording must fit"
        ),
    );
    let is_socket = matches!(server.listen, Listen::Unix(_));
    for (key, is_set) in [
        ("socket_mode", server.socket_mode.is_some()),
        ("socket_group", server.socket_group.is_some()),
    ] {
        unless(
            is_socket || !is_set,
            key,
            format!(
                "has no effect, because server.listen is {}; write unix: and a path there, or leave it out",
                server.listen
            ),
        );
    }
    if let Some(cors) = &server.cors {
        unless(
            !cors.origins.is_empty(),
            "cors.origins",
            "is empty; list origins such as https://lab.example.org, or leave server.cors out"
                .to_owned(),
        );
        unless(
            cors.origins.len() == 1 || !cors.origins.iter().any(WebOrigin::is_any),
            "cors.origins",
            "lists `*` and other origins; write only `*`, because it allows all".to_owned(),
        );
        let age = cors.max_age;
        unless(
            age.0 <= CORS_AGE_MAX,
            "cors.max_age",
            format!("is {age}; allowed: 0s to 1d"),
        );
    }
    problems
}

#[cfg(test)]
mod tests;
