//! Devices of a node and their readings, identified by the node's own names.

use serde::{Deserialize, Serialize};

use super::weights::WeightsReport;
use inventory::{DeviceInfo, DeviceKind, DeviceTrouble, Link, MachineMemory};
use pool::{Bytes, DeviceId, NodeId};

/// The best link between two devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeLinkKind {
    NvLink,
    SameRoot,
    Node,
}

/// Properties of a device that do not change while the node runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeDevice {
    pub name: String,
    pub is_gpu: bool,
    /// The maker. Missing from earlier versions, whose GPUs are NVIDIA's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<DeviceKind>,
    pub index: u32,
    pub uuid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variable: Option<String>,
    pub total: u64,
    pub installed: u64,
    /// The GPU shares the machine's memory. Missing from earlier versions.
    #[serde(default)]
    pub is_unified: bool,
    /// NVIDIA's Multi-Process Service runs. Missing from earlier versions.
    #[serde(default)]
    pub has_mps: bool,
    pub headroom: u64,
    pub product_name: Option<String>,
    pub product: u32,
    pub pci: Option<String>,
    pub links: Vec<(String, NodeLinkKind)>,
    pub labels: Vec<String>,
}

impl NodeDevice {
    /// All devices of a node.
    pub fn all(devices: &[DeviceInfo]) -> Vec<NodeDevice> {
        let name = |id: &DeviceId| {
            let found = devices.iter().find(|info| info.id == *id)?;
            Some(found.name.clone())
        };
        let links = |info: &DeviceInfo| {
            info.links
                .iter()
                .filter_map(|(other, link)| {
                    let link = match link {
                        Link::NvLink => NodeLinkKind::NvLink,
                        Link::SameRoot => NodeLinkKind::SameRoot,
                        Link::Node => NodeLinkKind::Node,
                    };
                    Some((name(other)?, link))
                })
                .collect()
        };
        devices
            .iter()
            .map(|info| NodeDevice {
                name: info.name.clone(),
                is_gpu: info.kind.is_gpu(),
                kind: Some(info.kind),
                index: info.index,
                uuid: info.uuid.clone(),
                partition: info.partition,
                variable: info.variable.clone(),
                total: info.total.0,
                installed: info.installed.0,
                is_unified: info.is_unified,
                has_mps: info.has_mps,
                headroom: info.headroom.0,
                product_name: info.product_name.clone(),
                product: info.product,
                pci: info.pci.clone(),
                links: links(info),
                labels: info.labels.clone(),
            })
            .collect()
    }

    /// The device as the controller knows it: with the controller's number, and the node's name as prefix.
    pub fn info(
        &self,
        id: DeviceId,
        (node, node_name): (NodeId, &str),
        id_of: impl Fn(&str) -> Option<DeviceId>,
    ) -> DeviceInfo {
        DeviceInfo {
            id,
            name: format!("{node_name}/{}", self.name),
            kind: match self.kind {
                Some(kind) => kind,
                None if self.is_gpu => DeviceKind::Nvidia,
                None => DeviceKind::Host,
            },
            index: self.index,
            uuid: self.uuid.clone(),
            partition: self.partition,
            variable: self.variable.clone(),
            node,
            node_name: node_name.to_owned(),
            total: Bytes(self.total),
            installed: Bytes(self.installed),
            is_unified: self.is_unified,
            has_mps: self.has_mps,
            headroom: Bytes(self.headroom),
            product_name: self.product_name.clone(),
            product: self.product,
            pci: self.pci.clone(),
            links: self
                .links
                .iter()
                .filter_map(|(other, link)| {
                    let link = match link {
                        NodeLinkKind::NvLink => Link::NvLink,
                        NodeLinkKind::SameRoot => Link::SameRoot,
                        NodeLinkKind::Node => Link::Node,
                    };
                    Some((id_of(other)?, link))
                })
                .collect(),
            labels: self.labels.clone(),
        }
    }
}

/// The reading of one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReading {
    pub device: String,
    pub total: u64,
    pub used: u64,
    pub own: u64,
    pub foreign: u64,
    /// Memory by replica.
    pub replicas: Vec<(u64, u64)>,
    pub utilisation_percent: Option<u32>,
    pub temperature_celsius: Option<u32>,
    /// The energy since the driver was loaded, in millijoules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy_mj: Option<u64>,
    /// The current power, in milliwatts, of a device without a counter of energy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_mw: Option<u64>,
}

/// One reading of all devices of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReadings {
    /// The controller's own time at its latest heartbeat before the reading began: a reading never claims to be newer than it is,
    /// whatever the node's clock.
    pub since_beat: u64,
    pub devices: Vec<NodeReading>,
    /// Errors of devices that could not be read.
    pub faults: Vec<(String, String)>,
    pub machine: Option<MachineForm>,
    /// The weights that the node can send to others; `None` from versions that send none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<WeightsReport>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineForm {
    pub total: u64,
    pub available: u64,
}

impl From<MachineMemory> for MachineForm {
    fn from(memory: MachineMemory) -> MachineForm {
        MachineForm {
            total: memory.total.0,
            available: memory.available.0,
        }
    }
}

impl From<MachineForm> for MachineMemory {
    fn from(form: MachineForm) -> MachineMemory {
        MachineMemory {
            total: Bytes(form.total),
            available: Bytes(form.available),
        }
    }
}

/// An error that a GPU reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TroubleForm {
    Xid(u64),
    DoubleBitEcc,
    Lost,
}

impl From<DeviceTrouble> for TroubleForm {
    fn from(trouble: DeviceTrouble) -> TroubleForm {
        match trouble {
            DeviceTrouble::Xid { code } => TroubleForm::Xid(code),
            DeviceTrouble::DoubleBitEcc => TroubleForm::DoubleBitEcc,
            DeviceTrouble::Lost => TroubleForm::Lost,
        }
    }
}

impl From<TroubleForm> for DeviceTrouble {
    fn from(form: TroubleForm) -> DeviceTrouble {
        match form {
            TroubleForm::Xid(code) => DeviceTrouble::Xid { code },
            TroubleForm::DoubleBitEcc => DeviceTrouble::DoubleBitEcc,
            TroubleForm::Lost => DeviceTrouble::Lost,
        }
    }
}
