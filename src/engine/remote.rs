//! An endpoint that somebody else runs: where it is, what goes with each request to it, and the life of
//! a replica that has no process. It connects and asks; it starts nothing, follows no redirect, and
//! asks for no token that nobody wanted. The key is read when the replica begins and shown to nobody.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::rustls::pki_types::ServerName;

use super::fault::explain;
use super::health::{self, is_success};
use super::liveness::until_dead;
use super::log::{LogStream, ReplicaLog};
use super::{Endpoint, ExitReport, Failure, Launch, Report};
use crate::catalog::{KeySource, RemoteRecipe, RemoteUrl};

const CONNECT_MAX: Duration = Duration::from_secs(10);
/// A health route elsewhere may have to ask others.
const QUESTION_MAX: Duration = Duration::from_secs(15);
/// Attempts that reach nobody, before it counts as down.
const ATTEMPTS_MAX: u32 = 3;
const PAUSE: Duration = Duration::from_millis(500);
const KEY_FILE_BYTES_MAX: u64 = 64 << 10;
const USER_AGENT_IS: HeaderValue =
    HeaderValue::from_static(concat!("model-pool/", env!("CARGO_PKG_VERSION")));
/// The path under which the gateway knows OpenAI's routes.
const OPENAI: &str = "/v1";
/// Where clouds give their machines' credentials to whoever asks, beside the link-local networks.
const METADATA: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Hidden(String);

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"…\"")
    }
}

