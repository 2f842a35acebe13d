//! The loop that accepts connections and hands each to the service for it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use edge::listener::{Listener, Socket};
use edge::quiet::quiet;
use edge::{Edge, LOOK_EVERY};

/// Serves until `stop` fires, then lets open connections finish their requests. The caller may drop the future to end this earlier.
/// `connection` serves a connection, or returns `None` above the limit.
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
                // Usually out of file descriptors: other connections must end first.
                tracing::warn!(%error, "could not accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        if let Some(connection) = connection(socket, peer) {
            connections.spawn(quiet(connection));
        }
    }
    // Closes the listener: unless another process shares it, new clients are refused immediately instead of waiting.
    drop(listener);
    while connections.join_next().await.is_some() {}
}
