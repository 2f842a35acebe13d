//! Judges whether a process without a health route is still alive. A process that the system has stopped is not.

use std::time::Duration;

use ticks::Ticks;

use super::LivenessLimits;

/// Returns the reason once the process has been stopped for as long as a health route may be silent.
pub(crate) async fn until_frozen(pid: u32, limits: &LivenessLimits) -> String {
    let mut looks = Ticks::every(limits.heartbeat.max(Duration::from_millis(10)));
    let mut stopped = 0;
    loop {
        looks.tick().await;
        stopped = if is_stopped(pid) { stopped + 1 } else { 0 };
        if stopped >= limits.heartbeat_misses.max(1) {
            let for_ms = limits.heartbeat.as_millis() * u128::from(stopped);
            return format!(
                "its process {pid} is stopped (by SIGSTOP or a debugger), and has been for {} s",
                for_ms.div_ceil(1000)
            );
        }
    }
}

/// Returns true if the process is stopped or traced. A process that has ended is neither.
fn is_stopped(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    // The program's name, in parentheses, may contain any character.
    let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
    state.is_some_and(|state| state.starts_with(['T', 't']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn m8_a_stopped_process_counts_as_dead_and_a_sleeping_one_does_not() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("sleep");
        let signal = |name: &str| {
            let pid = child.id().to_string();
            let sent = std::process::Command::new("kill")
                .args([name, &pid])
                .status();
            assert!(sent.is_ok_and(|status| status.success()));
        };
        let limits = LivenessLimits {
            heartbeat: Duration::from_millis(20),
            ..LivenessLimits::default()
        };
        let alive = tokio::time::timeout(
            Duration::from_millis(200),
            until_frozen(child.id(), &limits),
        );
        assert!(alive.await.is_err(), "it sleeps");
        signal("-STOP");
        let why = until_frozen(child.id(), &limits).await;
        assert!(why.contains(&child.id().to_string()), "{why}");
        signal("-KILL");
        child.wait().expect("ended");
    }
}