/// Where it answers, and what goes with every request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Remote {
    /// For people.
    shown: String,
    https: bool,
    host: String,
    port: u16,
    prefix: String,
    only_loopback: bool,
    key: Option<Hidden>,
    headers: BTreeMap<String, Hidden>,
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl Remote {
    fn of(recipe: &RemoteRecipe, key: Option<String>) -> Remote {
        let RemoteUrl {
            https,
            host,
            port,
            prefix,
        } = recipe.url.clone();
        let headers = recipe.headers.iter();
        Remote {
            shown: recipe.url.to_string(),
            https,
            host,
            port,
            prefix,
            only_loopback: recipe.only_loopback,
            key: key.map(Hidden),
            headers: headers
                .map(|(name, value)| (name.clone(), Hidden(value.0.clone())))
                .collect(),
        }
    }

    /// The path there of one of OpenAI's routes, such as `/v1/completions`, or of one below the
    /// prefix.
    pub fn path(&self, path: &str) -> String {
        let below = match path.strip_prefix(OPENAI) {
            Some(rest) if rest.starts_with('/') => rest,
            _ => path,
        };
        format!("{}{below}", self.prefix)
    }

    /// What every request carries: the host, the key and the further headers.
    pub fn headers(&self) -> HeaderMap {
        let mut map = HeaderMap::new();
        let default = if self.https { 443 } else { 80 };
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        let host = match self.port == default {
            true => host,
            false => format!("{host}:{}", self.port),
        };
        map.insert(USER_AGENT, USER_AGENT_IS);
        map.extend(HeaderValue::from_str(&host).map(|host| (HOST, host)));
        for (name, value) in &self.headers {
            let value = HeaderValue::from_str(&value.0);
            if let (Ok(name), Ok(mut value)) = (HeaderName::from_bytes(name.as_bytes()), value) {
                value.set_sensitive(true);
                map.insert(name, value);
            }
        }
        let key = self.key.as_ref().map(|key| format!("Bearer {}", key.0));
        if let Some(Ok(mut key)) = key.map(|key| HeaderValue::from_str(&key)) {
            key.set_sensitive(true);
            map.insert(AUTHORIZATION, key);
        }
        map
    }

    /// The text without the key and without the values of further headers, which a server may repeat.
    pub fn masked(&self, text: &str) -> String {
        let values = self.key.iter().chain(self.headers.values());
        let long = values.filter(|value| value.0.len() >= SECRET_BYTES_MIN);
        long.fold(text.to_owned(), |text, value| {
            text.replace(&value.0, "[masked]")
        })
    }

    /// A connection to one of the addresses that the name stands for now.
    pub(super) async fn connect(&self) -> io::Result<TcpStream> {
        let fail = |kind, what: String| Err(io::Error::new(kind, what));
        let named = (self.host.as_str(), self.port);
        let found = match timeout(CONNECT_MAX, tokio::net::lookup_host(named)).await {
            Ok(Ok(found)) => found.collect::<Vec<SocketAddr>>(),
            Ok(Err(error)) => {
                let what = format!("the name {} is not found: {error}", self.host);
                return fail(io::ErrorKind::HostUnreachable, what);
            }
            Err(_) => {
                let what = format!("no name server answers for {}", self.host);
                return fail(io::ErrorKind::TimedOut, what);
            }
        };
        let mut last = io::Error::new(
            io::ErrorKind::HostUnreachable,
            format!("the name {} has no address", self.host),
        );
        for address in found {
            if let Some(why) = self.forbidden(address.ip()) {
                last = io::Error::new(io::ErrorKind::PermissionDenied, why);
                continue;
            }
            match timeout(CONNECT_MAX, TcpStream::connect(address)).await {
                // On this machine: the port of a server that has gone was given to this connection.
                Ok(Ok(stream)) if stream.local_addr()? == stream.peer_addr()? => {
                    stream.set_zero_linger()?;
                    let what = format!("nobody listens on {address}");
                    last = io::Error::new(io::ErrorKind::ConnectionRefused, what);
                }
                Ok(Ok(stream)) => {
                    stream.set_nodelay(true)?;
                    return Ok(stream);
                }
                Ok(Err(error)) => {
                    let what = format!("cannot connect to {address}: {error}");
                    last = io::Error::new(error.kind(), what);
                }
                Err(_) => {
                    let what = format!("{address} has not answered for {CONNECT_MAX:?}");
                    last = io::Error::new(io::ErrorKind::TimedOut, what);
                }
            }
        }
        Err(last)
    }

    /// Why the pool does not connect to the address, whatever a name server says.
    fn forbidden(&self, address: IpAddr) -> Option<String> {
        let plain = address.to_canonical();
        let link_local = match plain {
            IpAddr::V4(plain) => plain.is_link_local(),
            IpAddr::V6(plain) => plain.is_unicast_link_local(),
        };
        if link_local || METADATA.contains(&plain) {
            return Some(format!(
                "{} stands for {plain}, a link-local or metadata address, where clouds hand out credentials; the pool never connects there: correct engine_config.url, or the name server",
                self.host
            ));
        }
        (self.only_loopback && !plain.is_loopback()).then(|| {
            format!(
                "{} stands for {plain}, which is not this machine; a model registered over the API is reached by https, or by http on this machine alone",
                self.host
            )
        })
    }

    /// Whom the certificate must prove; `None`: it speaks plain http.
    pub(super) fn server_name(&self) -> io::Result<Option<ServerName<'static>>> {
        if !self.https {
            return Ok(None);
        }
        let name = ServerName::try_from(self.host.clone());
        name.map(Some).map_err(|_| {
            let what = format!("{} is no name that a certificate can prove", self.host);
            io::Error::new(io::ErrorKind::InvalidInput, what)
        })
    }
}

/// Shorter values would mask words by accident.
const SECRET_BYTES_MIN: usize = 6;

/// Why it cannot be used.
struct Trouble {
    failure: Failure,
    words: String,
}

