//! Devices that a site's own program reports. It prints one JSON document, at the start and for each reading; the guide "Devices"
//! describes the format.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use serde::Deserialize;

use super::command_run::{CommandError, output, shown};
use super::deadline::{Driver, Readers, within};
use super::machine::MachineMemory;
use super::ownership::{Figures, Ownership, ProcessList};
use super::source::{DeviceSource, FoundDevices};
use super::sysfs::Root;
use super::{DeviceError, DeviceInfo, DeviceKind, InventoryError, Provider, Reading};
use pool::{Bytes, DeviceId};

const DEVICES_MAX: usize = 256;

const PROGRAM: Driver = Driver {
    name: "the program of inventory.command",
    tool: "it",
};

/// The document that the program prints. Sizes are in bytes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Printed {
    devices: Vec<PrintedDevice>,
    #[serde(default)]
    processes: Vec<PrintedProcess>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PrintedDevice {
    name: String,
    memory: u64,
    used: u64,
    /// `other` if it is missing.
    accelerator: Option<DeviceKind>,
    /// The position in the list if it is missing.
    index: Option<u32>,
    uuid: Option<String>,
    product: Option<String>,
    pci: Option<String>,
    #[serde(default)]
    unified: bool,
    /// The variable that gives the device to an engine, by its index.
    variable: Option<String>,
    utilisation_percent: Option<u32>,
    temperature_celsius: Option<u32>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PrintedProcess {
    pid: u32,
    device: String,
    memory: u64,
}

#[derive(Debug)]
struct Program(Arc<State>);

#[derive(Debug)]
struct State {
    argv: Vec<String>,
    /// The device's name in the document, by its index.
    names: BTreeMap<u32, String>,
    readers: Arc<Readers>,
    ownership: Ownership,
}

pub(super) fn open(argv: &[String], deadline: Duration) -> Result<FoundDevices, InventoryError> {
    let owned = argv.to_vec();
    let printed = within(deadline, PROGRAM, move || run(&owned))??;
    let devices: Vec<DeviceInfo> = printed.devices.iter().zip(0..).map(info).collect();
    let names = devices.iter().map(|info| (info.index, info.name.clone()));
    let source = Program(Arc::new(State {
        argv: argv.to_vec(),
        names: names.collect(),
        readers: Arc::default(),
        ownership: Ownership::default(),
    }));
    Ok(FoundDevices::new(devices, source))
}

fn info((device, position): (&PrintedDevice, u32)) -> DeviceInfo {
    let kind = device.accelerator.unwrap_or(DeviceKind::Other);
    let index = device.index.unwrap_or(position);
    DeviceInfo {
        uuid: device.uuid.clone(),
        product_name: device.product.clone(),
        pci: device.pci.clone(),
        is_unified: device.unified,
        variable: device.variable.clone(),
        ..DeviceInfo::new(kind, device.name.clone(), index, Bytes(device.memory))
    }
}

impl DeviceSource for Program {
    fn provider(&self) -> Provider {
        Provider::Command
    }

    /// One run of the program for all devices.
    fn read(
        &self,
        devices: &[DeviceInfo],
        ours: &BTreeSet<u32>,
        deadline: Duration,
    ) -> Vec<(DeviceId, Reading)> {
        let state = Arc::clone(&self.0);
        let (ours, all) = (ours.clone(), devices.to_vec());
        // The first device stands for the program: while a run is unfinished, no other begins.
        let Some(first) = devices.first() else {
            return Vec::new();
        };
        let (sender, printed) = mpsc::channel();
        let one = self
            .0
            .readers
            .read_each(std::slice::from_ref(first), deadline, move |device| {
                let printed = run(&state.argv).map_err(|source| DeviceError::Command {
                    device: device.name.clone(),
                    source,
                })?;
                let reading = state.reading(device, &printed, &ours);
                let others = all[1..].iter();
                let others = others.map(|other| (other.id, state.reading(other, &printed, &ours)));
                let _ = sender.send(others.collect::<Vec<_>>());
                reading
            });
        let mut readings: BTreeMap<DeviceId, Reading> = one.into_iter().collect();
        readings.extend(printed.try_iter().flatten());
        let why = match readings.get(&first.id) {
            Some(Err(error)) => error.to_string(),
            _ => String::new(),
        };
        let each = devices.iter().map(|device| {
            let reading = readings.remove(&device.id).unwrap_or_else(|| {
                Err(DeviceError::OfProgram {
                    device: device.name.clone(),
                    why: why.clone(),
                })
            });
            (device.id, reading)
        });
        each.collect()
    }
}

impl State {
    fn reading(&self, device: &DeviceInfo, printed: &Printed, ours: &BTreeSet<u32>) -> Reading {
        let name = self.names.get(&device.index);
        let found = printed.devices.iter().find(|one| Some(&one.name) == name);
        let found = found.ok_or_else(|| DeviceError::Command {
            device: device.name.clone(),
            source: CommandError::Missing {
                program: self.argv.join(" "),
            },
        })?;
        let mut processes = BTreeMap::new();
        for process in &printed.processes {
            if process.device == found.name {
                let held = processes.entry(process.pid).or_insert(Some(Bytes::ZERO));
                *held = held.map(|held: Bytes| held + Bytes(process.memory));
            }
        }
        let figures = Figures {
            total: Bytes(found.memory),
            used: Bytes(found.used),
            reserved: Bytes::ZERO,
            listed: ProcessList {
                processes,
                complete: true,
            },
            utilisation_percent: found.utilisation_percent.map(|percent| percent.min(100)),
            temperature_celsius: found.temperature_celsius,
            energy: None,
        };
        let machine = device
            .is_unified
            .then(|| MachineMemory::read(&Root::new("/".as_ref())));
        Ok(match machine.flatten() {
            Some(machine) => self.ownership.unified(device, machine, figures, ours),
            None => self.ownership.dedicated(device, figures, ours),
        })
    }
}

/// Runs the program and reads the document that it prints.
fn run(argv: &[String]) -> Result<Printed, CommandError> {
    let output = output(argv)?;
    let program = argv.join(" ");
    let document: Printed =
        serde_json::from_slice(&output).map_err(|error| CommandError::Garbage {
            program: program.clone(),
            problem: error.to_string(),
            output: shown(&output),
        })?;
    match problem(&document) {
        None => Ok(document),
        Some(problem) => Err(CommandError::Wrong { program, problem }),
    }
}

/// The first contradiction in a document.
fn problem(document: &Printed) -> Option<String> {
    if document.devices.is_empty() || document.devices.len() > DEVICES_MAX {
        let count = document.devices.len();
        return Some(format!(
            "it has {count} devices; allowed: 1 to {DEVICES_MAX}"
        ));
    }
    let (mut names, mut indices) = (BTreeSet::new(), BTreeSet::new());
    for (device, position) in document.devices.iter().zip(0..) {
        let name = device.name.escape_debug();
        if device.name.trim().is_empty() || device.name.len() > 100 || device.name.contains('/') {
            return Some(format!(
                "devices[{position}].name is `{name}`; allowed: 1 to 100 bytes without `/`"
            ));
        }
        if !names.insert(&device.name) {
            return Some(format!("two devices have the name `{name}`"));
        }
        if !indices.insert(device.index.unwrap_or(position)) {
            return Some(format!("`{name}` has the index of another device"));
        }
        if device.memory == 0 {
            return Some(format!("the memory of `{name}` is 0"));
        }
        if device.accelerator == Some(DeviceKind::Host) {
            return Some(format!(
                "the accelerator of `{name}` is host; allowed: nvidia, amd, intel, other"
            ));
        }
    }
    let stranger = document.processes.iter();
    let stranger = stranger.map(|process| &process.device);
    let mut stranger = stranger.filter(|device| !names.contains(device));
    let device = stranger.next()?.escape_debug();
    Some(format!("a process is on `{device}`, which is not a device"))
}
