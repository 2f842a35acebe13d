//! The protocol between a controller and its nodes: length-prefixed JSON frames of bounded size, on one connection that the node
//! opens.
//!
//! ```text
//! node                                   controller
//!  │ GET …/node/connect, Upgrade, token ──▶│
//!  │◀─────────────────────────────── 101 ──│
//!  │ Hello: name, epoch, devices ─────────▶│
//!  │◀─ Accepted: up to which report it has │   or Refused, with what to do
//!  │ Report… that it has not ─────────────▶│
//!  │ Running: every engine of the node ───▶│   from here on the node takes part
//!  │ Report, Readings, Log, Beat ─────────▶│
//!  │◀──────────────────────── Order, Beat ─│
//! ```
//!
//! The numbers of reports continue across connections, which identifies duplicates. Orders have no number: orders that a connection
//! did not deliver are lost, and `Running` shows the controller the actual state.
//!
//! `Hello` and `NodeAcceptance` carry generations: neither side continues with a controller that has been replaced. The generation
//! of a connection applies to its orders. A standby controller responds to the upgrade with 503 and [`STANDBY_CODE`].

mod devices;
mod frames;
mod kept;
mod messages;
mod names;
mod peer_token;
mod weights;

pub use devices::{MachineForm, NodeDevice, NodeLinkKind, NodeReading, NodeReadings, TroubleForm};
pub use frames::{FRAME_BYTES_MAX, FrameError, read_frame, write_frame};
pub use kept::{KeptForm, PlacedBytes};
pub use messages::{
    EngineReport, FromController, FromNode, Hello, LaunchForm, LogLineForm, NodeAcceptance,
    NodeRefusal, NodeRefusalKind, NodeReport, Order, RelayForm, RunningEngine, Start,
};
pub use names::{NODE_NAME_MAX, STANDBY_CODE, UPGRADE, check_node_name};
pub use peer_token::{is_peer_token, sign_peer_token};
pub use weights::{PeerForm, WeightsForm, WeightsReport};

/// Peers with different numbers cannot talk to each other.
pub const PROTOCOL: u32 = 1;
