//! The loop that accepts connections, and hands each to the service that answers on it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::edge::{Edge, LOOK_EVERY};
use crate::inference::upstream::quiet::quiet;
use crate::listener::{Listener, Socket};

/// Serves until `stop` fires, then lets open connections finish what they have begun. How long that may take is for the
/// caller, who may drop this. `connection` serves one, if there is a seat for it.
pub(crate) async fn accept<C>(
    listener: Listener,
    edge: Arc<Edge>,
    stop: CancellationToken,
    connection: impl Fn(Socket, SocketAddr) -> Option<C>,
) where
    C: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    let mut looks = tokio::time::interval(LOOK_EVERY);
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            _ = looks.tick(), if edge.has_tls() => {
                let edge = Arc::clone(&edge);
                let _ = tokio::task::spawn_blocking(move || edge.look_again()).await;
                continue;
            }
        };
        let (socket, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, mostly: others must end before one can begin.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        if let Some(connection) = connection(socket, peer) {
            connections.spawn(quiet(connection));
        }
    }
    // Unless another one has it too, new clients are refused from now on, and not left waiting for an answer.
    drop(listener);
    while connections.join_next().await.is_some() {}
}
