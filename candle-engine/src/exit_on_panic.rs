//! Ends the process if a thread that every request needs panics. Exiting is better than hanging, because the parent process notices
//! an exit and restarts the engine. Not for threads that serve a single request.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Internal software error in `sysexits.h`; a panic of the main thread exits with 101.
const FAILED: i32 = 70;

/// Runs the work of a thread. If it panics, ends the process with a message after the panic's own.
pub(crate) fn or_end(thread: &str, work: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(work)).is_err() {
        eprintln!(
            "the engine's thread `{thread}` failed as shown above: the engine ends, and its requests with it; please report this"
        );
        std::process::exit(FAILED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const ON_PURPOSE: &str = "CANDLE_ENGINE_TEST_FAILS";

    #[test]
    fn a_panicking_thread_ends_the_process_and_its_message_is_printed() {
        if std::env::var_os(ON_PURPOSE).is_some() {
            // Runs next to the test's own thread, which waits forever: nothing else ends this process.
            let thread = std::thread::spawn(|| or_end("batch", || panic!("a page was lost")));
            let _ = thread.join();
            loop {
                std::thread::park();
            }
        }
        let me = std::env::current_exe().expect("a test has a program");
        let name =
            "exit_on_panic::tests::a_panicking_thread_ends_the_process_and_its_message_is_printed";
        let ended = Command::new(me)
            .args(["--exact", name, "--nocapture"])
            .env(ON_PURPOSE, "1")
            .output()
            .expect("it runs");
        let words = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(FAILED), "{words}");
        assert!(words.contains("a page was lost"), "{words}");
        let last = words.trim_end().lines().last().unwrap_or_default();
        assert!(last.contains("thread `batch` failed"), "{words}");
    }

    #[test]
    fn successful_work_does_not_end_the_process() {
        or_end("batch", || {});
    }
}
