//! Many clients at the same time: their connections are accepted while the service is busy.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::service::Pool;

/// More than the standard library's backlog of 128.
const CLIENTS: usize = 400;
/// The system retries a connection after a second if the backlog is full.
const AT_ONCE: Duration = Duration::from_millis(900);

#[test]
fn a_burst_of_connections_is_queued_while_the_service_is_stopped() {
    let pool = Pool::with_models(&[], "");
    let address: SocketAddr = pool.address().parse().unwrap();
    let process = Pid::from_raw(pool.pid().try_into().unwrap());
    kill(process, Signal::SIGSTOP).unwrap();
    // The system's own limit is up to the administrator.
    let most = std::fs::read_to_string("/proc/sys/net/core/somaxconn");
    let most: usize = most
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(128);
    let clients = CLIENTS.min(most);
    let burst = (0..clients).map(|_| TcpStream::connect_timeout(&address, AT_ONCE));
    let burst: Vec<_> = burst.collect();
    kill(process, Signal::SIGCONT).unwrap();
    let refused = burst.iter().filter(|result| result.is_err()).count();
    assert_eq!(refused, 0, "of {clients} connections");
    drop(burst);
    assert_eq!(pool.request("GET", "/llm/health", "", None).0, 200);
}
