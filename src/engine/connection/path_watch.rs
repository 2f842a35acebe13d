//! Detects a dead path to another machine. If packets vanish silently (a cable is pulled, a firewall forgets the connection, a
//! machine loses power), a connection that waits for a response would wait forever. The kernel probes an idle connection
//! (keepalive), and gives up a connection whose packets are not acknowledged (`TCP_USER_TIMEOUT`, only on Linux). The other
//! machine's kernel responds to probes on its own: a quiet stream, or a stream of a suspended process, is not cut.
//!
//! ```text
//!  last sign of the other side ── 5 s ── probe ── 3 s ── probe ── 3 s ── probe ── 3 s ──▶ the connection fails
//!  sent, and not acknowledged ───────────────────────── 14 s ───────────────────────────▶ the connection fails
//! ```
//!
//! Linux also gives up a connection whose peer lives but has a full receive buffer. The time is therefore longer after more was
//! sent than a kernel buffers for a program that does not read. The accepting side, whose responses wait for slow clients, uses
//! only keepalive.

use std::io;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::TcpStream;

/// Idle time before the first probe.
const IDLE: Duration = Duration::from_secs(5);
const PROBE_EVERY: Duration = Duration::from_secs(3);
/// Consecutive probes without a response after which the path is dead.
const PROBES: u32 = 3;
/// The idle time plus all probes. With `TCP_USER_TIMEOUT`, Linux uses this time in place of the number of probes.
const DEAD_AFTER: Duration = Duration::from_secs(14);
/// For streams of engines on nodes, which tolerate a machine that is suspended or cut off for half a minute. The node's own
/// connection detects its silence much earlier.
pub(super) const PATIENT: Duration = Duration::from_secs(45);
/// Used after much was sent: a body may wait for memory at the receiver, as long as `server.body_timeout` allows (30 s).
const DEAD_AFTER_SENDING: Duration = Duration::from_secs(60);
/// Bytes that any kernel buffers for a program that does not read; the usual receive buffer is twice as large.
const TAKEN_UNREAD: usize = 32 << 10;

/// Lets the kernel probe a connection that this side has accepted.
pub fn keep_alive(socket: &TcpStream) {
    probe(socket, DEAD_AFTER);
}

/// Lets the kernel probe a connection that the gateway has opened for an engine's stream.
pub fn keep_alive_patiently(socket: &TcpStream) {
    probe(socket, PATIENT);
}

fn probe(socket: &TcpStream, dead_after: Duration) {
    if let Err(error) = try_probe(socket, dead_after) {
        tracing::debug!(%error, "a dead path of this connection will not be noticed");
    }
}

fn try_probe(socket: &TcpStream, dead_after: Duration) -> io::Result<()> {
    let probes = dead_after.saturating_sub(IDLE).as_secs() / PROBE_EVERY.as_secs();
    sockopt::set_tcp_keepidle(socket, IDLE)?;
    sockopt::set_tcp_keepintvl(socket, PROBE_EVERY)?;
    sockopt::set_tcp_keepcnt(socket, u32::try_from(probes).unwrap_or(PROBES))?;
    sockopt::set_socket_keepalive(socket, true)?;
    Ok(())
}

fn give_up_after(socket: &TcpStream, time: Duration) {
    if let Err(error) = try_give_up_after(socket, time) {
        tracing::debug!(%error, "a dead path of this connection will be noticed late");
    }
}

