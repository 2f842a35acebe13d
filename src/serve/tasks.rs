//! Starts and ends the service's tasks, each of which has an owner that ends it.

use tokio::task::JoinHandle;
use tokio_util::task::AbortOnDropHandle;

#[expect(clippy::disallowed_methods, reason = "the caller owns it, and ends it")]
pub(super) fn start(task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    tokio::spawn(task)
}

/// Ends a task, and returns when it has stopped.
pub(super) async fn end(task: AbortOnDropHandle<()>) {
    task.abort();
    let _ = task.await;
}
