//! Connections to engines and other machines: sockets, TLS, proxies, and the addresses of engines.

mod certificate_pin;
pub(crate) mod endpoint;
mod node_place;
mod path_watch;
mod proxy;
mod remote;
pub(crate) mod short_paths;
mod stream;
mod tls;

pub use certificate_pin::{
    Fingerprint, NoFingerprint, WrongCertificate, connect as connect_pinned,
};
pub use endpoint::{Endpoint, connect};
pub use node_place::{
    NodePlace, RELAY_CONNECTED, RELAY_LINE_MAX, RELAY_MARK, RELAY_NO_ENGINE, RelayAddress,
    RelaySecret,
};
pub use path_watch::{keep_alive, keep_alive_patiently};
pub use remote::Remote;
pub(crate) use short_paths::LONGEST_NAME;
pub use short_paths::socket_path_problem;
pub use stream::Stream;
pub use tls::{connect_trusted, trust_authorities};
