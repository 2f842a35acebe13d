//! Short names of reasons, for counting. The full texts are with the reasons.

use pool::{Refusal, StopReason};

pub(super) fn name_of_stop(reason: &StopReason) -> &'static str {
    match reason {
        StopReason::KeepHot { .. } => "keep-hot",
        StopReason::Preempted { .. } => "preempted",
        StopReason::TurnEnded { .. } => "equal",
        StopReason::Yielded { .. } => "idle",
        StopReason::Forced { .. } => "forced",
        StopReason::Unload { .. } => "unload",
        StopReason::Cleanup { .. } => "cleanup",
        StopReason::Reset { .. } => "reset",
        StopReason::Shutdown => "shutdown",
        StopReason::Removed => "removed",
        StopReason::Changed => "changed",
        StopReason::Surplus => "surplus",
        StopReason::Unwanted => "unwanted",
        StopReason::LoadTimedOut { .. } => "load-timed-out",
        StopReason::DidNotWake { .. } => "did-not-wake",
        StopReason::SleptLong { .. } => "slept-long",
        StopReason::HostPressure { .. } => "host-pressure",
        StopReason::HostFor { .. } => "host-for-another",
        StopReason::SleeperDropped { .. } => "sleeper-dropped",
        StopReason::Cordoned { .. } => "cordoned",
        StopReason::DeviceFailed { .. } => "device-failed",
        StopReason::NotAdopted { .. } => "not-adopted",
        StopReason::Crashed { .. } => "crashed",
    }
}

pub(super) fn name_of_refusal(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::QueueFull { .. } => "queue-full",
        Refusal::NeverFits { .. } => "never-fits",
        Refusal::NoRoom { .. } => "no-room",
        Refusal::ShuttingDown => "shutting-down",
        _ => "other",
    }
}