/// Runs a replica without a process: known at once, ready when the health route answers 2xx, gone as
/// soon as it is told so.
pub(super) async fn run(
    launch: Launch,
    recipe: &RemoteRecipe,
    log: Arc<ReplicaLog>,
    mut stop: oneshot::Receiver<Duration>,
    report: impl Fn(Report),
) {
    let mut last = String::new();
    let mut was_ready = false;
    let ended = {
        let life = live(&launch, recipe, &log, &report, &mut last, &mut was_ready);
        let mut life = pin!(life);
        tokio::select! {
            biased;
            _ = &mut stop => None,
            trouble = &mut life => Some(trouble),
        }
    };
    let asked = ended.is_none();
    let trouble = ended.unwrap_or_else(|| Trouble {
        failure: match (was_ready, last.is_empty()) {
            (true, _) => Failure::Crashed,
            (false, true) => Failure::TimedOut,
            (false, false) => Failure::NeverReady,
        },
        words: std::mem::take(&mut last),
    });
    if !asked {
        log.push(LogStream::Stderr, &trouble.words);
    }
    report(Report::Exited(ExitReport {
        asked,
        status: "remote".to_owned(),
        last_words: trouble.words,
        lack: None,
        failure: trouble.failure,
    }));
}

async fn live(
    launch: &Launch,
    recipe: &RemoteRecipe,
    log: &ReplicaLog,
    report: &impl Fn(Report),
    last: &mut String,
    was_ready: &mut bool,
) -> Trouble {
    let key = match read_key(recipe.key.as_ref()).await {
        Ok(key) => key,
        Err(words) => {
            let failure = Failure::KeyRefused;
            return Trouble { failure, words };
        }
    };
    let remote = Arc::new(Remote::of(recipe, key));
    let endpoint = Endpoint::Remote(Arc::clone(&remote));
    report(Report::Reached {
        endpoint: endpoint.clone(),
    });
    #[expect(
        clippy::disallowed_methods,
        reason = "the start of this endpoint's own load"
    )]
    let started = Instant::now();
    let mut attempts = 0;
    loop {
        let asked = health::get(&endpoint, &recipe.health_path);
        let words = match timeout(QUESTION_MAX, asked).await {
            Ok(Ok(answer)) if is_success(answer.status) => break,
            Ok(Ok(answer)) => {
                attempts = 0;
                let at = format!("{remote}{}", recipe.health_path);
                match verdict(answer.status, &at, recipe.key.as_ref()) {
                    Ok(words) => words,
                    Err(trouble) => return trouble,
                }
            }
            Ok(Err(error)) => {
                attempts += 1;
                format!("{remote}: {}", explain(&*error))
            }
            Err(_) => {
                attempts += 1;
                format!("{remote} has not answered for {QUESTION_MAX:?}")
            }
        };
        if attempts >= ATTEMPTS_MAX {
            let failure = Failure::Unreachable;
            return Trouble { failure, words };
        }
        if *last != words {
            log.push(LogStream::Stderr, &words);
            let stage = health::brief(&words);
            report(Report::Progress {
                stage,
                percent: None,
            });
            *last = words;
        }
        sleep(PAUSE).await;
    }
    log.push(LogStream::Stdout, &format!("{remote} answers"));
    *was_ready = true;
    last.clear();
    report(Report::Ready {
        took: started.elapsed(),
    });
    let words = until_dead(&endpoint, &recipe.health_path, &launch.watch).await;
    let failure = Failure::Unresponsive;
    let words = format!("{remote}: {words}");
    Trouble { failure, words }
}

/// What an answer other than 2xx means: the words, if time may help.
fn verdict(status: u16, at: &str, key: Option<&KeySource>) -> Result<String, Trouble> {
    let lasting = |failure, words| Err(Trouble { failure, words });
    match status {
        401 | 403 => {
            let what = match key {
                None => "without a key; name one by engine_config.api_key_file or api_key_env"
                    .to_owned(),
                Some(key) => format!(
                    "with the key of {}; check that it is valid for this endpoint, then load the model again",
                    source_of(key)
                ),
            };
            let words = format!("{at} answers {status} {what}");
            lasting(Failure::KeyRefused, words)
        }
        300..=399 => lasting(
            Failure::WrongArguments,
            format!(
                "{at} answers {status}, a redirect, and the pool follows none: write the final address into engine_config.url"
            ),
        ),
        404 | 405 | 410 => lasting(
            Failure::WrongArguments,
            format!(
                "{at} answers {status}: correct engine_config.url or engine_config.health_path"
            ),
        ),
        status => Ok(format!("{at} answers {status}")),
    }
}

