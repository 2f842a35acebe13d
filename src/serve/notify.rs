//! What the service manager is told (sd_notify(3)): that we serve, that we stop, and that the loop
//! still turns. Without `NOTIFY_SOCKET` nothing is told. No crate: it is one datagram.

use std::os::unix::net::UnixDatagram;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use controller::Heartbeat;
use pool::Span;

/// How the manager can be reached, and how often it wants to hear of us.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Manager {
    socket: String,
    watchdog_us: Option<u64>,
}

static INHERITED: OnceLock<Manager> = OnceLock::new();

/// What the process that we take over from was told: it was the manager's own child.
pub(super) fn inherit(manager: Manager) {
    let _ = INHERITED.set(manager);
}

pub(super) fn manager() -> Option<Manager> {
    let own = std::env::var("NOTIFY_SOCKET").ok().map(|socket| Manager {
        socket,
        watchdog_us: std::env::var("WATCHDOG_USEC")
            .ok()
            .and_then(|us| us.parse().ok()),
    });
    let inherited = INHERITED.get().cloned();
    match (own, inherited) {
        (Some(own), Some(old)) => Some(Manager {
            watchdog_us: own.watchdog_us.or(old.watchdog_us),
            ..own
        }),
        (own, inherited) => own.or(inherited),
    }
}

/// We serve. After a takeover the manager watched another process until now.
pub(super) fn ready() {
    tell(&format!("READY=1\nMAINPID={}\n", std::process::id()));
}

pub(super) fn stopping() {
    tell("STOPPING=1\n");
}

/// For `WatchdogSec=`, and three times as often; told by the loop itself, so that one that hangs is
/// restarted.
pub(super) fn heartbeat() -> Option<Heartbeat> {
    let every = Span((manager()?.watchdog_us? / 3_000).max(1));
    Some(Heartbeat::new(every, || tell("WATCHDOG=1\n")))
}

/// A manager that cannot be told decides for itself what that means.
fn tell(text: &str) {
    let Some(manager) = manager() else {
        return;
    };
    if let Err(error) = send(&manager.socket, text) {
        tracing::debug!(%error, socket = manager.socket, "the service manager cannot be told");
    }
}

fn send(address: &str, text: &str) -> std::io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    // The loop tells it, and waits for nobody.
    socket.set_nonblocking(true)?;
    #[cfg(target_os = "linux")]
    if let Some(name) = address.strip_prefix('@') {
        use std::os::linux::net::SocketAddrExt;
        let abstract_name = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
        socket.send_to_addr(text.as_bytes(), &abstract_name)?;
        return Ok(());
    }
    socket.send_to(text.as_bytes(), address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_reaches_the_managers_socket() {
        let home = tempfile::tempdir().expect("a folder");
        let path = home.path().join("notify");
        let manager = UnixDatagram::bind(&path).expect("a socket");
        send(&path.display().to_string(), "READY=1\n").expect("told");
        let mut bytes = [0; 64];
        let count = manager.recv(&mut bytes).expect("heard");
        assert_eq!(&bytes[..count], b"READY=1\n");
    }
}
