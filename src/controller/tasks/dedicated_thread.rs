//! Runs a future on a dedicated thread, where it and the runtime's workers never delay each other. Tasks it spawns and its timers
//! stay with the shared runtime.

use std::future::Future;
use std::thread::Builder;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Runs `work` on a new thread. The task ends with the work, and panics if the work does. Aborting it, or dropping it with its
/// runtime, ends the work at its next await.
#[expect(
    clippy::disallowed_methods,
    reason = "it stands for the thread; the caller owns it"
)]
pub(crate) fn spawn_on_own_thread(
    name: &str,
    work: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    let (runtime, stop) = (Handle::current(), CancellationToken::new());
    let stopped = stop.clone();
    let (done, ended) = oneshot::channel::<()>();
    let run = move || {
        // Dropped at the end, also after a panic.
        let _done = done;
        runtime.block_on(async {
            tokio::select! {
                // Polled first: a runtime that shuts down has no timers for the work any more.
                biased;
                () = stopped.cancelled() => {}
                () = work => {}
            }
        });
    };
    // Created here: the task may be aborted before it runs.
    let stop = stop.drop_guard();
    let thread = Builder::new().name(name.to_owned()).spawn(run);
    let thread = thread.expect("the system has a thread for the pool");
    tokio::spawn(async move {
        let _stop = stop;
        // Never sent: the sender is dropped when the thread ends.
        let _ = ended.await;
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    })
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn the_work_runs_in_a_named_thread_with_the_runtimes_timers() {
        let name = Arc::new(Mutex::new(None));
        let seen = Arc::clone(&name);
        let work = async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let own = std::thread::current().name().map(str::to_owned);
            *seen.lock().unwrap() = own;
        };
        spawn_on_own_thread("pool", work).await.unwrap();
        assert_eq!(name.lock().unwrap().as_deref(), Some("pool"));
    }

    #[tokio::test]
    async fn a_panic_in_the_work_is_a_panic_of_the_task() {
        let ended = spawn_on_own_thread("pool", async { panic!("a bug") }).await;
        assert!(ended.unwrap_err().is_panic());
    }

    #[tokio::test]
    async fn aborting_the_task_ends_the_work() {
        let held = Arc::new(());
        let with = Arc::clone(&held);
        let task = spawn_on_own_thread("pool", async move {
            let _with = with;
            pending::<()>().await;
        });
        task.abort();
        while Arc::strong_count(&held) > 1 {
            tokio::task::yield_now().await;
        }
    }
}
