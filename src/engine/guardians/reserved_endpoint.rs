//! Endpoints reserved for engines: ports of the loopback interface, and sockets in a private folder.

use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::connection::Endpoint;
use crate::connection::short_paths::short_path;
use crate::failures::EngineError;
use pool::ReplicaId;

/// An endpoint reserved for one engine, and released when the engine is gone: the port can be chosen again, and the socket file is
/// removed.
#[derive(Debug)]
pub(crate) struct ReservedEndpoint {
    pub endpoint: Endpoint,
    /// The engine and its socket outlive the controller.
    left: bool,
}

/// Ports of engines that run or are being started. The system may offer the same free port twice before the first engine has bound
/// it.
static PORTS: Mutex<BTreeSet<SocketAddr>> = Mutex::new(BTreeSet::new());

impl ReservedEndpoint {
    fn new(endpoint: Endpoint) -> ReservedEndpoint {
        let left = false;
        ReservedEndpoint { endpoint, left }
    }

    /// Reserves the endpoint of an engine that already runs.
    pub fn adopted(endpoint: Endpoint) -> ReservedEndpoint {
        if let Endpoint::Tcp(address) = &endpoint {
            let mut ports = PORTS.lock().unwrap_or_else(PoisonError::into_inner);
            ports.insert(*address);
        }
        ReservedEndpoint::new(endpoint)
    }

    /// Leaves the engine to another controller: its socket stays.
    pub fn leave(&mut self) {
        self.left = true;
    }

    /// Reserves a currently free loopback port. Another program may still take it before the engine does;
    /// [`is_taken`](ReservedEndpoint::is_taken) shows that afterwards.
    pub fn port() -> Result<ReservedEndpoint, EngineError> {
        ReservedEndpoint::free_port(Ipv4Addr::LOCALHOST)
    }

    /// Reserves this port of a loopback address, or any free one for `None`.
    pub fn at(address: Ipv4Addr, port: Option<u16>) -> Result<ReservedEndpoint, EngineError> {
        let Some(port) = port else {
            return ReservedEndpoint::free_port(address);
        };
        let mut ports = PORTS.lock().unwrap_or_else(PoisonError::into_inner);
        let address = SocketAddr::from((address, port));
        if !ports.insert(address) {
            return Err(EngineError::OwnPort {
                address,
                source: io::ErrorKind::AddrInUse.into(),
            });
        }
        match TcpListener::bind(address) {
            Ok(_) => Ok(ReservedEndpoint::new(Endpoint::Tcp(address))),
            Err(source) => {
                ports.remove(&address);
                Err(EngineError::OwnPort { address, source })
            }
        }
    }

    fn free_port(address: Ipv4Addr) -> Result<ReservedEndpoint, EngineError> {
        let mut ports = PORTS.lock().unwrap_or_else(PoisonError::into_inner);
        // Ports that are already reserved stay bound during the search, which makes each attempt return another port.
        let mut passed_over = Vec::new();
        loop {
            let listener =
                TcpListener::bind((address, 0)).map_err(|source| EngineError::Port { source })?;
            let address = listener
                .local_addr()
                .map_err(|source| EngineError::Port { source })?;
            if ports.insert(address) {
                return Ok(ReservedEndpoint::new(Endpoint::Tcp(address)));
            }
            passed_over.push(listener);
        }
    }

    /// Reserves a socket in `runtime_dir`, which is created if needed. Removes a file left there by an earlier engine.
    pub fn socket(runtime_dir: &Path, replica: ReplicaId) -> Result<ReservedEndpoint, EngineError> {
        make_private(runtime_dir)?;
        let fault = |source| EngineError::RuntimeDir {
            path: runtime_dir.to_owned(),
            source,
        };
        // The engine may run in another directory.
        let folder = std::path::absolute(runtime_dir).map_err(fault)?;
        let name = format!("{replica}.sock");
        let path = short_path(&folder, &name).map_err(fault)?.join(name);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(fault(error)),
            _ => Ok(ReservedEndpoint::new(Endpoint::Unix(path))),
        }
    }

    /// Returns true if another process listens on the port after the engine has ended.
    pub fn is_taken(&self) -> bool {
        match &self.endpoint {
            Endpoint::Tcp(address) => TcpListener::bind(address)
                .is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse),
            Endpoint::Unix(_) | Endpoint::Remote(_) | Endpoint::Node(_) => false,
        }
    }
}

impl Drop for ReservedEndpoint {
    fn drop(&mut self) {
        match &self.endpoint {
            Endpoint::Tcp(address) => {
                let mut ports = PORTS.lock().unwrap_or_else(PoisonError::into_inner);
                ports.remove(address);
            }
            Endpoint::Unix(_) if self.left => {}
            Endpoint::Unix(path) => {
                // Usually gone already: a well-behaved engine removes its own socket.
                let _ = std::fs::remove_file(path);
            }
            Endpoint::Remote(_) | Endpoint::Node(_) => {}
        }
    }
}

/// Creates the folder of sockets, and checks that no other account can create sockets there: access to the folder is access to
/// every engine without a key.
pub(crate) fn make_private(directory: &Path) -> Result<(), EngineError> {
    private_files::make_private(directory).map_err(|source| EngineError::RuntimeDirOpen { source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_engines_never_get_the_same_port() {
        let all: Vec<ReservedEndpoint> = (0..200)
            .filter_map(|_| ReservedEndpoint::port().ok())
            .collect();
        let different: BTreeSet<Endpoint> = all.iter().map(|one| one.endpoint.clone()).collect();
        assert_eq!(different.len(), 200);
    }

    #[test]
    fn a_fixed_port_is_reserved_for_one_replica() {
        let free = ReservedEndpoint::port().unwrap();
        let Endpoint::Tcp(address) = free.endpoint.clone() else {
            panic!("{free:?}");
        };
        drop(free);
        let second = Ipv4Addr::new(127, 0, 0, 2);
        let own = ReservedEndpoint::at(second, Some(address.port())).unwrap();
        let expected = SocketAddr::from((second, address.port()));
        assert_eq!(own.endpoint, Endpoint::Tcp(expected));
        let error = ReservedEndpoint::at(second, Some(address.port())).unwrap_err();
        assert!(error.to_string().contains(&expected.to_string()), "{error}");
        drop(own);
        let _other_program = TcpListener::bind(expected).unwrap();
        ReservedEndpoint::at(second, Some(address.port())).unwrap_err();
        let any = ReservedEndpoint::at(second, None).unwrap();
        assert!(matches!(any.endpoint, Endpoint::Tcp(at) if at.ip() == second));
    }

    #[test]
    fn a_socket_in_a_folder_with_a_long_path_can_be_reserved() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("d".repeat(120));
        let reserved = ReservedEndpoint::socket(&folder, ReplicaId(1)).unwrap();
        let Endpoint::Unix(path) = &reserved.endpoint else {
            panic!("{:?}", reserved.endpoint);
        };
        let _listener = std::os::unix::net::UnixListener::bind(path).expect("the system takes it");
        assert!(folder.join("r1.sock").exists());
    }
}