fn source_of(key: &KeySource) -> String {
    match key {
        KeySource::Environment(name) => format!("the variable {name} (engine_config.api_key_env)"),
        KeySource::File(path) => {
            format!("the file {} (engine_config.api_key_file)", path.display())
        }
    }
}

/// The key, or what is wrong with where it should be. Nothing of it is in the words.
async fn read_key(source: Option<&KeySource>) -> Result<Option<String>, String> {
    let Some(source) = source else {
        return Ok(None);
    };
    let at = source_of(source);
    let text = match source {
        KeySource::Environment(name) => std::env::var(name).map_err(|_| {
            format!("{at} is not set in the pool's environment; set it and restart")
        })?,
        KeySource::File(path) => {
            let unreadable = |error: io::Error| format!("{at} cannot be read: {error}");
            let length = tokio::fs::metadata(path).await.map_err(unreadable)?.len();
            if length > KEY_FILE_BYTES_MAX {
                return Err(format!("{at} has {length} bytes, which is no key"));
            }
            tokio::fs::read_to_string(path).await.map_err(unreadable)?
        }
    };
    let key = text.trim();
    if key.is_empty() {
        return Err(format!("{at} is empty; write the key there"));
    }
    if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(format!(
            "{at} holds more than a key: spaces, several lines, or letters beyond ASCII"
        ));
    }
    Ok(Some(key.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(only_loopback: bool) -> Remote {
        Remote {
            shown: "https://api.example.org/v1".to_owned(),
            https: true,
            host: "api.example.org".to_owned(),
            port: 443,
            prefix: "/v1".to_owned(),
            only_loopback,
            key: Some(Hidden("sesame-open".to_owned())),
            headers: BTreeMap::from([("x-team".to_owned(), Hidden("our-team".to_owned()))]),
        }
    }

    #[test]
    fn openai_routes_go_below_the_prefix_and_others_too() {
        assert_eq!(remote(false).path("/v1/completions"), "/v1/completions");
        assert_eq!(remote(false).path("/models"), "/v1/models");
        let other = Remote {
            prefix: "/openai/v2".to_owned(),
            ..remote(false)
        };
        assert_eq!(other.path("/v1/completions"), "/openai/v2/completions");
    }

    #[test]
    fn addresses_where_credentials_are_handed_out_are_never_connected_to() {
        let refused = |text: &str| remote(false).forbidden(text.parse().unwrap()).is_some();
        for address in [
            "169.254.169.254",
            "100.100.100.200",
            "fe80::1",
            "fd00:ec2::254",
            "::ffff:169.254.169.254",
        ] {
            assert!(refused(address), "{address}");
        }
        for address in ["127.0.0.1", "10.0.0.7", "93.184.216.34", "2606:4700::1"] {
            assert!(!refused(address), "{address}");
        }
    }

    #[test]
    fn what_was_registered_for_this_machine_reaches_no_other() {
        let refused = |text: &str| remote(true).forbidden(text.parse().unwrap()).is_some();
        assert!(refused("10.0.0.7"));
        assert!(!refused("127.0.0.1") && !refused("::1"));
    }

    #[test]
    fn neither_debug_nor_display_nor_a_masked_text_shows_a_secret() {
        let remote = remote(false);
        let told = "no: sesame-open, our-team";
        let shown = format!(
            "{remote:?} {remote} {:?} {}",
            remote.headers(),
            remote.masked(told)
        );
        assert!(
            !shown.contains("sesame") && !shown.contains("our-team"),
            "{shown}"
        );
        let headers = remote.headers();
        assert_eq!(headers["authorization"], "Bearer sesame-open");
        assert_eq!(headers["host"], "api.example.org");
    }
}
