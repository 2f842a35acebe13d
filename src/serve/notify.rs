//! Notifies the service manager (sd_notify(3)) that the service is ready, that it stops, and that the
//! loop still runs. Does nothing without `NOTIFY_SOCKET`. Uses no crate, because it is one datagram.

use std::os::unix::net::UnixDatagram;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use controller::Heartbeat;
use pool::Span;

/// The manager's socket and its watchdog interval.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Manager {
    socket: String,
    watchdog_us: Option<u64>,
}

static INHERITED: OnceLock<Manager> = OnceLock::new();

/// Inherits the settings of the process that this one replaces: the manager started that process, not this one.
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

/// Reports that the service is ready. After a takeover, the manager still watches the old process, so the process id is sent along.
pub(crate) fn ready() {
    notify(&format!("READY=1\nMAINPID={}\n", std::process::id()));
}

pub(super) fn stopping() {
    notify("STOPPING=1\n");
}

/// The heartbeat for `WatchdogSec=`, three times per interval. The loop itself sends it: the manager restarts a service whose loop
/// hangs. While this process stands by or starts, `starting` sends it.
pub(super) fn heartbeat() -> Option<Heartbeat> {
    let every = Span((manager()?.watchdog_us? / 3_000).max(1));
    Some(Heartbeat::new(every, || notify("WATCHDOG=1\n")))
}

/// Failures are only logged: the manager decides what a missing message means.
fn notify(text: &str) {
    let Some(manager) = manager() else {
        return;
    };
    if let Err(error) = send(&manager.socket, text) {
        tracing::debug!(%error, socket = manager.socket, "cannot notify the service manager");
    }
}

fn send(address: &str, text: &str) -> std::io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    // The loop calls this and must not block.
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
    fn a_notification_reaches_the_managers_socket() {
        let home = tempfile::tempdir().expect("a folder");
        let path = home.path().join("notify");
        let manager = UnixDatagram::bind(&path).expect("a socket");
        send(&path.display().to_string(), "READY=1\n").expect("sent");
        let mut bytes = [0; 64];
        let count = manager.recv(&mut bytes).expect("received");
        assert_eq!(&bytes[..count], b"READY=1\n");
    }
}
