//! The errors that a GPU reports, and what they mean for the models on it: the table of Xid codes.
//!
//! The table follows the immediate actions of NVIDIA's catalogue (NVIDIA, "Analyzing Xid Errors with the Xid
//! Catalog", docs.nvidia.com/deploy/xid-errors): RESTART_APP and IGNORE of an application's error concern one
//! process; RESET_GPU, RESTART_BM and the workflows of 48 and 74 the device; errors that are only to be
//! watched, or that are not in the table, leave the device in use.
//!
//! 46 follows NVIDIA's health checks (docs.nvidia.com/health-validation). The reach of 32, 68, 69, 109, 110 and
//! 143 is not checked against the catalogue.

use std::fmt;

use pool::DeviceId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceEvent {
    pub device: DeviceId,
    pub what: DeviceTrouble,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceTrouble {
    /// A driver error by its number; 999 stands for unknown errors.
    Xid { code: u64 },
    /// A memory error that could not be corrected.
    DoubleBitEcc,
    /// The GPU fell off the bus: it cannot be queried or used.
    Lost,
}

/// The scope of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorScope {
    /// One process, which has failed or will fail; others on the device continue.
    Process,
    /// No effect yet: the device works, but an administrator should look at it.
    Watch,
    /// Every process on the device; nothing new can start there before it is reset.
    Device,
}

use ErrorScope::{Device, Process, Watch};

struct Xid {
    code: u64,
    reach: ErrorScope,
    means: &'static str,
    /// Advice for the administrator.
    then: &'static str,
}

const fn xid(code: u64, reach: ErrorScope, means: &'static str, then: &'static str) -> Xid {
    Xid {
        code,
        reach,
        means,
        then,
    }
}

const RESTART: &str = "restart the engine";
const RESET: &str = "stop what runs on it, then `nvidia-smi --gpu-reset`";
const REBOOT: &str = "restart the machine; if it happens again, replace the GPU or its slot";
const LATER: &str = "reset the GPU when it is idle";

/// Sorted by code.
const TABLE: &[Xid] = &[
    xid(8, Process, "the GPU stopped processing", RESTART),
    xid(11, Process, "a command stream was damaged", RESTART),
    xid(13, Process, "a kernel failed on the GPU", RESTART),
    xid(
        31,
        Process,
        "an access to memory that is not mapped",
        RESTART,
    ),
    xid(32, Process, "a command buffer was damaged", RESTART),
    xid(
        43,
        Process,
        "an application was stopped after its own error",
        RESTART,
    ),
    xid(
        45,
        Process,
        "an application was cleaned up after an error or its end",
        RESTART,
    ),
    xid(46, Device, "the GPU stopped processing", RESET),
    xid(
        48,
        Device,
        "a memory error that could not be corrected",
        RESET,
    ),
    xid(62, Device, "the GPU's micro-controller halted", RESET),
    xid(
        63,
        Watch,
        "a bad row of memory was marked for replacement",
        LATER,
    ),
    xid(
        64,
        Device,
        "a bad row of memory could not be marked for replacement",
        RESET,
    ),
    xid(68, Process, "the video decoder failed", RESTART),
    xid(69, Process, "an invalid graphics command", RESTART),
    xid(74, Device, "an NVLink failed", RESET),
    xid(79, Device, "the GPU has fallen off the bus", REBOOT),
    xid(
        92,
        Watch,
        "many corrected memory errors",
        "watch it; the memory may fail soon",
    ),
    xid(
        94,
        Process,
        "a memory error that was contained to one application",
        RESTART,
    ),
    xid(95, Device, "a memory error that was not contained", RESET),
    xid(
        109,
        Process,
        "an application did not release the GPU in time",
        RESTART,
    ),
    xid(110, Device, "the GPU's security controller failed", REBOOT),
    xid(
        119,
        Device,
        "the GPU's own processor (GSP) does not answer",
        RESET,
    ),
    xid(120, Device, "the GPU's own processor (GSP) failed", RESET),
    xid(
        121,
        Watch,
        "the link between processor and GPU had errors",
        LATER,
    ),
    xid(
        140,
        Device,
        "a memory error from which the GPU did not recover",
        RESET,
    ),
    xid(143, Device, "the GPU could not be initialised", RESET),
    xid(
        154,
        Watch,
        "the driver names a repair after another error",
        "the kernel's log says which (dmesg, `Xid`)",
    ),
];

impl DeviceTrouble {
    pub fn reach(self) -> ErrorScope {
        match self {
            DeviceTrouble::Xid { code } => known(code).map_or(Watch, |xid| xid.reach),
            DeviceTrouble::DoubleBitEcc | DeviceTrouble::Lost => Device,
        }
    }

    /// Returns true if nothing may be placed on the device any more.
    pub fn is_unusable(self) -> bool {
        self.reach() == Device
    }
}

fn known(code: u64) -> Option<&'static Xid> {
    TABLE.iter().find(|xid| xid.code == code)
}

/// The error's meaning for the administrator, and what to do.
impl fmt::Display for DeviceTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            DeviceTrouble::Xid { code } => match known(code) {
                Some(Xid { means, then, .. }) => write!(f, "Xid {code}: {means}; {then}"),
                None => write!(
                    f,
                    "Xid {code}: see NVIDIA's catalogue of Xid errors and the kernel's log (dmesg)"
                ),
            },
            DeviceTrouble::DoubleBitEcc => {
                write!(f, "a memory error that could not be corrected; {RESET}")
            }
            DeviceTrouble::Lost => write!(f, "it fell off the bus; {REBOOT}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_xid_table_is_sorted_and_has_each_code_once() {
        assert!(TABLE.windows(2).all(|pair| pair[0].code < pair[1].code));
    }

    #[test]
    fn an_application_error_keeps_the_device_in_use_and_a_lost_gpu_does_not() {
        let reach = |code| DeviceTrouble::Xid { code }.reach();
        for code in [13, 31, 43, 45, 94] {
            assert_eq!(reach(code), Process, "Xid {code}");
        }
        for code in [48, 64, 74, 79, 95, 119, 120, 140] {
            assert_eq!(reach(code), Device, "Xid {code}");
        }
        assert_eq!((reach(63), reach(92), reach(4711)), (Watch, Watch, Watch));
        assert!(DeviceTrouble::Lost.is_unusable() && DeviceTrouble::DoubleBitEcc.is_unusable());
    }

    #[test]
    fn an_xid_error_is_explained_with_advice() {
        let words = DeviceTrouble::Xid { code: 79 }.to_string();
        assert!(words.contains("Xid 79") && words.contains("fallen off the bus"));
        assert!(words.contains("restart the machine"), "{words}");
        let words = DeviceTrouble::Xid { code: 4711 }.to_string();
        assert!(
            words.contains("4711") && words.contains("catalogue"),
            "{words}"
        );
    }
}
