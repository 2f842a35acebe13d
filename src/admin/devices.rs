//! Devices and the owners of their memory.

use axum::Json;
use axum::extract::State;

use api_types::dto::DeviceList;
use gateway::auth::Reader;
use gateway::fields::{Nothing, Params};
use gateway::openapi::AdminErrors;
use gateway::state::App;

/// Show devices
///
/// The memory of every device: its size, its owners, and the free part.
///
/// Administrators only.
#[utoipa::path(
    get, path = "/admin/devices", tag = "admin: pool", operation_id = "list_devices", security(("admin_key" = [])),
    responses(
        (status = 200, description = "The devices", body = DeviceList, example = json!({
            "provider": "nvml", "devices": [{
            "device": "gpu0", "name": "NVIDIA H100 80GB HBM3", "accelerator": "nvidia", "node": "gpu-1",
            "uuid": "GPU-6b5c0a3e-0000-0000-0000-000000000000", "unified": false, "mps": false, "total_bytes": 85899345920_u64,
            "headroom_bytes": 4294967296_u64, "foreign_bytes": 536870912, "excess_bytes": 0, "settling_bytes": 0, "reserved_bytes": 17179869184_u64,
            "free_bytes": 63887638528_u64, "used_bytes": 15569256448_u64, "utilisation_percent": 71,
            "temperature_celsius": 54,
            "owners": [{"replica": "r3", "model": "tiny-chat", "bytes": 17179869184_u64, "measured_bytes": 15032385536_u64, "state": "ready"}],
            "cordon": null, "read_at": "2026-01-31T20:15:00.000Z", "stale": null
        }], "hosts": [{"node": "gpu-1", "capacity_bytes": 540000000000_u64, "held_bytes": 16106127360_u64,
            "parts_bytes": 0,
            "available_bytes": 900000000000_u64, "sleepers": 1}]})),
        AdminErrors,
    )
)]
pub(crate) async fn list(
    State(app): State<App>,
    _: Reader,
    _: Params<Nothing>,
) -> Json<DeviceList> {
    Json(DeviceList::from_snapshot(&app.handle.snapshot()))
}
