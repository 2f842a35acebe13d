//! Work that a client begins and that ends even if the client leaves.

use api_types::error::Failure;

/// Runs the work to its end even if its client leaves, because it stores something that must take effect, or be undone. `what` names
/// the work in errors.
pub async fn to_its_end<T: Send + 'static>(
    what: &'static str,
    work: impl Future<Output = Result<T, Failure>> + Send + 'static,
) -> Result<T, Failure> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the request awaits it; without a client the work ends by itself"
    )]
    let ended = tokio::spawn(work).await;
    ended.unwrap_or_else(|error| {
        tracing::error!(%error, "{what} could not be completed");
        Err(Failure::internal(format!(
            "{what} could not be completed; see the server log"
        )))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tokio::sync::Notify;
    use tokio::task::JoinSet;

    #[tokio::test]
    async fn work_ends_after_its_client_has_left() {
        let (begun, left, ended) = (Notify::new(), Notify::new(), Notify::new());
        let signals = Arc::new((begun, left, ended));
        let mut client = JoinSet::new();
        let of_work = Arc::clone(&signals);
        client.spawn(to_its_end("a change", async move {
            of_work.0.notify_one();
            of_work.1.notified().await;
            of_work.2.notify_one();
            Ok(())
        }));
        signals.0.notified().await;
        client.shutdown().await;
        signals.1.notify_one();
        signals.2.notified().await;
    }
}