#[cfg(target_os = "linux")]
fn try_give_up_after(socket: &TcpStream, time: Duration) -> io::Result<()> {
    let milliseconds = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(socket, milliseconds)?;
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn try_give_up_after(_: &TcpStream, _: Duration) -> io::Result<()> {
    Ok(())
}

/// Watches the path of one connection that this side sends requests on.
#[derive(Debug)]
pub(crate) struct PathWatch {
    /// Bytes sent since something was received.
    without_response: usize,
    is_sending_much: bool,
    dead_after: Duration,
}

impl PathWatch {
    pub fn begin(socket: &TcpStream) -> PathWatch {
        PathWatch::begin_with(socket, DEAD_AFTER)
    }

    pub fn begin_with(socket: &TcpStream, dead_after: Duration) -> PathWatch {
        probe(socket, dead_after);
        give_up_after(socket, dead_after);
        PathWatch {
            without_response: 0,
            is_sending_much: false,
            dead_after,
        }
    }

    pub fn sent(&mut self, socket: &TcpStream, bytes: usize) {
        self.without_response = self.without_response.saturating_add(bytes);
        if self.without_response > TAKEN_UNREAD && !self.is_sending_much {
            self.is_sending_much = true;
            give_up_after(socket, DEAD_AFTER_SENDING);
        }
    }

    pub fn received(&mut self, socket: &TcpStream) {
        self.without_response = 0;
        if std::mem::take(&mut self.is_sending_much) {
            give_up_after(socket, self.dead_after);
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (connected, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        (connected.expect("connected"), accepted.expect("accepted").0)
    }

    fn gives_up_after(socket: &TcpStream) -> Duration {
        let milliseconds = sockopt::tcp_user_timeout(socket).expect("an option");
        Duration::from_millis(milliseconds.into())
    }

    #[test]
    fn d4_a_dead_path_is_detected_within_fifteen_seconds_by_keepalive_probes() {
        assert_eq!(DEAD_AFTER, IDLE + PROBE_EVERY * PROBES);
        assert!(DEAD_AFTER < Duration::from_secs(15));
    }

    #[tokio::test]
    async fn an_engine_stream_from_a_node_survives_thirty_seconds_without_packets() {
        let (connected, accepted) = pair().await;
        let half_a_minute = Duration::from_secs(30);
        let mut watch = PathWatch::begin_with(&connected, PATIENT);
        keep_alive_patiently(&accepted);
        for socket in [&connected, &accepted] {
            let probes = sockopt::tcp_keepcnt(socket).expect("an option");
            assert!(IDLE + PROBE_EVERY * probes > half_a_minute, "{probes}");
        }
        watch.sent(&connected, TAKEN_UNREAD + 1);
        watch.received(&connected);
        assert_eq!(gives_up_after(&connected), PATIENT);
    }

    #[tokio::test]
    async fn d4_an_accepted_connection_is_probed_by_the_kernel_and_slow_clients_are_tolerated() {
        let (_connected, accepted) = pair().await;
        assert_eq!(sockopt::socket_keepalive(&accepted), Ok(false));
        keep_alive(&accepted);
        assert_eq!(sockopt::socket_keepalive(&accepted), Ok(true));
        assert_eq!(sockopt::tcp_keepidle(&accepted), Ok(IDLE));
        assert_eq!(sockopt::tcp_keepintvl(&accepted), Ok(PROBE_EVERY));
        assert_eq!(sockopt::tcp_keepcnt(&accepted), Ok(PROBES));
        assert_eq!(gives_up_after(&accepted), Duration::ZERO);
    }

    #[tokio::test]
    async fn d4_a_large_body_extends_the_deadline_until_a_response_arrives() {
        let (connected, _accepted) = pair().await;
        let mut watch = PathWatch::begin(&connected);
        assert_eq!(sockopt::socket_keepalive(&connected), Ok(true));
        assert_eq!(gives_up_after(&connected), DEAD_AFTER);
        watch.sent(&connected, TAKEN_UNREAD);
        assert_eq!(gives_up_after(&connected), DEAD_AFTER);
        watch.sent(&connected, 1);
        assert_eq!(gives_up_after(&connected), DEAD_AFTER_SENDING);
        watch.received(&connected);
        assert_eq!(gives_up_after(&connected), DEAD_AFTER);
        watch.sent(&connected, TAKEN_UNREAD);
        assert_eq!(gives_up_after(&connected), DEAD_AFTER);
    }
}
