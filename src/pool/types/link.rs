//! How devices are connected.

/// How well two devices of one node reach each other, best first (M5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Link {
    NvLink,
    SameRoot,
    Node,
}
