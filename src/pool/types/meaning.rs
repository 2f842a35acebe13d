//! The meanings of the names in the history, one sentence each, for the documentation and the API.

use crate::types::action::RecordKind;

impl RecordKind {
    /// In the order of a replica's life, then kinds that concern devices and nodes.
    pub const ALL: [RecordKind; 34] = [
        RecordKind::Fetch,
        RecordKind::Fetched,
        RecordKind::FetchEnded,
        RecordKind::FetchFailed,
        RecordKind::Load,
        RecordKind::Ready,
        RecordKind::LoadFailed,
        RecordKind::Crash,
        RecordKind::Drain,
        RecordKind::Evict,
        RecordKind::Stay,
        RecordKind::Unload,
        RecordKind::Sleep,
        RecordKind::Gone,
        RecordKind::Refuse,
        RecordKind::Set,
        RecordKind::LeaseEnded,
        RecordKind::Cleanup,
        RecordKind::Reopen,
        RecordKind::Adopt,
        RecordKind::Cordon,
        RecordKind::Uncordon,
        RecordKind::DeviceFailed,
        RecordKind::NodeJoined,
        RecordKind::NodeSilent,
        RecordKind::NodeGone,
        RecordKind::NodeDrain,
        RecordKind::NodeUndrain,
        RecordKind::NodeRequested,
        RecordKind::NodeRefused,
        RecordKind::NodeEnds,
        RecordKind::NodeEmptied,
        RecordKind::NodeReleased,
        RecordKind::BatchWarned,
    ];

    pub fn meaning(self) -> &'static str {
        match self {
            RecordKind::Fetch => "A download of a model's weights began.",
            RecordKind::Fetched => "The weights are on this machine.",
            RecordKind::FetchEnded => "A download was ended before it was complete.",
            RecordKind::FetchFailed => "A download failed; the reason says why.",
            RecordKind::Load => {
                "A load was decided: its memory is promised, and its victims start to leave."
            }
            RecordKind::Ready => {
                "A replica serves. `took` is the time since its engine was started or woken."
            }
            RecordKind::LoadFailed => {
                "An engine did not become ready; the reason has its last output (L3)."
            }
            RecordKind::Crash => "An engine exited unexpectedly after it had been ready (L4).",
            RecordKind::Drain => {
                "A replica takes no new requests and finishes those in flight, because of keep-hot, the cleanup, a cordon, a change of the model or the end of the service. `took` is how long it had been ready."
            }
            RecordKind::Evict => {
                "A replica leaves because another model needs its memory (P2, P3, P6, B5). `took` is how long it had been ready."
            }
            RecordKind::Stay => {
                "A victim of a load stays after all: the load began without its memory, or was dropped."
            }
            RecordKind::Unload => {
                "A replica leaves because an administrator unloaded it. `took` is how long it had been ready."
            }
            RecordKind::Sleep => "A replica's engine sleeps: its weights are in the host's memory.",
            RecordKind::Gone => {
                "A replica's engine has ended and its memory is given back. `took` is how long the stop lasted."
            }
            RecordKind::Refuse => "A request, a load or an order was refused.",
            RecordKind::Set => "An administrator changed a priority, a keep-hot time or a lease.",
            RecordKind::LeaseEnded => {
                "A temporary change of a priority or keep-hot time (a lease) ended."
            }
            RecordKind::Cleanup => "The evening cleanup began (E1).",
            RecordKind::Reopen => "The morning: always-hot models come back (E2).",
            RecordKind::Adopt => {
                "After a restart, an engine that was still running continues to serve (D2)."
            }
            RecordKind::Cordon => "A device was taken out of service (M7).",
            RecordKind::Uncordon => "A device was put back into service.",
            RecordKind::DeviceFailed => {
                "A device reported a failure; nothing is placed on it (M7)."
            }
            RecordKind::NodeJoined => "A node joined the pool.",
            RecordKind::NodeSilent => {
                "A node has sent nothing for a while; nothing new is placed on it."
            }
            RecordKind::NodeGone => "A node has left, and its replicas with it.",
            RecordKind::NodeDrain => "A node was taken out of service.",
            RecordKind::NodeUndrain => {
                "The drain of a node has ended: it is back in service, or gone."
            }
            RecordKind::NodeRequested => "The pool requested a node from a cluster.",
            RecordKind::NodeRefused => "The cluster did not give the node.",
            RecordKind::NodeEnds => {
                "The time of a node ends soon: nothing new is placed on it, and its replicas move (N7)."
            }
            RecordKind::NodeEmptied => {
                "A cheaper place is free for the models of a requested node: they move there, and the node is given back (S3). Or the node serves again; the reason says why."
            }
            RecordKind::NodeReleased => "A node was given back to its cluster.",
            RecordKind::BatchWarned => {
                "A batch is expected to take longer than its window; once for each batch."
            }
        }
    }
}

