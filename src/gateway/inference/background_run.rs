//! The run of a background response, for the code that translates its request. It belongs to the task, because a field would add to
//! the future of every request.

use std::sync::Arc;

use dialect::responses::BackgroundRun;

tokio::task_local! {
    static CURRENT: Arc<BackgroundRun>;
}

/// The run that the current task carries out.
pub(crate) fn current() -> Option<Arc<BackgroundRun>> {
    CURRENT.try_with(Arc::clone).ok()
}

/// Carries out a run.
pub(crate) async fn within<T>(run: Arc<BackgroundRun>, work: impl Future<Output = T>) -> T {
    CURRENT.scope(run, work).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_knows_its_run_and_others_have_none() {
        assert!(current().is_none());
        let run = Arc::new(BackgroundRun::new(1));
        let id = run.id.clone();
        let found = within(run, async { current().map(|run| run.id.clone()) });
        assert_eq!(found.await, Some(id));
        assert!(current().is_none());
    }
}
