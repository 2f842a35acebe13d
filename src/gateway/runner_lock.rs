//! The locks by which only one process at a time runs batches, and only one runs background responses.

use std::fs::{File, OpenOptions, TryLockError};
use std::time::Duration;

use crate::state::App;

/// Waits for the lock with this file name in the folder of batches, which an earlier process may still hold. `work` names in the log
/// what waits for it.
pub(crate) async fn take(app: &App, file_name: &str, work: &str, try_every: Duration) -> File {
    let mut is_logged = false;
    loop {
        let file = app.batches.dir().and_then(|dir| {
            let mut options = OpenOptions::new();
            options.create(true).truncate(false).write(true);
            options.open(dir.join(file_name))
        });
        let problem = match file {
            Ok(file) => match file.try_lock() {
                Ok(()) => return file,
                Err(TryLockError::WouldBlock) => format!("another process runs the {work}"),
                Err(TryLockError::Error(error)) => error.to_string(),
            },
            Err(error) => error.to_string(),
        };
        if !is_logged {
            tracing::info!(problem, "{work} wait");
            is_logged = true;
        }
        tokio::time::sleep(try_every).await;
    }
}