/// The reasons of `load`: names and meanings.
pub const LOAD_CAUSES: &[(&str, &str)] = &[
    ("requests", "Requests wait for the model."),
    ("order", "An administrator ordered it."),
    ("wish", "An administrator's load from before a restart."),
    ("always_hot", "Its priority is 2 or more (P4)."),
    (
        "growth",
        "Its replicas have more requests than their target (S1).",
    ),
    ("adopted", "It was running when the service started (D2)."),
    ("moves", "The node that has it ends soon (N7)."),
    (
        "consolidates",
        "A cheaper place than its node is free (S3).",
    ),
    (
        "batch",
        "Batch requests wait for the model, and no other ones (B4).",
    ),
];

/// The reasons for which a replica leaves.
pub const END_CAUSES: &[(&str, &str)] = &[
    ("keep_hot", "It was idle for its keep-hot time (L2)."),
    (
        "preempted",
        "A model of higher priority needed the memory (P2).",
    ),
    (
        "turn_ended",
        "A model of equal priority took its turn (P3).",
    ),
    (
        "yielded",
        "It was idle, and a model of equal (P3) or lower priority (P6) needed the memory.",
    ),
    (
        "batch_yielded",
        "It served only batches, and another load needed the memory (B5).",
    ),
    (
        "batch_node",
        "Its node was requested for batches and is given back (B8).",
    ),
    ("forced", "An administrator forced another load (P4)."),
    ("unload", "An administrator unloaded it."),
    ("cleanup", "The evening cleanup (E1)."),
    ("reset", "An administrator reset the pool."),
    ("shutdown", "The service ended (D2)."),
    ("removed", "The model was removed from the catalogue."),
    (
        "changed",
        "The catalogue changed how its engine is started.",
    ),
    (
        "surplus",
        "There were more replicas than ordered or needed.",
    ),
    ("unwanted", "Nothing waited for its load any more (Q3)."),
    ("load_timed_out", "It was not ready by its deadline (L3)."),
    ("did_not_wake", "Its engine could not be woken."),
    (
        "slept_long",
        "It slept for `parking.keep` without a request.",
    ),
    (
        "host_pressure",
        "The machine itself lacked memory, and sleeping engines go first.",
    ),
    ("host_for", "Another replica sleeps in its place."),
    (
        "sleeper_dropped",
        "The device memory that the sleeping engine kept was needed.",
    ),
    ("cordoned", "Its device was taken out of service (M7)."),
    ("device_failed", "Its device reported a failure (M7)."),
    ("node_drained", "Its node was taken out of service."),
    ("node_ends", "The time of its node ended (N7)."),
    (
        "consolidated",
        "It has moved to a cheaper place, and its node is given back (S3).",
    ),
    ("node_lost", "Its node is gone, or came back without it."),
    (
        "member_ended",
        "A process of a replica on several nodes ended, and the others were stopped (M8).",
    ),
    (
        "not_adopted",
        "It was found after a restart and could not stay (D2).",
    ),
    ("crashed", "Its engine exited unexpectedly (L4)."),
];

/// The reasons of `refuse`.
pub const REFUSAL_CAUSES: &[(&str, &str)] = &[
    ("unknown_model", "There is no such model."),
    (
        "queue_full",
        "As many requests as `pool.queue_limit` waited for the model (Q1).",
    ),
    (
        "timed_out",
        "The request waited for `pool.queue_timeout` (Q1).",
    ),
    (
        "never_fits",
        "The model does not fit into an empty pool (M6).",
    ),
    (
        "no_room",
        "No eviction that the rules allow frees enough memory.",
    ),
    ("load_failed", "The load failed (L3)."),
    (
        "cooling",
        "The model failed recently and is tried again later (L3).",
    ),
    ("quarantined", "The model failed five times in a row (L3)."),
    ("shutting_down", "The service ends."),
    (
        "no_such_replica",
        "The order names a replica that does not exist.",
    ),
    (
        "no_such_device",
        "The order names a device that does not exist.",
    ),
    ("not_cordoned", "The device is already in service."),
    ("no_devices", "No node with devices has joined."),
    (
        "no_such_node",
        "The order names a node that does not exist.",
    ),
    ("node_serves", "The node is already in service."),
    ("not_loaded", "The model has no replica to unload."),
    (
        "fetch_ended",
        "An administrator ended the download of its weights.",
    ),
    (
        "weights_damaged",
        "Its weights on this machine are damaged (L3).",
    ),
    (
        "too_many_devices",
        "The order is for more devices than the pool has.",
    ),
    (
        "engine_takes_fewer",
        "The order is for more devices than the model's engine uses.",
    ),
    (
        "loaded_on_others",
        "The model is loaded on another number of devices.",
    ),
    (
        "program_missing",
        "The program of its engine is missing, or may not be run (L3).",
    ),
    (
        "above_group",
        "The model has a higher priority than the group of its administrator may set.",
    ),
    (
        "request_above_group",
        "The administrator of a group requests a higher priority than the group may set.",
    ),
    ("superseded", "A later order replaced this one."),
    (
        "plan_changed",
        "The pool has changed since an administrator planned the order, which would have another effect now.",
    ),
    (
        "not_saved",
        "The state could not be written, so nothing has changed (D1).",
    ),
];

/// All names that a record's reason may have, for filters.
pub fn causes() -> impl Iterator<Item = &'static str> {
    let all = [LOAD_CAUSES, END_CAUSES, REFUSAL_CAUSES];
    all.into_iter().flatten().map(|(name, _)| *name)
}
