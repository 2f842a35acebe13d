//! The connections between devices.

/// The quality of the connection between two devices of one node, best first (M5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Link {
    NvLink,
    SameRoot,
    Node,
}
